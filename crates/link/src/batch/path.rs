//! Where a packet goes, and whether its place among others matters.

use crate::Place;
use std::net::SocketAddr;

/// Where packets go. Packets of one path may share a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The peer's address and port.
    pub peer: SocketAddr,
    /// Packets of different classes never share a train. A receiver with several lanes gets a train whole, on the lane of
    /// its first packet, so a sender that knows the peer's lanes gives each one its class; others leave it 0.
    pub class: u8,
    /// The traffic class octet, or TOS, of the IP headers. Its upper six bits count, the DSCP (RFC 2474 §3); the others are
    /// the link's own, for ECN.
    pub traffic_class: u8,
}

impl From<SocketAddr> for Path {
    fn from(peer: SocketAddr) -> Path {
        Path { peer, class: 0, traffic_class: 0 }
    }
}

impl Path {
    /// Where the first packet of a train sits.
    pub(super) fn place_from(&self, source: SocketAddr) -> Place {
        Place { source, destination: self.peer, train_index: 0 }
    }
}

/// Whether a packet's place among others to the same destination matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Leaves after every strict packet that was appended before it.
    Strict,
    /// May leave after packets appended later, and never before one appended earlier: to a requester of go-back-N, an acknowledgement that
    /// comes before a READ response says that the response was lost.
    Free,
}
