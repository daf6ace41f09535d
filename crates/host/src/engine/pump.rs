//! One turn of the engine: requests from the application, packets that arrived, timers that are due, and then everything that
//! the RNIC wants to send or report.
//!
//! Acknowledgements may wait for the application's next step: when a turn has delivered completions, the application is
//! about to answer, and its answer and the acknowledgement then leave in one train. They wait no longer than that: the next
//! turn always sends them, and the background thread makes sure that there is a next turn. A device without a background thread
//! keeps no acknowledgement back.
//!
//! The background thread keeps them back as well, if application threads are near: a thread that spins on the memory that a
//! WRITE has just filled sees it and posts its own WRITE. A deadline bounds that time, and if no answer came, the thread waits
//! more seldom. A program behind the door never comes by; that it is near shows by the bells that it rings.

use super::Engine;
use highwire_link::Link;
use highwire_stdx::{Duration, Instant};

/// Turns between two looks at the clock while nothing happens.
const IDLE_TURNS_PER_CLOCK: u32 = 8;

/// How long the background thread keeps acknowledgements for an answer: long enough for a thread that it has pushed off its
/// core to come back, short beside every timeout.
const ANSWER_WAIT: Duration = Duration::from_micros(30);
/// For how long whoever has rung a bell is near: longer than a round trip of a program that answers at once.
const GUESTS_ARE_NEAR: Duration = Duration::from_micros(500);
/// The same for a program behind the door, which has to see its completion first and ring then.
const GUESTS_ANSWER_WAIT: Duration = Duration::from_micros(100);
/// Turns without waiting after an answer did not come, at most: the first time 1, then twice as many each time.
const HASTE_TURNS_MAX: u32 = 255;

/// Which thread runs a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// An application thread that posts, polls or waits.
    Visitor,
    /// The device's own thread; whether visitors have come by lately.
    Background { visitors_are_near: bool },
}

/// What a turn achieved.
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

/// What one turn leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Packets in the batch that should leave with this turn.
    pub(super) urgent: u32,
    /// Acknowledgements were kept back for the application's next step.
    pub(super) deferred: bool,
    /// Until when the background thread leaves them alone, if not just for one turn.
    deferred_until: Option<Instant>,
    /// The last packets came over UDP.
    pub(super) came_by_udp: bool,
    /// The acknowledgements that were kept are still in the RNIC.
    kept_in_rnic: bool,
    /// The background thread kept them, in the hope that a visitor answers soon.
    kept_for_visitor: bool,
    /// When a program behind the door last rang a bell.
    rung: Option<Instant>,
    patience: Patience,
    /// Turns of visitors that found packets.
    visitors_finds: u64,
    /// The RNIC had more to send than one turn takes.
    pub(super) more_to_send: bool,
    /// This turn takes all that has arrived.
    pub(super) reads_all: bool,
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

/// Whether acknowledgements are kept for an answer, by what became of those that were.
#[derive(Debug, Default)]
struct Patience {
    /// The background thread's turns until it tries that again, and how many there were the last time.
    haste: u32,
    haste_before: u32,
}

impl Patience {
    /// Whether this turn may keep some.
    fn has_any(&mut self) -> bool {
        let has_any = self.haste == 0;
        self.haste = self.haste.saturating_sub(1);
        has_any
    }

    fn on_answer(&mut self) {
        self.haste_before = 0;
    }

    fn on_none(&mut self) {
        self.haste_before = (2 * self.haste_before + 1).min(HASTE_TURNS_MAX);
        self.haste = self.haste_before;
    }
}

impl Turn {
    /// The next turn looks at the socket.
    pub(super) fn look_at_udp(&mut self) {
        self.udp_skipped = u32::MAX;
    }
}

impl Engine {
    /// A whole turn of a thread that came by.
    #[inline]
    pub(crate) fn pump(&mut self) -> Pumped {
        self.pump_by(By::Visitor)
    }

    /// A whole turn.
    pub(crate) fn pump_by(&mut self, by: By) -> Pumped {
        self.now = None;
        let overdue = self.is_overdue(by) || !self.may_defer;
        let requests = self.take_bells();
        let by = self.seen_near(by, requests);
        let mut packets = self.release_held() + self.receive();
        let expired = self.expire(requests + packets > 0, &mut packets);
        let work = requests + packets;
        self.turn.visitors_finds += u64::from(packets > 0 && by == By::Visitor);
        let mut pumped = Pumped { work, packets, completions: 0, visitors_finds: self.turn.visitors_finds };
        let posted = std::mem::take(&mut self.turn.posted);
        let were_kept = self.turn.kept_in_rnic;
        let mut keeps = false;
        if work > 0 || expired || posted || self.turn.more_to_send || (were_kept && overdue) {
            pumped.completions = self.deliver();
            keeps = pumped.completions > 0 || (packets > 0 && self.may_expect_answer(by));
            let now = self.now();
            // Best of all they stay where they are: then they ride on the answer, and save a datagram. Through shared memory
            // a packet costs less than what the peer can do meanwhile with an early one.
            self.turn.kept_in_rnic =
                (keeps || were_kept) && !overdue && self.turn.came_by_udp && self.rnic.owes_only_acks(now);
            if !self.turn.kept_in_rnic {
                // Sending completes requests as well: those of unreliable services, and those with a bad local key.
                self.drain_transmit();
                pumped.completions += self.deliver();
                keeps |= pumped.completions > 0;
            }
        }
        self.flush(overdue || !keeps);
        self.turn.deferred |= self.turn.kept_in_rnic;
        self.note_deferral(by, overdue, requests > 0);
        pumped
    }

    /// Turns of visitors that found packets, so far.
    pub(crate) fn visitors_finds(&self) -> u64 {
        self.turn.visitors_finds
    }

    /// Whether acknowledgements have been kept long enough.
    fn is_overdue(&mut self, by: By) -> bool {
        match self.turn.deferred_until {
            Some(until) if by != By::Visitor => self.now() >= until,
            _ => self.turn.deferred,
        }
    }

    /// Whether the background thread may keep acknowledgements for a visitor that will probably answer soon.
    fn may_expect_answer(&mut self, by: By) -> bool {
        if by != (By::Background { visitors_are_near: true }) {
            return false;
        }
        self.turn.patience.has_any()
    }

    /// The background thread is told of threads that come by; programs behind the door do not, and ring.
    #[inline]
    fn seen_near(&mut self, by: By, requests: u32) -> By {
        if self.on_demand.is_empty() || by == By::Visitor {
            return by;
        }
        if requests > 0 {
            self.turn.rung = Some(self.now());
            self.turn.patience.has_any();
        }
        let Some(rung) = self.turn.rung else { return by };
        let are_near = self.now().saturating_since(rung) < GUESTS_ARE_NEAR;
        if !are_near {
            self.turn.rung = None;
        }
        if are_near && self.turn.patience.haste == 0 {
            By::Background { visitors_are_near: true }
        } else {
            by
        }
    }

    /// Keeps account of what became of acknowledgements that were kept.
    fn note_deferral(&mut self, by: By, overdue: bool, has_answered: bool) {
        let is_near = by != (By::Background { visitors_are_near: false });
        if self.turn.deferred {
            if is_near && self.turn.deferred_until.is_none() {
                let wait = if self.turn.rung.is_some() { GUESTS_ANSWER_WAIT } else { ANSWER_WAIT };
                self.turn.deferred_until = Some(self.now() + wait);
                self.turn.kept_for_visitor = by != By::Visitor;
            }
        } else if self.turn.deferred_until.take().is_some() && self.turn.kept_for_visitor {
            match by {
                By::Visitor => self.turn.patience.on_answer(),
                By::Background { .. } if has_answered => self.turn.patience.on_answer(),
                By::Background { .. } if overdue => self.turn.patience.on_none(),
                By::Background { .. } => {}
            }
        }
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
            self.turn.kept_in_rnic = false;
            self.drain_transmit();
            self.deliver();
            self.flush(true);
            self.note_deferral(By::Visitor, false, true);
        } else if let Some(neighbours) = self.neighbours.as_mut().filter(|near| near.is_unflushed()) {
            // Datagrams that went past the queue.
            neighbours.flush();
        }
    }

    /// After a control call: sends and reports what the RNIC has ready.
    pub(crate) fn finish_control(&mut self) {
        self.turn.posted = true;
        self.finish_post();
    }

    /// When the engine wants to be run again after a step of a thread that came by. If it is the last one for now,
    /// acknowledgements that were kept for the next leave at once; else they are the next one's affair.
    pub(crate) fn due_after(&mut self, is_last_step: bool) -> Option<Instant> {
        if is_last_step && (self.turn.deferred || self.turn.posted) {
            self.begin_post();
            self.finish_post();
        }
        self.deadline_but_for_kept()
    }

    /// When the engine wants to be run again, even if nothing arrives until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let kept = self.turn.deferred.then(|| self.turn.deferred_until.unwrap_or(Instant::ZERO));
        [self.deadline_but_for_kept(), kept].into_iter().flatten().min()
    }

    /// The same without acknowledgements that were kept back.
    fn deadline_but_for_kept(&self) -> Option<Instant> {
        let waits = self.turn.more_to_send || self.tx.is_blocked() || self.has_backlog();
        let at_once = waits.then_some(Instant::ZERO);
        let held_back = self.disturbed.as_ref().and_then(super::Disturbed::poll_timeout);
        let unreceived = self.held.deadline();
        [self.rnic.poll_timeout(), self.udp.poll_timeout(), held_back, unreceived, at_once]
            .into_iter()
            .flatten()
            .min()
    }

    /// Lets timers expire that are due; true if any was. What lies unread may be what the timer waits for, so it is taken before.
    fn expire(&mut self, has_worked: bool, packets: &mut u32) -> bool {
        self.turn.idle += 1;
        if !has_worked && self.turn.idle < IDLE_TURNS_PER_CLOCK {
            return false;
        }
        self.turn.idle = 0;
        let Some(deadline) = self.rnic.poll_timeout() else { return false };
        if deadline > self.now() {
            return false;
        }
        *packets += self.receive_all();
        let now = self.now();
        let (neighbours, room) = (self.neighbours.as_ref(), &self.room);
        self.rnic.handle_timeout_unless(now, |gid, qpn, gives_up| {
            // Sockets take a system call or several to look at.
            neighbours.is_some_and(|near| near.is_unheard(gid, qpn)) || gives_up && room.is_unread(gid, qpn)
        });
        true
    }

    fn has_backlog(&self) -> bool {
        self.neighbours.as_ref().is_some_and(super::Neighbours::has_backlog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_does_not_answer_is_waited_for_ever_more_rarely_and_whoever_does_is_again() {
        let mut patience = Patience::default();
        let mut turns_between = Vec::new();
        for _ in 0..10 {
            assert!(patience.has_any());
            patience.on_none();
            turns_between.push((0..).take_while(|_| !patience.has_any()).count());
            // It has just been asked, and may keep some in the next turn too.
            assert_eq!(patience.haste, 0);
        }
        assert_eq!(turns_between, [1, 3, 7, 15, 31, 63, 127, 255, 255, 255]);
        patience.on_answer();
        patience.on_none();
        assert_eq!(patience.haste, 1);
    }
}
