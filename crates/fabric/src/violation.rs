//! Broken invariants, and how they are reported.

use std::fmt;

use crate::Time;

/// An invariant that did not hold: the run stops, and its results must not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The seed that repeats it.
    pub seed: u64,
    /// When.
    pub time: Time,
    /// Where: the names of node and port.
    pub place: String,
    /// What.
    pub kind: ViolationKind,
}

/// Which invariant did not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViolationKind {
    /// A packet of a lossless priority found the buffer full.
    LosslessDrop {
        /// Its priority.
        priority: u8,
        /// Its length.
        bytes: u32,
        /// What the buffer held.
        used_bytes: u64,
        /// What it can hold.
        room_bytes: u64,
    },
    /// Bytes or packets appeared or vanished.
    NotConserved {
        /// What was counted.
        what: &'static str,
        /// One way to count.
        expected: u64,
        /// Another.
        found: u64,
    },
    /// Packets wait, and nothing will ever move them: pauses wait for each other.
    Deadlock {
        /// How many packets.
        packets: u64,
    },
    /// A host set a deadline for the present too often: it would never advance.
    HostSpins,
    /// A host sent what the network cannot carry.
    BadPacket(BadPacket),
}

/// What is wrong with a packet that a host sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPacket {
    /// It has no length.
    Empty,
    /// There is no host of this number.
    Destination(u32),
    /// Its priority is not modelled.
    Priority(u8),
    /// Its priority is paused.
    Paused(u8),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} in {}: {} (seed {})", self.time, self.place, self.kind, self.seed)
    }
}

impl std::error::Error for Violation {}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViolationKind::LosslessDrop { priority, bytes, used_bytes, room_bytes } => write!(
                f,
                "a packet of {bytes} bytes of the lossless priority {priority} was dropped: {used_bytes} of {room_bytes} bytes in use"
            ),
            ViolationKind::NotConserved { what, expected, found } => {
                write!(f, "{what} are not conserved: {expected} expected, {found} found")
            }
            ViolationKind::Deadlock { packets } => {
                write!(f, "{packets} packets wait for each other's pauses for ever")
            }
            ViolationKind::HostSpins => write!(f, "the host's deadline does not advance"),
            ViolationKind::BadPacket(BadPacket::Empty) => write!(f, "the host sent a packet without length"),
            ViolationKind::BadPacket(BadPacket::Destination(host)) => {
                write!(f, "the host sent a packet to host {host}, which does not exist")
            }
            ViolationKind::BadPacket(BadPacket::Priority(p)) => {
                write!(f, "the host sent a packet of priority {p}, which is not modelled")
            }
            ViolationKind::BadPacket(BadPacket::Paused(p)) => {
                write!(f, "the host sent a packet of priority {p}, which is paused")
            }
        }
    }
}
