//! Why a call has no response.

use crate::Node;
use std::fmt;

/// Why a call has no response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// No such node was added.
    NoSuchNode(Node),
    /// The request, or its batch, is longer than this node can send or the peer takes.
    TooLong,
    /// The peer has no handler for this type.
    NoSuchType,
    /// The peer is of another configuration, and did not execute the request.
    Fenced,
    /// The peer's handler failed, or made a response that is too long.
    HandlerFailed,
    /// The peer has no room for another nested handler.
    Overloaded,
    /// The peer was silent for too long. It may have executed the request.
    PeerSilent(Node),
    /// The peer has restarted since the request was sent. Its earlier incarnation may have executed it.
    PeerRestarted(Node),
    /// The peer was removed meanwhile. It may have executed the request.
    PeerRemoved(Node),
    /// The caller's time is over. The peer may have executed the request.
    DeadlineExceeded,
}

impl CallError {
    /// Whether the peer may have executed the request nevertheless.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(
            self,
            CallError::HandlerFailed
                | CallError::PeerSilent(_)
                | CallError::PeerRestarted(_)
                | CallError::PeerRemoved(_)
                | CallError::DeadlineExceeded
        )
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::NoSuchNode(node) => write!(f, "{node} is not known"),
            CallError::TooLong => f.write_str("the request is too long"),
            CallError::NoSuchType => f.write_str("the peer has no handler for this type"),
            CallError::Fenced => f.write_str("the peer is of another configuration"),
            CallError::HandlerFailed => f.write_str("the peer's handler failed"),
            CallError::Overloaded => f.write_str("the peer runs as many nested handlers as it can"),
            CallError::PeerSilent(node) => write!(f, "{node} says nothing"),
            CallError::PeerRestarted(node) => write!(f, "{node} has been started again"),
            CallError::PeerRemoved(node) => write!(f, "{node} was removed"),
            CallError::DeadlineExceeded => f.write_str("the deadline has passed"),
        }
    }
}

impl std::error::Error for CallError {}

/// Why a peer cannot be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddPeerError {
    /// It is this very node.
    IsSelf,
}

impl fmt::Display for AddPeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node is no peer of itself")
    }
}

impl std::error::Error for AddPeerError {}

/// Every place for a worker is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpawnError;

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there are as many workers as there can be")
    }
}

impl std::error::Error for SpawnError {}
