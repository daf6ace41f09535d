//! Congestion control: how fast one queue pair may send, apart from what loss recovery and BDP-FC allow.
//!
//! The requester tells an algorithm of events (sent, acknowledged, marked, lost, time passed), and the
//! algorithm answers with a rate, a window or both. It owns no timer: [`CongestionControl::next_timer`] says
//! when it wants to be called, and late calls are harmless. Everything is integer arithmetic, so that a run
//! repeats bit for bit on any machine.

mod aimd;
mod choice;
mod cnp;
mod dcqcn;
mod dctcp;
mod fixed;
mod pacer;
mod timely;
mod window;

#[cfg(test)]
mod steps;

pub use aimd::{Aimd, AimdParameters};
pub use choice::{CongestionChoice, CongestionParameters, UnknownCongestion};
pub use cnp::CnpGenerator;
pub use dcqcn::{Dcqcn, DcqcnParameters};
pub use dctcp::{Dctcp, DctcpParameters};
pub use fixed::{Fraction, Rate};
pub use pacer::Pacer;
pub use timely::{Timely, TimelyParameters};

use highwire_stdx::{Duration, Instant};

/// What an acknowledgement tells congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AckSample {
    /// Packets that are newly known to have arrived, cumulatively or selectively, each counted once.
    pub packets: u32,
    /// The round trip of the packet that caused the acknowledgement, unless it was ever resent (its time would be ambiguous).
    pub rtt: Option<Duration>,
    /// Whether the acknowledgement echoes an ECN mark on the packets that it acknowledges.
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

/// The interface of every congestion control. The defaults ignore events.
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

    /// Whether samples must have round trips: the requester then notes when each packet leaves.
    fn wants_round_trips(&self) -> bool {
        false
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
    /// Timely: the rate follows the gradient of round trips.
    Timely(Box<Timely>),
    /// AIMD: the window follows losses.
    Aimd(Box<Aimd>),
    /// DCTCP: the window follows the share of marked packets.
    Dctcp(Box<Dctcp>),
}

impl Congestion {
    /// Whether it may ever hold a packet back.
    #[inline]
    pub fn is_some(&self) -> bool {
        !matches!(self, Congestion::None)
    }
}

/// Calls the chosen algorithm, or gives the default answer if there is none.
macro_rules! ask {
    ($self:ident, $name:ident => $call:expr, $none:expr) => {
        match $self {
            Congestion::None => $none,
            Congestion::Dcqcn($name) => $call,
            Congestion::Timely($name) => $call,
            Congestion::Aimd($name) => $call,
            Congestion::Dctcp($name) => $call,
        }
    };
}

impl CongestionControl for Congestion {
    #[inline]
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        ask!(self, cc => cc.on_sent(now, bytes), ())
    }

    #[inline]
    fn on_ack(&mut self, now: Instant, sample: AckSample) {
        ask!(self, cc => cc.on_ack(now, sample), ())
    }

    fn on_cnp(&mut self, now: Instant) {
        ask!(self, cc => cc.on_cnp(now), ())
    }

    fn on_loss(&mut self, now: Instant, kind: LossKind) {
        ask!(self, cc => cc.on_loss(now, kind), ())
    }

    #[inline]
    fn next_timer(&self) -> Option<Instant> {
        ask!(self, cc => cc.next_timer(), None)
    }

    fn on_timer(&mut self, now: Instant) {
        ask!(self, cc => cc.on_timer(now), ())
    }

    #[inline]
    fn rate(&self) -> Option<Rate> {
        ask!(self, cc => cc.rate(), None)
    }

    #[inline]
    fn window(&self) -> Option<u32> {
        ask!(self, cc => cc.window(), None)
    }

    fn wants_round_trips(&self) -> bool {
        ask!(self, cc => cc.wants_round_trips(), false)
    }
}
