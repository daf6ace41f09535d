//! Packets that one lane received for another.

use std::net::SocketAddr;

/// A packet that arrived on another lane's socket: a train goes whole to the lane of its first packet.
pub(crate) struct Stray {
    pub(crate) source: SocketAddr,
    pub(crate) traffic_class: u8,
    pub(crate) train_index: u16,
    pub(crate) bytes: Box<[u8]>,
}

/// Strays that wait at most; more are dropped, as by a full receive buffer.
pub(crate) const MAILBOX_PACKETS: usize = 1024;
