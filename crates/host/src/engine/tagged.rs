//! Tag matching for an application: shows matched messages, and posts the requests of rendezvous.

use super::Engine;
use super::ends::QpEnds;
use crate::memory::{Bytes, HostMemory};
use highwire_rings::Cqe;
use highwire_rnic::{Seen, Transfer};
use highwire_verbs::{
    Completion, Gather, LocalMemory, Memory, MemoryLost, PostError, SrqId, TagHandle, TagRequest,
    TaggedBuffer,
};

/// Send requests that a queue pair has room for besides its user's: two for each rendezvous.
pub(crate) const OWN_SENDS: u32 = 128;

impl Engine {
    /// Adds a tagged buffer to a queue's list.
    pub(crate) fn add_tag(
        &mut self,
        srq: SrqId,
        buffer: TaggedBuffer,
        request: &TagRequest,
    ) -> Result<TagHandle, PostError> {
        let added = self.rnic.add_tag(srq, buffer, request);
        self.deliver();
        added
    }

    /// Takes a tagged buffer back. If a message has taken it already, the completion tells.
    pub(crate) fn remove_tag(
        &mut self,
        srq: SrqId,
        handle: TagHandle,
        request: &TagRequest,
    ) -> Result<(), PostError> {
        let removed = self.rnic.remove_tag(srq, handle, request);
        self.deliver();
        removed
    }

    /// Tells the list which unexpected messages the application knows of.
    pub(crate) fn sync_tags(&mut self, srq: SrqId, request: &TagRequest) -> Result<(), PostError> {
        let synced = self.rnic.sync_tags(srq, request);
        self.deliver();
        synced
    }

    /// Shows the application its form of a completion; false if that is the completion itself.
    #[cold]
    pub(super) fn show_matched(&mut self, completion: &Completion) -> bool {
        match self.rnic.match_tags(completion, &mut self.memory) {
            Seen::AsItIs => return false,
            Seen::Instead { cq, completion, tag, tag_context } => {
                self.objects.cqs.push_entry(cq, &Cqe { completion, tag, tag_context });
            }
            Seen::Nothing => {}
        }
        true
    }

    /// Posts the requests of rendezvous that have begun. Those of a queue pair that is full have to wait.
    #[cold]
    pub(super) fn begin_transfers(&mut self) {
        let mut full = Vec::new();
        while let Some(mut transfer) = self.rnic.next_transfer() {
            match self.post_transfer(&mut transfer) {
                Ok(()) => {}
                Err(PostError::QueueFull) => full.push(transfer),
                Err(_) => self.rnic.fail_transfer(self.time.some_past(), &transfer),
            }
        }
        full.into_iter().for_each(|transfer| self.rnic.postpone_transfer(transfer));
    }

    fn post_transfer(&mut self, transfer: &mut Transfer) -> Result<(), PostError> {
        let is_it = |(_, qp): &(u32, &QpEnds)| qp.qpn == transfer.qpn();
        let index =
            self.objects.qps.iter().find(is_it).map(|(index, _)| index).ok_or(PostError::NoSuchQueue)?;
        loop {
            let (wr, data) = transfer.request();
            self.post_send(index, &wr, data)?;
            // The posted requests leave with the next turn, which is due at once.
            (self.turn.posted, self.turn.more_to_send) = (true, true);
            if !transfer.advance() {
                return Ok(());
            }
        }
    }
}

impl LocalMemory for HostMemory {
    fn copy_out(&self, from: &Gather<'_>, out: &mut [u8]) -> Result<(), MemoryLost> {
        HostMemory::copy_out(self, from, out)
    }

    fn copy_within(&mut self, from: &Gather<'_>, to: &Gather<'_>) -> Result<(), MemoryLost> {
        let mut bytes = vec![0; from.len() as usize];
        HostMemory::copy_out(self, from, &mut bytes)?;
        let mut rest = &bytes[..];
        to.spans().try_for_each(|span| {
            let (now, later) = rest.split_at(span.length as usize);
            rest = later;
            self.place(span.addr, Bytes::of(now))
        })
    }
}
