//! Rendezvous: the READ of a message from its sender's memory, and the notice to the sender.

use super::{Message, Seen};
use crate::rnic::Rnic;
use highwire_stdx::Instant;
use highwire_verbs::{
    Completion, CompletionFlags, CompletionOp, CompletionStatus, CqId, Operation, QpAttr, QpState, Remote,
    SendFlags, SendWr, Sge, SgeList, TagFlags, TaggedBuffer,
};
use highwire_wire::{Qpn, TagHeader, TagOperation};
use std::collections::{BTreeMap, VecDeque};

/// The beginning of the numbers of the RNIC's own requests. Those of notices to senders are odd.
const OWN: u64 = 0x7A67_7265_0000_0000;

/// Rendezvous that wait or are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfers {
    waiting: VecDeque<Transfer>,
    /// The purpose of each of the RNIC's own requests, by queue pair and number.
    own: BTreeMap<(Qpn, u64), Own>,
    begun: u32,
}

#[derive(Clone, Copy, Debug)]
enum Own {
    Read { cq: CqId, wr_id: u64 },
    Word,
}

/// A rendezvous that waits: two requests, which the driver posts in this order.
#[derive(Clone, Debug)]
pub struct Transfer {
    qpn: Qpn,
    number: u64,
    remote: Remote,
    sges: SgeList,
    word: [u8; TagHeader::LEN],
    /// The READ is posted.
    reads: bool,
}

impl Transfer {
    /// The queue pair that both requests are posted to.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The next request to post, and the bytes that it sends, if they are not in memory.
    pub fn request(&self) -> (SendWr<'_>, Option<&[u8]>) {
        if !self.reads {
            return (SendWr::new(self.number, Operation::Read(self.remote), self.sges.as_slice()), None);
        }
        let flags = SendFlags { fence: true, ..SendFlags::SIGNALED };
        (SendWr { flags, ..SendWr::new(self.number | 1, Operation::Send, &[]) }, Some(&self.word))
    }

    /// The request was posted; returns whether another follows.
    pub fn advance(&mut self) -> bool {
        !std::mem::replace(&mut self.reads, true)
    }
}

impl Transfers {
    pub(super) fn begin(
        &mut self,
        cq: CqId,
        qpn: Qpn,
        buffer: &TaggedBuffer,
        message: &Message,
        remote: Remote,
    ) {
        let number = OWN | u64::from(self.begun) << 1 & u64::from(u32::MAX);
        self.begun = self.begun.wrapping_add(1);
        let mut left = message.length;
        let cut = |sge: &Sge| {
            let length = sge.length.min(left);
            left -= length;
            Sge { length, ..*sge }
        };
        let sges: Vec<Sge> = buffer.sges.as_slice().iter().map(cut).collect();
        let mut word = [0; TagHeader::LEN];
        TagHeader { operation: TagOperation::Finished, ..message.header }.emit(&mut word);
        self.own.insert((qpn, number), Own::Read { cq, wr_id: buffer.wr_id });
        self.own.insert((qpn, number | 1), Own::Word);
        self.waiting.push_back(Transfer { qpn, number, remote, sges: sges[..].into(), word, reads: false });
    }

    /// What the application sees of a completion of a send queue.
    pub(super) fn take(&mut self, completion: &Completion) -> Seen {
        match self.own.remove(&(completion.qpn, completion.wr_id)) {
            None => Seen::AsItIs,
            // The sender got the notice, or never will: then the connection is broken, which the application
            // learns otherwise.
            Some(Own::Word) => Seen::Nothing,
            Some(Own::Read { cq, wr_id }) => {
                let is_whole = completion.status == CompletionStatus::Success;
                let tags = if is_whole { TagFlags::DATA_VALID } else { TagFlags::NONE };
                let completion = Completion {
                    wr_id,
                    operation: CompletionOp::ReceiveTagged,
                    flags: CompletionFlags { tags, ..CompletionFlags::default() },
                    ..*completion
                };
                Seen::Instead { cq, completion, tag: 0, tag_context: 0 }
            }
        }
    }
}

impl Rnic {
    /// The next request of a rendezvous that the driver is to post.
    #[inline]
    pub fn next_transfer(&mut self) -> Option<Transfer> {
        self.transfers.waiting.pop_front()
    }

    /// The send queue was full: the driver tries again when something has completed there.
    pub fn postpone_transfer(&mut self, transfer: Transfer) {
        self.transfers.waiting.push_back(transfer);
    }

    /// A request of a rendezvous cannot be posted. The application learns that the buffer was not filled, and
    /// the connection breaks, because the sender gets no notice.
    pub fn fail_transfer(&mut self, now: Instant, transfer: &Transfer) {
        let &Transfer { qpn, number, reads, .. } = transfer;
        if !reads && let Some(Own::Read { cq, wr_id }) = self.transfers.own.remove(&(qpn, number)) {
            let status = CompletionStatus::LocalQpOperation;
            self.completions
                .push_back((cq, Completion::new(wr_id, status, CompletionOp::ReceiveTagged, qpn)));
        }
        self.transfers.own.remove(&(qpn, number | 1));
        let _ = self.modify_qp(now, qpn, &QpAttr::to_state(QpState::Error));
    }

    /// Removes the rendezvous of a queue pair that goes.
    pub(crate) fn forget_transfers(&mut self, qpn: Qpn) {
        self.transfers.waiting.retain(|transfer| transfer.qpn != qpn);
        self.transfers.own.retain(|(of, _), _| *of != qpn);
    }
}
