//! When acknowledgements leave.
//!
//! Acknowledgements may wait for the application's next step: when a turn has delivered completions, the application is
//! about to answer, and its answer and the acknowledgement then leave in one train. They wait no longer than that: the next
//! turn always sends them, and the background thread makes sure that there is a next turn. A device without a background thread
//! keeps no acknowledgement back, nor does an application thread while the background thread sleeps for long (`wake/duty/said.rs`).
//!
//! The background thread keeps them back as well, if application threads are near: a thread that spins on the memory that a
//! WRITE has just filled sees it and posts its own WRITE. A deadline bounds that time, and if no answer came, the thread waits
//! more seldom. A program behind the door never calls in; its bells show that it is near.
//!
//! This module neither reads a clock nor sends: the engine reports what its turn has found, and asks.

use super::turn::By;
use highwire_stdx::{Duration, Instant};
use highwire_wake::Restraint;

/// How long the background thread keeps acknowledgements for an answer: long enough for a thread that it has pushed off its
/// core to come back, short beside every timeout.
const ANSWER_WAIT: Duration = Duration::from_micros(30);
/// For how long a program that has rung a bell is near: longer than a round trip of one that answers at once.
const GUESTS_ARE_NEAR: Duration = Duration::from_micros(500);
/// The wait for a program behind the door, which has to see its completion first and ring then.
const GUESTS_ANSWER_WAIT: Duration = Duration::from_micros(100);
/// The acknowledgements that a lane keeps back.
#[derive(Debug)]
pub(super) struct Deferral {
    is_allowed: bool,
    /// Some were kept back for the application's next step.
    keeps: bool,
    /// Until when the background thread leaves them alone, if not just for one turn.
    until: Option<Instant>,
    /// They are still in the RNIC, and not in a batch.
    in_rnic: bool,
    /// The background thread kept them, in the hope that a visitor answers soon.
    for_visitor: bool,
    /// When a program behind the door last rang a bell.
    rung: Option<Instant>,
    patience: Restraint,
}

/// A turn's findings that matter to acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) packets: bool,
    pub(super) completions: bool,
}

impl Deferral {
    /// `is_allowed` if a background thread will run the engine when no application thread does.
    pub(super) fn new(is_allowed: bool) -> Deferral {
        Deferral {
            is_allowed,
            keeps: false,
            until: None,
            in_rnic: false,
            for_visitor: false,
            rung: None,
            patience: Restraint::default(),
        }
    }

    /// Whether some are kept, in a batch or in the RNIC.
    #[inline]
    pub(super) fn keeps_any(&self) -> bool {
        self.keeps
    }

    /// Whether some are kept in the RNIC.
    #[inline]
    pub(super) fn keeps_in_rnic(&self) -> bool {
        self.in_rnic
    }

    /// At the beginning of a turn: whether kept acknowledgements leave with it, whatever it finds.
    #[inline]
    pub(super) fn is_overdue(&self, by: By, now: impl FnOnce() -> Instant) -> bool {
        let is_late = match self.until {
            Some(until) if !by.is_visitor() => now() >= until,
            _ => self.keeps,
        };
        is_late || !self.is_allowed
    }

    /// The background thread knows of threads that call in, but programs behind the door only ring. Returns
    /// the kind of thread that runs the turn, corrected for this. Called only if there is a door.
    pub(super) fn on_bells(&mut self, by: By, has_rung: bool, mut now: impl FnMut() -> Instant) -> By {
        if by.is_visitor() {
            return by;
        }
        if has_rung {
            self.rung = Some(now());
            self.patience.may_try();
        }
        let Some(rung) = self.rung else { return by };
        let are_near = now().saturating_since(rung) < GUESTS_ARE_NEAR;
        if !are_near {
            self.rung = None;
        }
        if are_near && self.patience.is_free() { By::Background { visitors_are_near: true } } else { by }
    }

    /// Whether an answer is to be expected after what the turn has found, so that acknowledgements may wait for it.
    #[inline]
    pub(super) fn expects_answer(&mut self, by: By, found: Found) -> bool {
        found.completions
            || found.packets && by == (By::Background { visitors_are_near: true }) && self.patience.may_try()
    }

    /// Whether acknowledgements stay in the RNIC, if it owes nothing else. That is best: there they can ride
    /// on the answer, and save a datagram.
    #[inline]
    pub(super) fn leaves_in_rnic(&mut self, may_keep: bool, owes_only_acks: impl FnOnce() -> bool) -> bool {
        self.in_rnic = may_keep && owes_only_acks();
        self.in_rnic
    }

    /// All packets have left, except those in the batch if `batch_kept`, and acknowledgements in the RNIC.
    #[inline]
    pub(super) fn on_flush(&mut self, batch_kept: bool) {
        self.keeps = batch_kept || self.in_rnic;
    }

    /// Acknowledgements in the RNIC leave now.
    #[inline]
    pub(super) fn release(&mut self) {
        self.in_rnic = false;
    }

    /// At the end of a turn: notes whether acknowledgements were kept to good effect.
    #[inline]
    pub(super) fn end_turn(
        &mut self,
        by: By,
        was_overdue: bool,
        has_answered: bool,
        now: impl FnOnce() -> Instant,
    ) {
        let is_near = by != (By::Background { visitors_are_near: false });
        if self.keeps {
            if is_near && self.until.is_none() {
                let wait = if self.rung.is_some() { GUESTS_ANSWER_WAIT } else { ANSWER_WAIT };
                self.until = Some(now() + wait);
                self.for_visitor = !by.is_visitor();
            }
        } else if self.until.take().is_some() && self.for_visitor {
            match by {
                By::Visitor | By::Leader => self.patience.forgive(),
                By::Background { .. } if has_answered => self.patience.forgive(),
                By::Background { .. } if was_overdue => self.patience.on_failure(),
                By::Background { .. } => {}
            }
        }
    }

    /// When kept acknowledgements must leave.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.keeps.then(|| self.until.unwrap_or(Instant::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: By = By::Background { visitors_are_near: true };
    const FAR: By = By::Background { visitors_are_near: false };
    const PACKETS: Found = Found { packets: true, completions: false };
    const COMPLETIONS: Found = Found { packets: true, completions: true };

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// A turn that finds something, over UDP, with a batch of acknowledgements: whether they are kept.
    fn turn(deferral: &mut Deferral, by: By, found: Found, now: Instant) -> bool {
        let is_overdue = deferral.is_overdue(by, || now);
        let expects = deferral.expects_answer(by, found);
        deferral.on_flush(expects && !is_overdue);
        deferral.end_turn(by, is_overdue, false, || now);
        deferral.keeps_any()
    }

    #[test]
    fn acknowledgements_wait_for_the_answer_to_a_completion_and_leave_with_the_next_turn() {
        let mut deferral = Deferral::new(true);
        assert_eq!(deferral.deadline(), None);
        assert!(
            !turn(&mut deferral, By::Visitor, PACKETS, at(1)),
            "nothing was delivered that could be answered"
        );
        assert!(turn(&mut deferral, By::Visitor, COMPLETIONS, at(2)));
        assert_eq!(deferral.deadline(), Some(at(2) + ANSWER_WAIT));
        assert!(
            !turn(&mut deferral, FAR, Found::default(), at(40)),
            "the thread that comes after that sends them"
        );
        assert_eq!(deferral.deadline(), None);
        assert!(turn(&mut deferral, By::Visitor, COMPLETIONS, at(50)));
        assert!(
            !turn(&mut deferral, By::Visitor, COMPLETIONS, at(51)),
            "and so does the visitor's next turn"
        );
    }

    #[test]
    fn the_time_for_an_answer_counts_from_the_first_turn_that_keeps_some() {
        let mut deferral = Deferral::new(true);
        assert!(turn(&mut deferral, NEAR, COMPLETIONS, at(100)));
        for micros in [105, 110, 129] {
            assert!(turn(&mut deferral, NEAR, COMPLETIONS, at(micros)));
            assert_eq!(deferral.deadline(), Some(at(100) + ANSWER_WAIT), "after {micros} µs");
        }
        assert!(deferral.is_overdue(NEAR, || at(130)), "however many turns there were");
    }

    #[test]
    fn the_background_thread_leaves_them_alone_until_their_time_has_come() {
        let mut deferral = Deferral::new(true);
        assert!(turn(&mut deferral, By::Visitor, COMPLETIONS, at(100)));
        assert!(!deferral.is_overdue(FAR, || at(129)));
        assert!(deferral.is_overdue(FAR, || at(130)));
        assert!(deferral.is_overdue(By::Visitor, || panic!("it needs no clock")));
    }

    #[test]
    fn a_device_without_a_background_thread_keeps_none() {
        let mut deferral = Deferral::new(false);
        assert!(!turn(&mut deferral, By::Visitor, COMPLETIONS, at(1)));
        assert!(!deferral.leaves_in_rnic(!deferral.is_overdue(By::Visitor, || at(2)), || true));
    }

    #[test]
    fn those_that_stay_in_the_rnic_count_as_kept_until_they_are_asked_for() {
        let mut deferral = Deferral::new(true);
        assert!(!deferral.leaves_in_rnic(true, || false), "it owes more than acknowledgements");
        assert!(!deferral.leaves_in_rnic(false, || panic!("it is not asked")));
        assert!(deferral.leaves_in_rnic(true, || true));
        deferral.on_flush(false);
        assert!(deferral.keeps_any() && deferral.keeps_in_rnic());
        deferral.release();
        deferral.on_flush(false);
        assert!(!deferral.keeps_any());
    }

    #[test]
    fn the_background_thread_keeps_some_for_visitors_that_are_near() {
        let mut deferral = Deferral::new(true);
        assert!(!turn(&mut deferral, FAR, PACKETS, at(1)));
        assert!(turn(&mut deferral, NEAR, PACKETS, at(2)));
        // No thread answers: the next time it does not wait, and then it does again.
        assert!(!turn(&mut deferral, NEAR, Found::default(), at(40)));
        assert!(!turn(&mut deferral, NEAR, PACKETS, at(41)));
        assert!(turn(&mut deferral, NEAR, PACKETS, at(42)));
        // An answer: the patience is as it was.
        deferral.on_flush(false);
        deferral.end_turn(By::Visitor, true, false, || at(43));
        assert!(turn(&mut deferral, NEAR, PACKETS, at(44)));
    }

    #[test]
    fn a_program_behind_the_door_is_near_for_a_while_after_it_has_rung() {
        let mut deferral = Deferral::new(true);
        assert_eq!(deferral.on_bells(FAR, false, || at(1)), FAR);
        assert_eq!(deferral.on_bells(By::Visitor, true, || at(1)), By::Visitor);
        assert_eq!(deferral.on_bells(FAR, true, || at(10)), NEAR);
        assert_eq!(deferral.on_bells(FAR, false, || at(509)), NEAR);
        assert!(turn(&mut deferral, NEAR, PACKETS, at(509)));
        assert_eq!(deferral.deadline(), Some(at(509) + GUESTS_ANSWER_WAIT));
        assert_eq!(deferral.on_bells(FAR, false, || at(510)), FAR);
    }

    #[test]
    fn a_program_that_does_not_answer_is_waited_for_ever_more_rarely_and_one_that_does_is_again() {
        let patience = Restraint::default();
        let mut turns_between = Vec::new();
        for _ in 0..10 {
            assert!(patience.may_try());
            patience.on_failure();
            turns_between.push((0..).take_while(|_| !patience.may_try()).count());
            // The background thread has just been asked, and may keep some in the next turn too.
            assert!(patience.is_free());
        }
        assert_eq!(turns_between, [1, 3, 7, 15, 31, 63, 127, 255, 255, 255]);
        patience.forgive();
        patience.on_failure();
        assert!(!patience.may_try() && patience.is_free());
    }
}
