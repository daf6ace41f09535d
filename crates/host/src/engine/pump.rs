//! One turn of the engine: what was asked for, what came in, what is due, and then everything the RNIC has to say.
//!
//! Acknowledgements may wait for the application's next step: when a turn has delivered completions, the application is
//! about to answer, and its answer and the acknowledgement then leave in one train. They wait no longer than that: the
//! next turn takes them along whatever else happens, and the background thread sees to it that there is a next turn. A
//! device without one keeps nothing back.

use super::Engine;
use highwire_link::Link;
use highwire_stdx::Instant;

/// Turns between two looks at the clock while nothing happens.
const IDLE_TURNS_PER_CLOCK: u32 = 8;

/// What a turn achieved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pumped {
    /// Packets handled and requests taken.
    pub(crate) work: u32,
    /// Completions delivered.
    pub(crate) completions: u32,
}

/// What one turn leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Packets in the batch that should leave with this turn.
    pub(super) urgent: u32,
    /// Acknowledgements were kept back for the application's next step.
    pub(super) deferred: bool,
    /// The RNIC had more to send than one turn takes.
    pub(super) more_to_send: bool,
    /// Something was posted that has yet to leave.
    pub(super) posted: bool,
    /// A request in a ring was refused, and its completion has yet to be shown.
    pub(super) has_refused: bool,
    /// Turns since the clock was last read.
    idle: u32,
    /// Turns in which the socket was not looked at.
    pub(super) udp_skipped: u32,
    /// Turns for which the socket stays worth looking at every time.
    pub(super) udp_warmth: u32,
}

impl Engine {
    /// A whole turn.
    pub(crate) fn pump(&mut self) -> Pumped {
        self.now = None;
        let overdue = self.turn.deferred || !self.may_defer;
        let work = self.take_bells() + self.receive();
        let expired = self.expire(work > 0);
        let mut pumped = Pumped { work, completions: 0 };
        let posted = std::mem::take(&mut self.turn.posted);
        if work > 0 || expired || posted || self.turn.more_to_send {
            // Sending completes requests as well: those of unreliable services, and those with a bad local key.
            self.drain_transmit();
            pumped.completions = self.deliver();
        }
        self.flush(overdue || pumped.completions == 0);
        pumped
    }

    /// Before the first of several posts by one thread.
    #[inline]
    pub(crate) fn begin_post(&mut self) {
        self.now = None;
    }

    /// After the last of them: what they ask for leaves at once. Nothing is received.
    #[inline]
    pub(crate) fn finish_post(&mut self) {
        self.deliver();
        if std::mem::take(&mut self.turn.posted) || self.turn.deferred {
            self.drain_transmit();
            self.deliver();
            self.flush(true);
        }
    }

    /// After a control call: whatever the RNIC has to say by now.
    pub(crate) fn finish_control(&mut self) {
        self.turn.posted = true;
        self.finish_post();
    }

    /// When the engine wants to be run again, whatever arrives until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waits =
            self.turn.deferred || self.turn.more_to_send || self.tx.is_blocked() || self.has_backlog();
        let at_once = waits.then_some(Instant::ZERO);
        let held_back = self.disturbed.as_ref().and_then(super::Disturbed::poll_timeout);
        [self.rnic.poll_timeout(), self.udp.poll_timeout(), held_back, at_once].into_iter().flatten().min()
    }

    /// Lets timers expire that are due; true if any was.
    fn expire(&mut self, has_worked: bool) -> bool {
        self.turn.idle += 1;
        if !has_worked && self.turn.idle < IDLE_TURNS_PER_CLOCK {
            return false;
        }
        self.turn.idle = 0;
        let Some(deadline) = self.rnic.poll_timeout() else { return false };
        let now = self.now();
        if deadline > now {
            return false;
        }
        self.rnic.handle_timeout(now);
        true
    }

    fn has_backlog(&self) -> bool {
        self.neighbours.as_ref().is_some_and(super::Neighbours::has_backlog)
    }
}
