//! Tag matching: messages that a shared receive queue with tags takes in are looked at before they are shown.
//!
//! A message arrives in an ordinary receive of the queue. If a tagged buffer waits for it, it is moved there, and the receive
//! goes back to where it came from; the application sees neither. A rendezvous makes the queue pair read the message
//! from where it lies, and tell the sender behind a fence.

use super::Engine;
use super::ends::{CqSink, QpEnds, SrqEnds};
use super::tags::{TagRequest, Tags, Transfer, post};
use crate::memory::Bytes;
use highwire_rings::Cqe;
use highwire_verbs::{
    Completion, CompletionFlags, CompletionOp, CompletionStatus, CqId, Gather, LocalKey, MemoryLost,
    Operation, Pd, PostError, RecvWr, Remote, RemoteKey, SendFlags, SendWr, Sge, SgeList, TagFlags,
    TagHandle, TaggedBuffer, scatter,
};
use highwire_wire::{Qpn, Rendezvous, TagHeader, TagOperation};

/// Numbers of requests of the engine's own begin like this. They are odd for what ends a rendezvous.
const OWN: u64 = 0x7A67_7265_0000_0000;
const OWN_MASK: u64 = 0xFFFF_FFFF_0000_0000;

impl Engine {
    /// Adds a tagged buffer to a queue's list.
    pub(crate) fn add_tag(
        &mut self,
        srq: u32,
        buffer: TaggedBuffer,
        request: &TagRequest,
    ) -> Result<TagHandle, PostError> {
        let tags = self.tags(srq)?;
        if let Some(unexpected) = request.unexpected {
            tags.list.sync(unexpected);
        }
        let handle = tags.list.add(buffer).ok_or(PostError::QueueFull)?;
        self.finish_tags(srq, request, CompletionOp::AddTag, CompletionStatus::Success);
        Ok(handle)
    }

    /// Takes one back. That it has gone already is told by the completion.
    pub(crate) fn remove_tag(
        &mut self,
        srq: u32,
        handle: TagHandle,
        request: &TagRequest,
    ) -> Result<(), PostError> {
        let removed = self.tags(srq)?.list.remove(handle);
        let status = if removed.is_some() { CompletionStatus::Success } else { CompletionStatus::Tag };
        self.finish_tags(srq, request, CompletionOp::RemoveTag, status);
        Ok(())
    }

    /// Tells the list which unexpected messages the application knows of.
    pub(crate) fn sync_tags(&mut self, srq: u32, request: &TagRequest) -> Result<(), PostError> {
        let tags = self.tags(srq)?;
        tags.list.sync(request.unexpected.ok_or(PostError::Unsupported)?);
        self.finish_tags(srq, request, CompletionOp::SyncTags, CompletionStatus::Success);
        Ok(())
    }

    fn tags(&mut self, srq: u32) -> Result<&mut Tags, PostError> {
        self.srqs.get_mut(srq).and_then(|ends| ends.tags.as_deref_mut()).ok_or(PostError::NoSuchQueue)
    }

    fn finish_tags(
        &mut self,
        srq: u32,
        request: &TagRequest,
        operation: CompletionOp,
        status: CompletionStatus,
    ) {
        let Ok(tags) = self.tags(srq) else { return };
        let (cq, is_synced) = (tags.cq, tags.list.is_synced());
        if request.signaled || status != CompletionStatus::Success {
            let mut done = Completion::new(request.wr_id, status, operation, Qpn::default());
            done.flags.tags = if is_synced { TagFlags::NONE } else { TagFlags::SYNC_NEEDED };
            show(&mut self.cqs, cq, &done.into());
            self.publish();
        }
    }

    /// Deals with what completes at queue pairs whose receives have tags; false if it is nothing of theirs.
    #[cold]
    pub(super) fn take_tagged(&mut self, completion: &Completion) -> bool {
        let srq = self.rnic.qp(completion.qpn).and_then(|qp| qp.config().srq);
        let is_it = |(_, ends): &(u32, &SrqEnds)| Some(ends.id) == srq && ends.tags.is_some();
        let Some(index) = self.srqs.iter().find(is_it).map(|(index, _)| index) else { return false };
        if !matches!(completion.operation, CompletionOp::Receive | CompletionOp::ReceiveWriteImm) {
            return self.take_own(completion);
        }
        let Some((id, mut tags)) =
            self.srqs.get_mut(index).and_then(|ends| Some((ends.id, ends.tags.take()?)))
        else {
            return false;
        };
        let cqe = self.match_message(id, &mut tags, completion);
        show(&mut self.cqs, tags.cq, &cqe);
        if let Some(ends) = self.srqs.get_mut(index) {
            ends.tags = Some(tags);
        }
        true
    }

    /// What the application is shown of a message.
    fn match_message(&mut self, srq: highwire_verbs::SrqId, tags: &mut Tags, completion: &Completion) -> Cqe {
        let mut shown = *completion;
        let Some(receive) = tags.receives.remove(completion.wr_id as u32) else { return shown.into() };
        shown.wr_id = receive.wr_id;
        let is_message =
            completion.status == CompletionStatus::Success && completion.operation == CompletionOp::Receive;
        if !is_message {
            return shown.into();
        }
        let mut head = [0; TagHeader::LEN + Rendezvous::LEN];
        let known = completion.byte_len.min(head.len() as u32);
        let Some(sges) = self.translate(tags.pd, receive.sges.as_slice(), false) else { return shown.into() };
        let head_at = Gather::new(sges.as_slice(), 0, known);
        if self.memory.copy_out(&head_at, &mut head[..known as usize]).is_err() {
            shown.status = CompletionStatus::LocalProtection;
            return shown.into();
        }
        let (first, second) = head.split_at(TagHeader::LEN);
        let header = first.first_chunk().and_then(TagHeader::parse);
        let header = header.filter(|_| known as usize >= TagHeader::LEN);
        let rendezvous = second.first_chunk().map(Rendezvous::parse).filter(|_| known as usize == head.len());
        let Some(header) = header.filter(|header| {
            matches!(header.operation, TagOperation::Eager)
                || header.operation == TagOperation::Rendezvous && rendezvous.is_some()
        }) else {
            shown.operation = CompletionOp::ReceiveNoTag;
            return shown.into();
        };
        shown.operation = CompletionOp::ReceiveTagged;
        let Some(buffer) = tags.list.take(header.tag) else {
            tags.list.note_unexpected();
            return shown.into();
        };
        let length = match rendezvous.filter(|_| header.operation == TagOperation::Rendezvous) {
            Some(rendezvous) => rendezvous.length,
            None => completion.byte_len - TagHeader::LEN as u32,
        };
        let space = self.translate(tags.pd, buffer.sges.as_slice(), true);
        let mut matched = Completion {
            byte_len: length,
            flags: CompletionFlags { tags: TagFlags::MATCHED, ..CompletionFlags::default() },
            ..Completion::new(
                buffer.wr_id,
                CompletionStatus::Success,
                CompletionOp::ReceiveTagged,
                completion.qpn,
            )
        };
        match (&space, header.operation) {
            (None, _) => matched.status = CompletionStatus::LocalProtection,
            (Some(space), _) if space.total() < u64::from(length) => {
                matched.status = CompletionStatus::LocalLength;
            }
            (Some(space), TagOperation::Eager) => {
                let mut bytes = vec![0; length as usize];
                let from = Gather::new(sges.as_slice(), TagHeader::LEN as u32, length);
                let moved = self.memory.copy_out(&from, &mut bytes);
                match moved.and_then(|()| scatter(&mut self.memory, space, 0, Bytes::of(&bytes))) {
                    Ok(()) => matched.flags.tags = TagFlags(TagFlags::MATCHED.0 | TagFlags::DATA_VALID.0),
                    Err(MemoryLost) => matched.status = CompletionStatus::LocalProtection,
                }
            }
            (Some(_), _) => {
                let remote =
                    rendezvous.map_or(Remote::default(), |at| Remote { va: at.va, rkey: RemoteKey(at.rkey) });
                let begun = self.begin_transfer(tags.cq, completion.qpn, &buffer, &header, remote, length);
                if begun.is_err() {
                    matched.status = CompletionStatus::LocalQpOperation;
                }
            }
        }
        // The application has not seen a completion of the receive, so it may be used again.
        let again = RecvWr { wr_id: receive.wr_id, sges: receive.sges.as_slice() };
        let _ = post(&mut self.rnic, srq, Some(tags), &again);
        Cqe { completion: matched, tag: header.tag, tag_context: header.context }
    }

    /// Reads a message from where it lies, and tells its sender when that is done.
    fn begin_transfer(
        &mut self,
        cq: CqId,
        qpn: Qpn,
        buffer: &TaggedBuffer,
        header: &TagHeader,
        remote: Remote,
        length: u32,
    ) -> Result<(), PostError> {
        let is_it = |(_, qp): &(u32, &QpEnds)| qp.qpn == qpn;
        let index = self.qps.iter().find(is_it).map(|(index, _)| index).ok_or(PostError::NoSuchQueue)?;
        let number = OWN | u64::from(self.transfers.begun) << 1 & !OWN_MASK;
        self.transfers.begun = self.transfers.begun.wrapping_add(1);
        let mut left = length;
        let mut sges = buffer.sges.as_slice().to_vec();
        for sge in &mut sges {
            sge.length = sge.length.min(left);
            left -= sge.length;
        }
        self.transfers.reads.insert(number, Transfer { qpn, cq, wr_id: buffer.wr_id });
        let posted = self.post_send(index, &SendWr::new(number, Operation::Read(remote), &sges), None);
        if posted.is_err() {
            self.transfers.reads.remove(&number);
            return posted;
        }
        let mut finished = [0; TagHeader::LEN];
        TagHeader { operation: TagOperation::Finished, ..*header }.emit(&mut finished);
        let flags = SendFlags { fence: true, ..SendFlags::default() };
        let wr = SendWr { flags, ..SendWr::new(number | 1, Operation::Send, &[]) };
        let told = self.post_send(index, &wr, Some(&finished));
        // What was posted leaves with the next turn, which is due at once.
        (self.turn.posted, self.turn.more_to_send) = (true, true);
        told
    }

    /// The end of a request of the engine's own.
    fn take_own(&mut self, completion: &Completion) -> bool {
        if completion.wr_id & OWN_MASK != OWN {
            return false;
        }
        if completion.wr_id & 1 == 1 {
            // The sender was told, or will never be: that is the transfer's own end to say.
            return true;
        }
        let Some(transfer) = self.transfers.reads.remove(&completion.wr_id) else { return false };
        let tags = if completion.status == CompletionStatus::Success {
            TagFlags::DATA_VALID
        } else {
            TagFlags::NONE
        };
        let shown = Completion {
            wr_id: transfer.wr_id,
            operation: CompletionOp::ReceiveTagged,
            flags: CompletionFlags { tags, ..CompletionFlags::default() },
            ..*completion
        };
        show(&mut self.cqs, transfer.cq, &shown.into());
        true
    }

    /// Forgets what was under way through a queue pair that goes.
    pub(super) fn forget_transfers(&mut self, qpn: Qpn) {
        self.transfers.reads.retain(|_, transfer| transfer.qpn != qpn);
    }

    /// Keys turned into addresses.
    fn translate(&self, pd: Pd, sges: &[Sge], writes: bool) -> Option<SgeList> {
        let mut list = SgeList::from(sges);
        for sge in list.as_mut_slice().iter_mut().filter(|sge| sge.length > 0) {
            sge.addr = self.rnic.regions().check_local(pd, sge.lkey, sge.addr, sge.length, writes).ok()?;
            sge.lkey = LocalKey::default();
        }
        Some(list)
    }
}

/// Puts a completion into a queue.
fn show(cqs: &mut [Option<CqSink>], cq: CqId, cqe: &Cqe) {
    let Some(Some(sink)) = cqs.get_mut(cq.0 as usize) else { return };
    sink.is_touched = true;
    if sink.ring.push(cqe).is_err() {
        sink.is_overrun = true;
    }
}
