//! One turn of the engine: the thread that runs it, its results, and the state that it leaves to the next.

use crate::clock::Clock;
use highwire_stdx::Instant;

/// Which thread runs a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// An application thread that posts or polls.
    Visitor,
    /// One that waits, and leads.
    Leader,
    /// The device's own thread; whether visitors have come by lately.
    Background { visitors_are_near: bool },
}

impl By {
    /// Whether it is an application thread.
    #[inline]
    pub(super) fn is_visitor(self) -> bool {
        !matches!(self, By::Background { .. })
    }
}

/// The results of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pumped {
    /// Packets handled and requests taken.
    pub(crate) work: u32,
    /// Packets among them.
    pub(crate) packets: u32,
    /// Completions delivered.
    pub(crate) completions: u32,
    /// Turns of visitors that found packets, so far.
    pub(crate) visitors_finds: u64,
}

/// The state that one turn leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The last packets came over UDP.
    pub(super) came_by_udp: bool,
    /// This turn has delivered completions of receives.
    pub(super) has_received: bool,
    /// Turns of visitors that found packets.
    pub(super) visitors_finds: u64,
    /// The last turn has taken requests of programs and no packets.
    pub(super) left_packets: bool,
    /// The RNIC had more to send than one turn takes.
    pub(super) more_to_send: bool,
    /// This turn takes all packets that have arrived.
    pub(super) reads_all: bool,
    /// Something was posted that has yet to leave.
    pub(super) posted: bool,
    /// A request in a ring was refused, and its completion has yet to be shown.
    pub(super) has_refused: bool,
    /// Turns since the clock was last read.
    pub(super) idle: u32,
}

/// The time of a step, which reads the clock once at most.
pub(super) struct Time {
    clock: Clock,
    /// The time, once this step has asked for it.
    now: Option<Instant>,
}

impl Time {
    pub(super) fn new(clock: Clock) -> Time {
        Time { clock, now: None }
    }

    #[inline]
    pub(super) fn now(&mut self) -> Instant {
        match self.now {
            Some(now) => now,
            None => *self.now.insert(self.clock.now()),
        }
    }

    /// The latest time that is known without a look at the clock, for steps that start no timer.
    #[inline]
    pub(super) fn some_past(&self) -> Instant {
        self.now.unwrap_or(Instant::ZERO)
    }

    /// Another step begins.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.now = None;
    }
}
