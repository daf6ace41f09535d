//! The engine's ends of the queues.

use super::places::Places;
use crate::events::Reporter;
use crate::receive_room::ReceiveRoom;
use highwire_rings::{BadWqe, CompletionQueueProducer, MAX_SGES, ReceiveQueueConsumer, SendQueueConsumer};
use highwire_verbs::{
    Completion, CompletionOp, CompletionStatus, CqId, Gid, LocalKey, PostError, RecvWr, Sge, SrqId,
};
use highwire_wire::Qpn;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The queues that a doorbell belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bell {
    /// Both queues of a queue pair.
    Pair(u32),
    Shared(u32),
}

/// The engine's ends of a queue pair.
pub(crate) struct QpEnds {
    pub(crate) qpn: Qpn,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) sq: SendQueueConsumer,
    pub(crate) rq: Option<ReceiveQueueConsumer>,
    pub(crate) inline: InlineArena,
    /// The engine has said that it holds receives; only of those whose receives wait in the ring.
    pub(crate) holds: bool,
    /// Where a request keeps its place until the program has taken a completion.
    pub(crate) places: Option<Box<Places>>,
    /// The places of its own receive queue, where they are counted.
    pub(crate) room: Option<Arc<ReceiveRoom>>,
    /// The shared receive queue, by its index here.
    pub(crate) srq: Option<u32>,
    /// Where its events go.
    pub(crate) reporter: Reporter,
    /// The connected peer.
    pub(crate) peer: Option<(Gid, Qpn)>,
}

/// The engine's end of a shared receive queue.
pub(crate) struct SrqEnds {
    pub(crate) id: SrqId,
    pub(crate) rq: ReceiveQueueConsumer,
    pub(crate) room: Arc<ReceiveRoom>,
    /// Where its events go.
    pub(crate) reporter: Reporter,
}

/// Wakes the threads and tasks that wait for a completion queue.
pub(crate) trait Notify: Send + Sync {
    /// Before CQEs are shown: the number of CQEs written since the ring was made, up to the last one that
    /// also wakes a program that asked for solicited messages alone.
    fn note_urgent(&self, urgent: u64);
    /// A completion has come for which the queue was armed; so many CQEs have been shown. Called with the lane's token. True if an event was
    /// reported on the queue's channel.
    fn notify(&self, shown: u64) -> bool;
    /// Which threads wait for the queue.
    fn look(&self) -> Waiters;
    /// Wakes the threads that wait for it. Called after [`notify`](Self::notify) with its result, without the lane's token: a thread that is
    /// woken may have the core at once, and then needs the token.
    fn wake(&self, has_reported: bool);
}

/// The threads that wait for a completion queue, as far as that can be seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiters {
    /// Polls in a row that have found nothing.
    pub(crate) empty_polls: u32,
    /// The channel that it reports to.
    pub(crate) channel: Option<ChannelLook>,
}

/// A completion queue's relation to its channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelLook {
    pub(crate) fd: RawFd,
    /// An event was asked for, and has not come.
    pub(crate) is_armed: bool,
    /// An event was asked for at least once.
    pub(crate) was_armed: bool,
    /// An event of the queue waits in the channel.
    pub(crate) has_event: bool,
    /// A thread blocks in the channel.
    pub(crate) is_waited_at: bool,
}

/// The engine's end of a completion queue.
pub(crate) struct CqSink {
    pub(crate) ring: CompletionQueueProducer,
    pub(crate) notifier: Arc<dyn Notify>,
    /// Where its events go.
    pub(crate) reporter: Reporter,
    /// The application has asked for events at least once, so the engine looks for threads to wake.
    pub(crate) has_events: bool,
    /// It has completions that are not shown yet.
    pub(crate) is_touched: bool,
    pub(crate) is_overrun: bool,
}

/// Where inline data stays until its request is done: one place more than the queue has, so that the next request's
/// place is free even while the queue is full.
pub(crate) struct InlineArena {
    bytes: Box<[u8]>,
    place_bytes: usize,
    next: usize,
}

impl InlineArena {
    pub(crate) fn new(max_send_wr: u32, max_inline: u32) -> InlineArena {
        let place_bytes = (max_inline as usize).next_multiple_of(64);
        InlineArena { bytes: vec![0; place_bytes * (max_send_wr as usize + 1)].into(), place_bytes, next: 0 }
    }

    /// Whether a place holds so many bytes.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.place_bytes
    }

    /// Copies `data` to the next place and says where; [`advance`](Self::advance) keeps it.
    pub(super) fn put(&mut self, data: &[u8]) -> Option<Sge> {
        let place = self.bytes.get_mut(self.next..self.next + data.len())?;
        if data.len() > self.place_bytes {
            return None;
        }
        place.copy_from_slice(data);
        Some(Sge { addr: place.as_ptr() as u64, length: data.len() as u32, lkey: LocalKey::default() })
    }

    /// The request that the last `put` was for is in the queue. Called for requests without inline data as well: the
    /// places go round with the queue.
    pub(super) fn advance(&mut self) {
        self.next += self.place_bytes;
        if self.next >= self.bytes.len() {
            self.next = 0;
        }
    }
}

pub(super) struct Fetched {
    pub(super) taken: u32,
    pub(super) is_full: bool,
}

/// Takes receives out of a ring until it is empty or the queue behind it is full.
pub(super) fn fetch(
    ring: &mut ReceiveQueueConsumer,
    mut post: impl FnMut(&RecvWr<'_>) -> Result<(), PostError>,
    mut refuse: impl FnMut(u64, PostError),
) -> Fetched {
    let mut fetched = Fetched { taken: 0, is_full: false };
    let mut buffer = [Sge::default(); MAX_SGES];
    while let Ok(Some(slot)) = ring.peek() {
        match slot.request(&mut buffer) {
            Err(BadWqe { wr_id, .. }) => refuse(wr_id, PostError::TooManySges),
            Ok(wr) => match post(&wr) {
                Ok(()) => {}
                Err(PostError::QueueFull) => {
                    fetched.is_full = true;
                    break;
                }
                Err(error) => refuse(wr.wr_id, error),
            },
        }
        ring.advance();
        fetched.taken += 1;
    }
    ring.release();
    fetched
}

/// The completion of a request that lay in a ring and that the RNIC did not take.
pub(super) fn refused(wr_id: u64, qpn: Qpn, operation: CompletionOp, error: PostError) -> Completion {
    let status = match error {
        PostError::TooLong | PostError::TooShort => CompletionStatus::LocalLength,
        PostError::WrongState => CompletionStatus::Flushed,
        _ => CompletionStatus::LocalQpOperation,
    };
    Completion::new(wr_id, status, operation, qpn)
}
