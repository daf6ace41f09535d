//! A port: its sending side, the wire behind it, and counts of what has passed.

use crate::packet::Fifo;
use crate::time::Pace;
use crate::{Rate, Span, Time};

/// A port and the wire that leads away from it: one cache line, for every packet touches two of them per hop. What few
/// packets touch is in [`PortCounters`].
#[repr(align(64))]
pub(crate) struct Port {
    /// When the last bit of what it sends has left.
    pub(crate) busy_until: Time,
    /// Packets under way; one event in the queue stands for the first of them.
    pub(crate) wire: Fifo,
    /// The port at the other end.
    pub(crate) peer: u32,
    /// The switch that it belongs to; hosts' ports have none.
    pub(crate) switch: u32,
    /// Which [`LinkKind`] its link is.
    pub(crate) kind: u16,
    /// Priorities for which packets wait.
    pub(crate) waiting: u8,
    /// Priorities that the peer has paused.
    pub(crate) paused: u8,
    /// Priorities that the peer should pause, and those that it was last told to pause.
    pub(crate) pause_wanted: u8,
    pub(crate) pause_told: u8,
    pub(crate) health: Health,
    /// An event will come when the port is free.
    pub(crate) is_awaited: bool,
    /// Packets that have entered the wire.
    pub(crate) sent: Tally,
    /// Packets that have left it at the other end, without lost ones.
    pub(crate) arrived: Tally,
}

/// How a port's link is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    /// Packets on the wire may be lost.
    Faulty,
    Down,
}

/// What all links of one rate and delay have in common.
pub(crate) struct LinkKind {
    /// They lead to another part of the network.
    pub(crate) is_cut: bool,
    pub(crate) rate: Rate,
    pub(crate) pace: Pace,
    pub(crate) delay: Span,
}

/// Packets and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// How many.
    pub packets: u64,
    /// Their length on the wire, together.
    pub bytes: u64,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// The counters of one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// What the port sent, pause frames included.
    pub sent: Tally,
    /// The part of it that arrived at the other end.
    pub arrived: Tally,
    /// Packets lost on the wire behind it: by bit errors, or because the link failed.
    pub lost: Tally,
    /// Packets that found no room to wait for this port.
    pub dropped: Tally,
    /// Packets that should have left by this port while its link was down, or for which there was no way (counted where
    /// they came in).
    pub unroutable: Tally,
    /// Packets marked while they waited for it.
    pub marked: u64,
    /// Packets cut down to their headers instead of waiting for it, and the bytes cut off.
    pub trimmed: Tally,
    /// Pause frames sent.
    pub pause_frames: u64,
    /// How often this port told its peer to stop (once per priority).
    pub xoffs: u64,
    /// Pause frames received.
    pub pause_frames_received: u64,
    /// How long at least one priority of this port was paused.
    pub paused: Span,
}

impl PortCounters {
    /// Adds another port's numbers.
    pub fn merge(&mut self, other: &PortCounters) {
        let PortCounters { sent, arrived, lost, dropped, unroutable, marked, trimmed, .. } = *other;
        self.sent.merge(sent);
        self.arrived.merge(arrived);
        self.lost.merge(lost);
        self.dropped.merge(dropped);
        self.unroutable.merge(unroutable);
        self.marked += marked;
        self.trimmed.merge(trimmed);
        self.pause_frames += other.pause_frames;
        self.xoffs += other.xoffs;
        self.pause_frames_received += other.pause_frames_received;
        self.paused = self.paused + other.paused;
    }
}

impl Port {
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.health != Health::Down
    }

    pub(crate) fn new(peer: u32, switch: u32, kind: u16) -> Port {
        Port {
            busy_until: Time::ZERO,
            wire: Fifo::EMPTY,
            peer,
            switch,
            kind,
            waiting: 0,
            paused: 0,
            pause_wanted: 0,
            pause_told: 0,
            health: Health::Good,
            is_awaited: false,
            sent: Tally::default(),
            arrived: Tally::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_cache_line() {
        assert_eq!(size_of::<Port>(), 64);
    }
}
