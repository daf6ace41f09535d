//! Observing a run: the fabric calls an observer as things happen.
//!
//! Counters are always there ([`crate::PortCounters`]); an observer sees each single case. The unit type observes nothing and
//! costs nothing.

use crate::{PortId, Priorities, Time};

/// Why a packet did not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// No room.
    BufferFull,
    /// Damaged on the link.
    BitError,
    /// The link is down, or there is no way.
    LinkDown,
}

/// Learns what happens to packets. The default of every method does nothing.
pub trait Observer<P> {
    /// Whether [`Observer::on_wait`] is called, which costs a sum over priorities for each packet that waits.
    const SEES_QUEUES: bool = false;

    /// A packet waits for `port`, for which `bytes` wait now at all priorities.
    fn on_wait(&mut self, now: Time, port: PortId, bytes: u64) {
        let _ = (now, port, bytes);
    }

    /// A packet ended here: `port` is the one that it would have left by, or whose wire damaged it.
    fn on_drop(&mut self, now: Time, port: PortId, reason: DropReason, packet: &P) {
        let _ = (now, port, reason, packet);
    }

    /// A packet was marked while it waited for `port`.
    fn on_mark(&mut self, now: Time, port: PortId, packet: &P) {
        let _ = (now, port, packet);
    }

    /// A packet was trimmed instead of waiting for `port`.
    fn on_trim(&mut self, now: Time, port: PortId, packet: &P) {
        let _ = (now, port, packet);
    }

    /// The peer has told the sender `port` which of its priorities pause.
    fn on_pause(&mut self, now: Time, port: PortId, paused: Priorities) {
        let _ = (now, port, paused);
    }

    /// The first bit of a packet leaves by `port`, of a host or a switch.
    fn on_send(&mut self, now: Time, port: PortId, packet: &P) {
        let _ = (now, port, packet);
    }
}

impl<P> Observer<P> for () {}
