//! The requests of one side of one connection, their required effects, and the receives that wait for them.

use highwire_stdx::Instant;
use highwire_verbs::{Datagram, Operation, SendFlags, Sge};
use highwire_wire::Qpn;
use std::ops::Range;

/// Runs of memory that together hold a message, in order.
pub(crate) type Spans = Vec<Range<u64>>;

/// The required effect of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// `data` in the peer's next receive.
    Deliver,
    /// `data` at `target`; with immediate data also a receive.
    Write { target: u64 },
    /// `data` in the local spans.
    Read,
    /// An atomic on a word that this flow alone changes: `before` comes back.
    OwnWord { before: u64 },
    /// An atomic on a word that other flows change, too.
    SharedWord { add: u64 },
    /// Nothing on the wire.
    Local,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub operation: Operation,
    pub flags: SendFlags,
    pub sges: Vec<Sge>,
    pub spans: Spans,
    pub data: Vec<u8>,
    pub effect: Effect,
    pub datagram: Option<Datagram>,
    pub post_at: Instant,
}

impl Request {
    pub(crate) fn consumes_receive(&self) -> bool {
        self.operation.consumes_receive()
    }
}

/// The requests of one side.
pub(crate) struct Flow {
    pub connection: usize,
    pub node: usize,
    pub qpn: Qpn,
    pub peer_node: usize,
    pub requests: Vec<Request>,
    pub posted: usize,
    pub completed: usize,
    /// How many requests succeeded, once the connection is broken.
    pub succeeded: usize,
    /// An error completion was seen.
    pub broken: bool,
    /// The next request that must arrive as a receive (RC), or the least that still may (UC).
    pub next_arrival: usize,
    /// How often each request arrived.
    pub arrivals: Vec<u32>,
    /// The word that only this flow changes, and its values over time: one more than there are atomics on it.
    pub own_word: u64,
    pub own_values: Vec<u64>,
}

/// A receive.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub sges: Vec<Sge>,
    pub spans: Spans,
    pub post_at: Instant,
    /// The bytes that it got, once it has completed.
    pub filled: Option<Vec<u8>>,
}

/// A receive queue: one queue pair's, or a node's shared one.
pub(crate) struct Receives {
    pub node: usize,
    pub qpn: Qpn,
    pub srq: Option<highwire_verbs::SrqId>,
    pub list: Vec<Receive>,
    pub posted: usize,
    pub completed: usize,
    /// Whether its contents follow from the requests: each arrived exactly once and in order.
    pub is_exact: bool,
}
