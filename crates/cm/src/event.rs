//! Events for the application.

use highwire_verbs::Gid;
use highwire_wire::cm::{Rej, Rep, Req, SidrRep, SidrReq};

use crate::CommId;

/// An event for the application. Messages are boxed: they are as large as a MAD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A peer asks for a connection; `accept` or `reject` it.
    Requested {
        /// The connection's identifier here.
        id: CommId,
        /// The requester's address.
        from: Gid,
        /// The request.
        request: Box<Req>,
        /// Options of the enhanced connection establishment.
        ece_options: u32,
    },
    /// The peer accepted; `establish` the connection or `reject` it.
    Replied {
        /// The connection.
        id: CommId,
        /// The reply.
        reply: Box<Rep>,
        /// Options of the enhanced connection establishment.
        ece_options: u32,
    },
    /// The peer is ready: the connection that was accepted is in use.
    Established {
        /// The connection.
        id: CommId,
    },
    /// The peer refused.
    Rejected {
        /// The connection, which is over.
        id: CommId,
        /// The refusal.
        reject: Box<Rej>,
    },
    /// The peer did not answer, however often the request was repeated.
    Unreachable {
        /// The connection, which is over.
        id: CommId,
    },
    /// The connection has ended.
    Disconnected {
        /// The connection.
        id: CommId,
        /// The side that ended it.
        cause: DisconnectCause,
    },
    /// No message of an ended connection can arrive any more.
    TimewaitExited {
        /// The connection, which is forgotten with this event.
        id: CommId,
    },
    /// A peer asks for the queue pair of a datagram service; `answer_service` it.
    ServiceRequested {
        /// The request's identifier here.
        id: CommId,
        /// The requester's address.
        from: Gid,
        /// The request.
        request: Box<SidrReq>,
    },
    /// The peer has answered a request for a datagram service's queue pair, in either way.
    ServiceAnswered {
        /// The request, which is forgotten with this event.
        id: CommId,
        /// The answer.
        reply: Box<SidrRep>,
    },
    /// A request for a datagram service's queue pair got no answer.
    ServiceUnreachable {
        /// The request, which is forgotten with this event.
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
    /// The conversation to which the event belongs.
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
