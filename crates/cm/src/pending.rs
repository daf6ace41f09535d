//! Requests for the queue pair of a datagram service, on both sides.

use highwire_stdx::{Duration, Instant};
use highwire_verbs::Gid;
use highwire_wire::cm::CmMad;

/// A request that this end sent.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) peer: Gid,
    pub(crate) question: Box<CmMad>,
    pub(crate) repeats: u8,
    pub(crate) pause: Duration,
    /// How often the peer has refused because it does not provide the service, and was not believed.
    pub(crate) refusals: u32,
    pub(crate) deadline: Option<Instant>,
}

/// A request that this end received.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(crate) peer: Gid,
    /// The peer's identifier of the request.
    pub(crate) request_id: u32,
    pub(crate) service_id: u64,
    pub(crate) transaction: u64,
    /// The answer, kept for a while in case the peer asks again.
    pub(crate) answer: Option<Box<CmMad>>,
    pub(crate) deadline: Option<Instant>,
}
