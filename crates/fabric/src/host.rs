//! The seam between the fabric and its hosts.
//!
//! A host has one network port. The fabric calls `handle_*`, then drains: it asks for a packet as long as the port is idle,
//! and for the next deadline. The NIC's own scheduling therefore stays in the host, which is asked for *one* packet at
//! the moment when the first bit of it could leave.

use crate::{Packet, Time};

/// A host's number: 0 to the number of hosts exclusive.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HostId(pub u32);

/// A set of priorities, one bit each.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Priorities(pub u8);

impl Priorities {
    /// None of them.
    pub const NONE: Priorities = Priorities(0);
    /// All eight.
    pub const ALL: Priorities = Priorities(0xff);

    /// Whether `priority` is among them.
    #[inline]
    pub const fn contains(self, priority: u8) -> bool {
        self.0 >> priority & 1 != 0
    }
}

/// How soon a host is called.
#[derive(Clone, Copy, Debug)]
pub enum Nearness<'a, P> {
    /// After a few other events.
    Near,
    /// Very soon, with this packet, or asked for one.
    Next(Option<&'a P>),
}

/// A machine on the fabric: an RNIC, a nanoPU, a load generator.
///
/// A host shares nothing with other hosts but packets, so that hosts can run on different threads.
pub trait Host<P: Packet> {
    /// A packet's last bit has arrived.
    fn handle_packet(&mut self, now: Time, packet: P);

    /// The deadline that [`Host::poll_timeout`] gave has been reached.
    fn handle_timeout(&mut self, now: Time);

    /// The port is idle: the next packet, of one of the priorities in `open` (the others are paused by PFC).
    ///
    /// After `None` the fabric asks again when something has happened to this host: a packet, a deadline, a pause frame.
    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<P>;

    /// When to come back; [`Time::NEVER`] if only packets matter. A deadline in the past means now.
    fn poll_timeout(&self) -> Time;

    /// The fabric will soon call this host, or may: the host can prefetch the memory that it will touch
    /// ([`crate::prefetch`]). The fabric calls this only in large networks, and no result may depend on it.
    #[inline]
    fn look_ahead(&self, _nearness: Nearness<'_, P>) {}
}
