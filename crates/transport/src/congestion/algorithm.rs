//! An algorithm as the rest of the program sees it: a name, what it listens to, and how a flow starts.

use super::{CongestionControl, Rate};
use std::fmt;

/// A congestion control by its name. Plans, hosts and command lines know no more of it than this.
pub struct Algorithm {
    /// Its name in plans and on command lines: small letters, digits and hyphens.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// How it hears of packets that switches have marked.
    pub marks: Marks,
    /// The marking that it wants from switches, unless the plan names another.
    pub marking: Option<Marking>,
    /// Whether it reacts to acknowledgements, so that receivers should acknowledge each packet.
    pub hears_acks: bool,
    /// Whether it wants the switches of a packet's way to write into it what they see.
    pub telemetry: bool,
    /// Whether it sends the packets of a flow over several ways.
    pub spreads: bool,
    /// The control of a new flow; `None`: nothing holds it back.
    pub start: &'static (dyn Fn(&Start) -> Option<Box<dyn CongestionControl>> + Send + Sync),
}

/// A flow that starts.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The rate of the sender's link.
    pub line_rate: Rate,
    /// The packets that fill the way to the peer and back: where windows start.
    pub bdp_packets: u32,
    /// Flow control never lets more packets be in flight.
    pub window_max: u32,
    /// A full packet on the wire.
    pub packet_bytes: u32,
}

/// How an algorithm hears of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Marks {
    /// Not at all: its packets are not ECN-capable.
    #[default]
    Ignored,
    /// By congestion notification packets from the receiver, at most one per flow in some time.
    Cnps,
    /// By an echo in the acknowledgement of each marked packet. Both ends must choose the algorithm.
    Echoes,
}

/// When switches mark a packet, by the bytes that wait for its output. The numbers hold at 40 Gb/s, other ports have them in
/// proportion to their rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marking {
    /// With fewer bytes no packet is marked.
    pub min_bytes: u64,
    /// With more bytes every packet is; equal to `min_bytes`: a step.
    pub max_bytes: u64,
    /// The probability just below `max_bytes`.
    pub probability: f64,
}

impl Algorithm {
    /// An algorithm that listens to nothing. Others name what differs.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        start: &'static (dyn Fn(&Start) -> Option<Box<dyn CongestionControl>> + Send + Sync),
    ) -> Algorithm {
        Algorithm {
            name,
            about,
            marks: Marks::Ignored,
            marking: None,
            hears_acks: false,
            telemetry: false,
            spreads: false,
            start,
        }
    }
}

impl Marking {
    /// Every packet that finds more than `bytes` waiting.
    pub const fn step(bytes: u64) -> Marking {
        Marking { min_bytes: bytes, max_bytes: bytes, probability: 1.0 }
    }

    /// A probability that rises from nothing at `min` to `probability` at `max`, and all beyond.
    pub const fn red(min: u64, max: u64, probability: f64) -> Marking {
        Marking { min_bytes: min, max_bytes: max, probability }
    }

    /// Whether it is a step.
    pub const fn is_step(&self) -> bool {
        self.min_bytes == self.max_bytes
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Algorithm")
            .field("name", &self.name)
            .field("marks", &self.marks)
            .finish_non_exhaustive()
    }
}
