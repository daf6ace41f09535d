//! Congestion control: how fast one queue pair may send, apart from what loss recovery and BDP-FC allow.
//!
//! An algorithm hears what happened (sent, acknowledged, marked, lost, time passed) and answers with a rate, a window or both.
//! It owns no timer: [`CongestionControl::next_timer`] says when it wants to be called, and late calls are harmless.
//! Everything is integer arithmetic, so that a run repeats bit for bit on any machine.

mod cnp;
mod dcqcn;
mod fixed;
mod pacer;

#[cfg(test)]
mod steps;

pub use cnp::CnpGenerator;
pub use dcqcn::{Dcqcn, DcqcnParameters};
pub use fixed::{Fraction, Rate};
pub use pacer::Pacer;

use highwire_stdx::{Duration, Instant};

/// What an acknowledgement tells congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AckSample {
    /// Packets acknowledged for the first time.
    pub packets: u32,
    /// Their bytes on the wire.
    pub bytes: u32,
    /// The round trip of the packet that caused the acknowledgement, unless it was ever resent (its time would be ambiguous).
    pub rtt: Option<Duration>,
    /// Whether the acknowledgement echoes an ECN mark (DCTCP).
    pub is_ecn_echo: bool,
}

/// How a loss was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossKind {
    /// By a NACK; the path still delivers.
    Nack,
    /// By a timeout.
    Timeout,
}

/// What every congestion control hears and says. The events that an algorithm does not care about do nothing.
pub trait CongestionControl {
    /// A packet of `bytes` on the wire leaves, new or resent.
    fn on_sent(&mut self, _now: Instant, _bytes: u32) {}

    /// An acknowledgement arrived.
    fn on_ack(&mut self, _now: Instant, _sample: AckSample) {}

    /// A congestion notification packet arrived (RoCEv2 A17.9.3).
    fn on_cnp(&mut self, _now: Instant) {}

    /// A loss was detected; once per repair, not once per packet.
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
}

/// The congestion control of one queue pair.
#[derive(Clone, Debug, Default)]
pub enum Congestion {
    /// Flows start at line rate and stay there, as in the paper's basic comparison (IRN §4.2).
    #[default]
    None,
    /// DCQCN: the rate follows congestion notification packets.
    Dcqcn(Box<Dcqcn>),
}

impl CongestionControl for Congestion {
    #[inline]
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        match self {
            Congestion::None => {}
            Congestion::Dcqcn(dcqcn) => dcqcn.on_sent(now, bytes),
        }
    }

    #[inline]
    fn on_ack(&mut self, now: Instant, sample: AckSample) {
        match self {
            Congestion::None => {}
            Congestion::Dcqcn(dcqcn) => dcqcn.on_ack(now, sample),
        }
    }

    fn on_cnp(&mut self, now: Instant) {
        match self {
            Congestion::None => {}
            Congestion::Dcqcn(dcqcn) => dcqcn.on_cnp(now),
        }
    }

    fn on_loss(&mut self, now: Instant, kind: LossKind) {
        match self {
            Congestion::None => {}
            Congestion::Dcqcn(dcqcn) => dcqcn.on_loss(now, kind),
        }
    }

    #[inline]
    fn next_timer(&self) -> Option<Instant> {
        match self {
            Congestion::None => None,
            Congestion::Dcqcn(dcqcn) => dcqcn.next_timer(),
        }
    }

    fn on_timer(&mut self, now: Instant) {
        match self {
            Congestion::None => {}
            Congestion::Dcqcn(dcqcn) => dcqcn.on_timer(now),
        }
    }

    #[inline]
    fn rate(&self) -> Option<Rate> {
        match self {
            Congestion::None => None,
            Congestion::Dcqcn(dcqcn) => dcqcn.rate(),
        }
    }

    #[inline]
    fn window(&self) -> Option<u32> {
        match self {
            Congestion::None => None,
            Congestion::Dcqcn(dcqcn) => dcqcn.window(),
        }
    }
}
