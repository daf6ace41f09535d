//! An endpoint's knowledge of a peer: its own slots as requester, and the peer's as responder.
//!
//! At most one batch occupies a slot at a time, so one sequence number and one kept response per slot are all that
//! at-most-once needs.

use crate::parts::{PartsIn, PartsOut};
use highwire_stdx::Instant;
use highwire_verbs::Datagram;
use std::collections::VecDeque;

/// Whether batches can be sent to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Greeted {
    /// No greeting was sent yet.
    No,
    /// A greeting is on its way.
    Asking { since: Instant, again_at: Instant, times: u32 },
    /// The peer has answered with its incarnation.
    Yes { incarnation: u64 },
}

/// A slot in which this endpoint is the requester.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequesterSlot {
    /// The sequence of the last batch.
    pub(crate) sequence: u32,
    /// The flight that occupies it.
    pub(crate) flight: Option<u32>,
}

/// The state of a slot's last batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    /// There was no batch yet.
    Nothing,
    /// Some parts have arrived.
    Receiving,
    /// Handlers are at work.
    Working,
    /// The responder keeps its response.
    Done,
    /// The batch could not be executed, and no response is kept.
    Refused,
}

/// A slot in which this endpoint is the responder.
#[derive(Debug)]
pub(crate) struct ResponderSlot {
    pub(crate) sequence: u32,
    pub(crate) served: Served,
    pub(crate) count: u8,
    /// The response with its header, kept until the slot's next batch.
    pub(crate) response: Vec<u8>,
    pub(crate) parts_in: Option<Box<PartsIn>>,
    pub(crate) parts_out: Option<Box<PartsOut>>,
    /// The response is in the outbox already.
    pub(crate) is_queued: bool,
    /// A report of progress is in the outbox already.
    pub(crate) reports: bool,
}

impl ResponderSlot {
    fn new() -> ResponderSlot {
        ResponderSlot {
            sequence: 0,
            served: Served::Nothing,
            count: 0,
            response: Vec::new(),
            parts_in: None,
            parts_out: None,
            is_queued: false,
            reports: false,
        }
    }
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) to: Option<Datagram>,
    pub(crate) greeted: Greeted,
    /// The peer's last challenge, which the next greeting answers; 0: none.
    pub(crate) challenge: u32,
    /// The low half of the peer's incarnation, from its answer.
    pub(crate) tag: u32,
    /// The longest datagram that both ends can take.
    pub(crate) datagram_bytes: u16,
    pub(crate) requester: Vec<RequesterSlot>,
    /// Slots without a batch; the last one freed is used first, because it is still in the cache.
    pub(crate) free: Vec<u8>,
    /// How many slots may be used now.
    pub(crate) granted: u16,
    /// Flights without a slot.
    pub(crate) waiting: VecDeque<u32>,
    /// When the peer's last datagram arrived.
    pub(crate) heard: Instant,
    /// The incarnation with which the peer introduced itself as a requester.
    pub(crate) introduced: Option<u64>,
    pub(crate) responder: Vec<ResponderSlot>,
}

impl Peer {
    pub(crate) fn new(to: Option<Datagram>, datagram_bytes: u16) -> Peer {
        Peer {
            to,
            greeted: Greeted::No,
            challenge: 0,
            tag: 0,
            datagram_bytes,
            requester: Vec::new(),
            free: Vec::new(),
            granted: 0,
            waiting: VecDeque::new(),
            heard: Instant::ZERO,
            introduced: None,
            responder: Vec::new(),
        }
    }

    /// Uses this many slots from now on. Slots beyond that are no longer handed out; sequences go on where
    /// they were.
    pub(crate) fn grant(&mut self, slots: u16) {
        while self.requester.len() < usize::from(slots) {
            self.requester.push(RequesterSlot { sequence: 0, flight: None });
        }
        self.granted = slots;
        self.free.clear();
        let idle = (0..slots).rev().filter(|&i| self.requester[usize::from(i)].flight.is_none());
        self.free.extend(idle.map(|i| i as u8));
    }

    /// Notes that a new incarnation of the peer is a requester: datagrams of earlier incarnations no longer
    /// count.
    pub(crate) fn introduce(&mut self, incarnation: u64, slots: u16) {
        if self.introduced != Some(incarnation) {
            self.responder.clear();
            self.introduced = Some(incarnation);
        }
        while self.responder.len() < usize::from(slots) {
            self.responder.push(ResponderSlot::new());
        }
    }

    /// The low half of the incarnation that introduced itself.
    pub(crate) fn introduced_tag(&self) -> Option<u32> {
        self.introduced.map(|incarnation| incarnation as u32)
    }
}
