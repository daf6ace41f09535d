//! Tag matching: messages to a shared receive queue with tags are matched before the application sees them.
//!
//! A message arrives in an ordinary receive of the queue. If a tagged buffer waits for it, the RNIC moves it
//! there and posts the receive again; the application sees neither. For a rendezvous, the queue pair READs
//! the message from the sender's memory, and then notifies the sender behind a fence: both are requests that
//! the driver posts as it posts all others.

mod transfer;

pub use transfer::Transfer;
pub(crate) use transfer::Transfers;

use crate::objects::CreateError;
use crate::rnic::Rnic;
use highwire_stdx::Slab;
use highwire_transport::ReceiveQueue;
use highwire_verbs::{
    Completion, CompletionFlags, CompletionOp, CompletionStatus, CqId, Gather, LocalKey, LocalMemory, Pd,
    PostError, RecvWr, Regions, Remote, RemoteKey, Sge, SgeList, SrqId, TagFlags, TagHandle, TagList,
    TagRequest, TaggedBuffer,
};
use highwire_wire::{Qpn, Rendezvous, TagHeader, TagOperation};

/// The tags of a shared receive queue.
#[derive(Clone, Debug)]
pub(crate) struct Tags {
    list: TagList,
    /// The queue in which all requests of the list complete.
    cq: CqId,
    pd: Pd,
    /// Receives that the application has posted, by their numbers in the queue.
    receives: Slab<Receive>,
}

#[derive(Clone, Debug)]
struct Receive {
    wr_id: u64,
    sges: SgeList,
}

/// What the application sees of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The same completion, in the same queue.
    AsItIs,
    /// Another completion.
    Instead {
        /// Its queue.
        cq: CqId,
        /// The completion.
        completion: Completion,
        /// The message's tag, and the sender's 32 bits beside it; zero if no tagged buffer was waiting.
        tag: u64,
        /// The sender's 32 bits.
        tag_context: u32,
    },
    /// Nothing.
    Nothing,
}

/// A message that has a tag.
struct Message {
    header: TagHeader,
    content: Content,
    length: u32,
}

/// The place of a message.
enum Content {
    /// Behind its tag, in a receive of the queue.
    Eager(SgeList),
    /// In the sender's memory.
    Rendezvous(Remote),
}

impl Rnic {
    /// Makes a shared receive queue that matches tags: its list holds `tags` buffers, and all its requests
    /// complete in `cq`.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_tagged_srq(
        &mut self,
        pd: Pd,
        cq: CqId,
        tags: u32,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SrqId, CreateError> {
        if !self.cqs.contains_key(&cq) {
            return Err(CreateError::NoSuchCq);
        }
        let srq = self.create_srq(pd, max_wr, max_sge)?;
        *self.cqs.entry(cq).or_default() += 1;
        self.tags.insert(srq, Tags { list: TagList::new(tags), cq, pd, receives: Slab::default() });
        Ok(srq)
    }

    /// Removes the tags of a shared receive queue that goes.
    pub(crate) fn forget_tags(&mut self, srq: SrqId) {
        let cq = self.tags.remove(&srq).map(|tags| tags.cq);
        if let Some(uses) = cq.and_then(|cq| self.cqs.get_mut(&cq)) {
            *uses -= 1;
        }
    }

    /// Adds a tagged buffer to a queue's list.
    ///
    /// # Errors
    /// [`PostError::QueueFull`]; [`PostError::NoSuchQueue`] if the queue does not match tags.
    pub fn add_tag(
        &mut self,
        srq: SrqId,
        buffer: TaggedBuffer,
        request: &TagRequest,
    ) -> Result<TagHandle, PostError> {
        let tags = self.tags.get_mut(&srq).ok_or(PostError::NoSuchQueue)?;
        if let Some(unexpected) = request.unexpected {
            tags.list.sync(unexpected);
        }
        let handle = tags.list.add(buffer).ok_or(PostError::QueueFull)?;
        self.finish_tags(srq, request, CompletionOp::AddTag, CompletionStatus::Success);
        Ok(handle)
    }

    /// Takes a tagged buffer back. If a message took it first, the completion says so.
    ///
    /// # Errors
    /// [`PostError::NoSuchQueue`] if the queue does not match tags.
    pub fn remove_tag(
        &mut self,
        srq: SrqId,
        handle: TagHandle,
        request: &TagRequest,
    ) -> Result<(), PostError> {
        let tags = self.tags.get_mut(&srq).ok_or(PostError::NoSuchQueue)?;
        let removed = tags.list.remove(handle);
        let status = if removed.is_some() { CompletionStatus::Success } else { CompletionStatus::Tag };
        self.finish_tags(srq, request, CompletionOp::RemoveTag, status);
        Ok(())
    }

    /// Tells the list how many unexpected messages the application knows of.
    ///
    /// # Errors
    /// [`PostError::NoSuchQueue`] if the queue does not match tags, [`PostError::Unsupported`] if the request names no number.
    pub fn sync_tags(&mut self, srq: SrqId, request: &TagRequest) -> Result<(), PostError> {
        let tags = self.tags.get_mut(&srq).ok_or(PostError::NoSuchQueue)?;
        tags.list.sync(request.unexpected.ok_or(PostError::Unsupported)?);
        self.finish_tags(srq, request, CompletionOp::SyncTags, CompletionStatus::Success);
        Ok(())
    }

    fn finish_tags(
        &mut self,
        srq: SrqId,
        request: &TagRequest,
        operation: CompletionOp,
        status: CompletionStatus,
    ) {
        let Some(tags) = self.tags.get(&srq) else { return };
        if request.signaled || status != CompletionStatus::Success {
            let mut done = Completion::new(request.wr_id, status, operation, Qpn::default());
            done.flags.tags = if tags.list.is_synced() { TagFlags::NONE } else { TagFlags::SYNC_NEEDED };
            self.completions.push_back((tags.cq, done));
        }
    }

    /// Posts a receive to a queue that may have tags.
    #[cold]
    pub(crate) fn post_tagged_recv(&mut self, srq: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let queue = self.shared.get_mut(srq.0).ok_or(PostError::NoSuchQueue)?;
        match self.tags.get_mut(&srq) {
            Some(tags) => tags.post(queue, wr),
            None => queue.post(wr),
        }
    }

    /// Whether any queue matches tags: the driver then asks [`match_tags`](Self::match_tags) about every completion.
    #[inline]
    pub fn has_tags(&self) -> bool {
        !self.tags.is_empty()
    }

    /// What the application sees of a completion that [`poll_completion`](Self::poll_completion) has just
    /// given. The driver asks once for each, in their order; afterwards it asks for
    /// [transfers](Self::next_transfer).
    #[cold]
    pub fn match_tags(&mut self, completion: &Completion, memory: &mut impl LocalMemory) -> Seen {
        let srq = self.qp(completion.qpn).and_then(|qp| qp.config().srq);
        let Rnic { regions, shared, tags, transfers, .. } = self;
        let Some(srq) = srq else { return Seen::AsItIs };
        let (Some(tags), Some(queue)) = (tags.get_mut(&srq), shared.get_mut(srq.0)) else {
            return Seen::AsItIs;
        };
        if matches!(completion.operation, CompletionOp::Receive | CompletionOp::ReceiveWriteImm) {
            tags.match_receive(queue, &mut Lent { regions, transfers, memory }, completion)
        } else {
            transfers.take(completion)
        }
    }
}

/// The RNIC's other parts, and the driver's memory, while a message is matched.
struct Lent<'a, M> {
    regions: &'a Regions,
    transfers: &'a mut Transfers,
    memory: &'a mut M,
}

impl Tags {
    /// Posts a receive under a number that leads back to it.
    fn post(&mut self, queue: &mut ReceiveQueue, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let number = self.receives.insert(Receive { wr_id: wr.wr_id, sges: wr.sges.into() });
        let posted = queue.post(&RecvWr { wr_id: u64::from(number), ..*wr });
        if posted.is_err() {
            self.receives.remove(number);
        }
        posted
    }

    fn match_receive(
        &mut self,
        queue: &mut ReceiveQueue,
        lent: &mut Lent<'_, impl LocalMemory>,
        completion: &Completion,
    ) -> Seen {
        let Some(receive) = self.receives.remove(completion.wr_id as u32) else { return Seen::AsItIs };
        let shown = Completion { wr_id: receive.wr_id, ..*completion };
        let instead =
            |completion: Completion| Seen::Instead { cq: self.cq, completion, tag: 0, tag_context: 0 };
        if completion.status != CompletionStatus::Success || completion.operation != CompletionOp::Receive {
            return instead(shown);
        }
        let sges = receive.sges.as_slice();
        let message = match lent.read(self.pd, sges, completion.byte_len) {
            Ok(Some(message)) => message,
            Ok(None) => return instead(Completion { operation: CompletionOp::ReceiveNoTag, ..shown }),
            Err(status) => return instead(Completion { status, ..shown }),
        };
        let Some(buffer) = self.list.take(message.header.tag) else {
            self.list.note_unexpected();
            return instead(Completion { operation: CompletionOp::ReceiveTagged, ..shown });
        };
        let (status, tags) = match lent.fill(self, &buffer, &message, completion.qpn) {
            Ok(is_there) if is_there => (CompletionStatus::Success, TagFlags::DATA_VALID.0),
            Ok(_) => (CompletionStatus::Success, 0),
            Err(status) => (status, 0),
        };
        // The application has not seen a completion of the receive, so the queue may use it again.
        let _ = self.post(queue, &RecvWr { wr_id: receive.wr_id, sges });
        let completion = Completion {
            byte_len: message.length,
            flags: CompletionFlags {
                tags: TagFlags(TagFlags::MATCHED.0 | tags),
                ..CompletionFlags::default()
            },
            ..Completion::new(buffer.wr_id, status, CompletionOp::ReceiveTagged, completion.qpn)
        };
        let TagHeader { tag, context, .. } = message.header;
        Seen::Instead { cq: self.cq, completion, tag, tag_context: context }
    }
}

impl<M: LocalMemory> Lent<'_, M> {
    /// Reads the tag of a message of `byte_len` bytes; `None` if it has none.
    fn read(&self, pd: Pd, sges: &[Sge], byte_len: u32) -> Result<Option<Message>, CompletionStatus> {
        let place = self.translate(pd, sges, false)?;
        let mut head = [0; TagHeader::LEN + Rendezvous::LEN];
        let known = byte_len.min(head.len() as u32);
        self.memory
            .copy_out(&Gather::new(place.as_slice(), 0, known), &mut head[..known as usize])
            .map_err(|_| CompletionStatus::LocalProtection)?;
        let (first, second) = head.split_at(TagHeader::LEN);
        let Some(header) = first.first_chunk().and_then(TagHeader::parse) else { return Ok(None) };
        let content = match header.operation {
            TagOperation::Eager if known as usize >= TagHeader::LEN => {
                Some((Content::Eager(place), byte_len - TagHeader::LEN as u32))
            }
            TagOperation::Rendezvous if known as usize == head.len() => second.first_chunk().map(|second| {
                let Rendezvous { va, rkey, length } = Rendezvous::parse(second);
                (Content::Rendezvous(Remote { va, rkey: RemoteKey(rkey) }), length)
            }),
            _ => None,
        };
        Ok(content.map(|(content, length)| Message { header, content, length }))
    }

    /// Moves a message into the buffer that waited for it, or has it fetched; returns whether it is there
    /// now.
    fn fill(
        &mut self,
        tags: &Tags,
        buffer: &TaggedBuffer,
        message: &Message,
        qpn: Qpn,
    ) -> Result<bool, CompletionStatus> {
        let space = self.translate(tags.pd, buffer.sges.as_slice(), true)?;
        let length = message.length;
        if space.total() < u64::from(length) {
            return Err(CompletionStatus::LocalLength);
        }
        let place = match &message.content {
            Content::Eager(place) => place,
            Content::Rendezvous(remote) => {
                self.transfers.begin(tags.cq, qpn, buffer, message, *remote);
                return Ok(false);
            }
        };
        let from = Gather::new(place.as_slice(), TagHeader::LEN as u32, length);
        self.memory
            .copy_within(&from, &Gather::new(space.as_slice(), 0, length))
            .map(|()| true)
            .map_err(|_| CompletionStatus::LocalProtection)
    }

    /// Translates keys into addresses.
    fn translate(&self, pd: Pd, sges: &[Sge], writes: bool) -> Result<SgeList, CompletionStatus> {
        let mut list = SgeList::from(sges);
        for sge in list.as_mut_slice().iter_mut().filter(|sge| sge.length > 0) {
            sge.addr = self
                .regions
                .check_local(pd, sge.lkey, sge.addr, sge.length, writes)
                .map_err(|_| CompletionStatus::LocalProtection)?;
            sge.lkey = LocalKey::default();
        }
        Ok(list)
    }
}
