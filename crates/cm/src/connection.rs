//! One end's memory of a connection.

use highwire_stdx::{Duration, Instant};
use highwire_verbs::Gid;
use highwire_wire::Qpn;
use highwire_wire::cm::CmMad;

use crate::table::State;

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    /// The other end.
    pub(crate) peer: Gid,
    /// The peer's identifier of the connection; unknown until its first message.
    pub(crate) remote_id: Option<u32>,
    /// The peer's queue pair; unknown until its first message.
    pub(crate) remote_qpn: Option<Qpn>,
    /// This end's queue pair; unknown until the application accepts.
    pub(crate) local_qpn: Option<Qpn>,
    /// The transaction that REQ, REP, RTU, REJ and MRA belong to.
    pub(crate) transaction: u64,
    /// The transaction of this end's DREQ, be it to end the connection or to ask whether the peer still knows it.
    pub(crate) dreq_transaction: Option<u64>,
    /// The service, if this end requested the connection.
    pub(crate) asked: Option<u64>,
    /// The last message, which the peer may have missed: repeated at the deadline, or when the peer repeats
    /// its own.
    pub(crate) last: Option<Box<CmMad>>,
    /// How often the timer has repeated `last`.
    pub(crate) repeats: u8,
    /// The pause before the next repetition.
    pub(crate) pause: Duration,
    /// How often the peer has refused because it has no listener, and was not believed.
    pub(crate) refusals: u32,
    /// When to repeat or to give up, or when the connection is forgotten.
    pub(crate) deadline: Option<Instant>,
    /// Until when the peer has asked for patience: until then repetitions do not count.
    pub(crate) patience: Option<Instant>,
    /// Whether the application has released the connection: it gets no more events.
    pub(crate) is_released: bool,
}

impl Connection {
    pub(crate) fn new(state: State, peer: Gid, transaction: u64) -> Connection {
        Connection {
            state,
            peer,
            remote_id: None,
            remote_qpn: None,
            local_qpn: None,
            transaction,
            dreq_transaction: None,
            asked: None,
            last: None,
            repeats: 0,
            pause: Duration::ZERO,
            refusals: 0,
            deadline: None,
            patience: None,
            is_released: false,
        }
    }

    /// The peer's identifier, or the zero that stands for "none" in a message.
    pub(crate) fn remote_id_or_zero(&self) -> u32 {
        self.remote_id.unwrap_or(0)
    }
}
