//! Congestion control: how fast one queue pair may send, apart from what loss recovery and BDP-FC allow.
//!
//! The requester tells an algorithm of events (sent, acknowledged, marked, lost, time passed), and the
//! algorithm answers with a rate, a window or both, and with the way that each packet takes. It owns no timer:
//! [`CongestionControl::next_timer`] says when it wants to be called, and late calls are harmless. Integer arithmetic
//! makes a run repeat bit for bit on any machine.
//!
//! An algorithm is one file: a type with [`CongestionControl`], and an [`Algorithm`] that gives it a name, says what it listens to
//! and starts it. Algorithms of other crates are no different; [`register`] makes their names known.

mod aimd;
mod algorithm;
mod choice;
mod cnp;
mod dcqcn;
mod dctcp;
mod fixed;
mod flight;
mod pacer;
mod timely;
mod window;

#[cfg(test)]
mod steps;

pub use aimd::{Aimd, AimdParameters};
pub use algorithm::{Algorithm, Marking, Marks, Start};
pub use choice::{CongestionChoice, RegisterError, UnknownCongestion, register};
pub use cnp::CnpGenerator;
pub use dcqcn::{Dcqcn, DcqcnParameters};
pub use dctcp::{Dctcp, DctcpParameters};
pub use fixed::{Fraction, Rate};
pub(crate) use flight::Flight;
pub use pacer::Pacer;
pub use timely::{Timely, TimelyParameters};

use highwire_stdx::{Duration, Instant};
use std::fmt;

/// What an acknowledgement tells congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AckSample {
    /// Packets that are newly known to have arrived, cumulatively or selectively, each counted once.
    pub packets: u32,
    /// The round trip of the packet that caused the acknowledgement, unless it was ever resent (its time would be ambiguous).
    pub rtt: Option<Duration>,
    /// The way that this packet took, as [`CongestionControl::path`] chose it. Known exactly when `rtt` is.
    pub path: u16,
    /// Whether the acknowledgement echoes an ECN mark on the packets that it acknowledges.
    pub is_ecn_echo: bool,
    /// Packets that are in flight after it: sent and not cumulatively acknowledged.
    pub in_flight: u32,
}

/// What a switch on the way of a packet wrote into it as the packet left (in-band telemetry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Bytes that wait for the same output, behind the packet.
    pub queue_bytes: u64,
    /// Bytes that the output has sent since the beginning, this packet among them.
    pub sent_bytes: u64,
    /// The rate of the output's link.
    pub rate: Rate,
    /// The switch's time.
    pub at: Instant,
}

/// How a loss was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossKind {
    /// By a NACK; the path still delivers.
    Nack,
    /// By a timeout.
    Timeout,
    /// By the headers, which arrived without the payload: a switch had no room for it.
    Trimmed,
}

/// The interface of every congestion control. The defaults ignore events.
pub trait CongestionControl: fmt::Debug + Send + Sync + Replicate {
    /// A packet of `bytes` on the wire leaves, new or resent.
    fn on_sent(&mut self, _now: Instant, _bytes: u32) {}

    /// An acknowledgement arrived.
    fn on_ack(&mut self, _now: Instant, _sample: AckSample) {}

    /// The switches that a packet passed on its way to the peer, first to last. Comes just before the [`on_ack`](Self::on_ack) of
    /// its acknowledgement, if the algorithm wants [telemetry](Algorithm::telemetry) and the network has it.
    fn on_telemetry(&mut self, _now: Instant, _hops: &[Hop]) {}

    /// A congestion notification packet arrived (RoCEv2 A17.9.3).
    fn on_cnp(&mut self, _now: Instant) {}

    /// A loss was detected; once per repair, not once per packet. Trimmed packets are told one by one.
    fn on_loss(&mut self, _now: Instant, _kind: LossKind) {}

    /// When [`on_timer`](Self::on_timer) is wanted.
    fn next_timer(&self) -> Option<Instant> {
        None
    }

    /// Time has passed; catches up with every timer that is due.
    fn on_timer(&mut self, _now: Instant) {}

    /// The rate to pace at, or `None` for as fast as the link goes.
    fn rate(&self) -> Option<Rate> {
        None
    }

    /// The packets that may be in flight, or `None` for as many as flow control allows.
    fn window(&self) -> Option<u32> {
        None
    }

    /// The bytes on the wire that may be in flight: a packet leaves while fewer are. A control that limits bytes does so from its
    /// start on, since only then they are counted.
    fn window_bytes(&self) -> Option<u64> {
        None
    }

    /// The way of the packet that leaves next, among those that the network has: a number that its UDP source port carries. Asked
    /// once per packet of an algorithm that [spreads](Algorithm::spreads) them.
    fn path(&mut self, _now: Instant) -> u16 {
        0
    }

    /// Whether samples must have round trips: the requester then notes when each packet leaves.
    fn wants_round_trips(&self) -> bool {
        false
    }
}

/// Copies a control behind a pointer. Every control that can be cloned has it.
pub trait Replicate {
    /// The same control once more.
    fn replicate(&self) -> Box<dyn CongestionControl>;
}

impl<T: CongestionControl + Clone + 'static> Replicate for T {
    fn replicate(&self) -> Box<dyn CongestionControl> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn CongestionControl> {
    fn clone(&self) -> Box<dyn CongestionControl> {
        (**self).replicate()
    }
}

/// The congestion control of one queue pair, if it has one: without, flows start at line rate and stay there, as in the paper's basic
/// comparison (IRN §4.2).
#[derive(Clone, Debug, Default)]
pub struct Congestion(Option<Box<dyn CongestionControl>>);

impl Congestion {
    /// Whether it may ever hold a packet back.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// The control.
    #[inline]
    pub fn control(&mut self) -> Option<&mut (dyn CongestionControl + 'static)> {
        self.0.as_deref_mut()
    }

    /// See [`CongestionControl::next_timer`].
    #[inline]
    pub fn next_timer(&self) -> Option<Instant> {
        self.0.as_ref()?.next_timer()
    }

    /// See [`CongestionControl::rate`].
    #[inline]
    pub fn rate(&self) -> Option<Rate> {
        self.0.as_ref()?.rate()
    }

    /// See [`CongestionControl::window`].
    #[inline]
    pub fn window(&self) -> Option<u32> {
        self.0.as_ref()?.window()
    }

    /// See [`CongestionControl::window_bytes`].
    #[inline]
    pub fn window_bytes(&self) -> Option<u64> {
        self.0.as_ref()?.window_bytes()
    }

    /// See [`CongestionControl::wants_round_trips`].
    pub fn wants_round_trips(&self) -> bool {
        self.0.as_ref().is_some_and(|control| control.wants_round_trips())
    }
}

impl From<Option<Box<dyn CongestionControl>>> for Congestion {
    fn from(control: Option<Box<dyn CongestionControl>>) -> Congestion {
        Congestion(control)
    }
}
