//! What the application is told.

use highwire_verbs::Gid;
use highwire_wire::cm::{Rej, Rep, Req, SidrRep, SidrReq};

use crate::CommId;

/// Something that the application should know. Messages are boxed: they are as large as a MAD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A peer asks for a connection; `accept` or `reject` it.
    Requested {
        /// The connection's identifier here.
        id: CommId,
        /// The address that asks.
        from: Gid,
        /// For what.
        request: Box<Req>,
        /// Options of the enhanced connection establishment.
        ece_options: u32,
    },
    /// The peer accepted; `establish` the connection or `reject` it.
    Replied {
        /// The connection.
        id: CommId,
        /// With what.
        reply: Box<Rep>,
        /// Options of the enhanced connection establishment.
        ece_options: u32,
    },
    /// The peer is ready: the connection that was accepted is in use.
    Established {
        /// The connection.
        id: CommId,
    },
    /// The peer said no.
    Rejected {
        /// The connection, which is over.
        id: CommId,
        /// Why.
        reject: Box<Rej>,
    },
    /// The peer did not answer, however often it was asked.
    Unreachable {
        /// The connection, which is over.
        id: CommId,
    },
    /// The connection has ended.
    Disconnected {
        /// The connection.
        id: CommId,
        /// Which side wanted it.
        cause: DisconnectCause,
    },
    /// Nothing of an ended connection can arrive any more.
    TimewaitExited {
        /// The connection, which is forgotten with this event.
        id: CommId,
    },
    /// A peer asks for the queue pair of a datagram service; `answer_service` it.
    ServiceRequested {
        /// The question's identifier here.
        id: CommId,
        /// The address that asks.
        from: Gid,
        /// For what.
        request: Box<SidrReq>,
    },
    /// A question for a datagram service's queue pair is answered, one way or the other.
    ServiceAnswered {
        /// The question, which is forgotten with this event.
        id: CommId,
        /// How.
        reply: Box<SidrRep>,
    },
    /// A question for a datagram service's queue pair got no answer.
    ServiceUnreachable {
        /// The question, which is forgotten with this event.
        id: CommId,
    },
}

/// Which side ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DisconnectCause {
    /// The peer asked for it; it has its answer already.
    Peer,
    /// This end asked for it and the peer answered.
    Answered,
    /// This end asked for it and the peer is silent.
    Silence,
    /// The peer no longer knows the connection, or has replaced it by another.
    Stale,
}

impl Event {
    /// The conversation that the event belongs to.
    pub fn id(&self) -> CommId {
        match *self {
            Event::Requested { id, .. }
            | Event::Replied { id, .. }
            | Event::Established { id }
            | Event::Rejected { id, .. }
            | Event::Unreachable { id }
            | Event::Disconnected { id, .. }
            | Event::TimewaitExited { id }
            | Event::ServiceRequested { id, .. }
            | Event::ServiceAnswered { id, .. }
            | Event::ServiceUnreachable { id } => id,
        }
    }
}
