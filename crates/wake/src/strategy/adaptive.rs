//! The default: a leader polls while that pays, and rests at once while it does not.
//!
//! What it may lose beside [`Event`](super::Event) is bounded: after a poll in vain it rests at once the next time, then three times,
//! seven times, up to 255; one of those rests that was over within the budget, its wake-up included, makes it poll
//! again. Nobody polls while more threads of the machine want to run than there are cores: a look every 20 ms tells. Where
//! another thread had the core while it polled all the same, it stays off polling for a time that doubles, however soon events
//! come: a thread that sleeps is preferred when it wakes, one that polls has used up its share.

use super::leader_follower::{End, lead_or_follow};
use super::restraint::Restraint;
use super::{Outcome, Station, Wait, WakeStrategy};
use crate::sys;
use crate::world;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long it stays off polling after another thread had the core: the first time, and at most.
const CROWDED_FOR_NS: u64 = 20_000_000;
const CROWDED_FOR_MAX_NS: u64 = 1_280_000_000;
/// Between two looks at how many threads want to run. One costs as much as a few events.
const LOOK_INTERVAL_NS: u64 = 20_000_000;

/// Chooses between leading and sleeping by what it observes.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    /// How long a leader polls without finding anything.
    pub budget: Duration,
}

/// What the threads of a station have observed. Every figure is a hint: lost updates cost a microsecond.
#[derive(Debug, Default)]
pub(super) struct Experience {
    /// Waits that are to sleep at once.
    polls: Restraint,
    crowded_until_ns: AtomicU64,
    crowded_for_ns: AtomicU64,
    /// When to look again whether there are more threads than cores, and what the last look said.
    next_look_ns: AtomicU64,
    is_full: AtomicBool,
}

impl WakeStrategy for Adaptive {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        let experience = &station.adaptive;
        if wait.is_ready() {
            return Outcome::Over;
        }
        if experience.polls.may_try() && !experience.is_crowded(station.nanos(world::now()), is_full) {
            let (outcome, end) = lead_or_follow(station, wait, self.budget);
            experience.learn(end, || station.nanos(world::now()));
            return outcome;
        }
        let begin = world::now();
        let (outcome, _) = lead_or_follow(station, wait, Duration::ZERO);
        if outcome == Outcome::Over && world::now() - begin < self.budget {
            experience.polls.forget_failures();
        }
        outcome
    }
}

/// Whether more threads want to run than there are cores for this one. Where the system does not say, a poll finds out.
fn is_full() -> bool {
    sys::runnable_threads().is_some_and(|threads| threads > sys::allowed_cores())
}

impl Experience {
    fn is_crowded(&self, now: u64, is_full: impl FnOnce() -> bool) -> bool {
        if now < self.crowded_until_ns.load(Ordering::Relaxed) {
            return true;
        }
        if now >= self.next_look_ns.load(Ordering::Relaxed) {
            self.next_look_ns.store(now + LOOK_INTERVAL_NS, Ordering::Relaxed);
            self.is_full.store(is_full(), Ordering::Relaxed);
        }
        self.is_full.load(Ordering::Relaxed)
    }

    fn learn(&self, end: End, now: impl FnOnce() -> u64) {
        match end {
            End::Own => self.polls.on_success(),
            End::Spent => self.polls.on_failure(),
            End::Crowded => {
                let before = self.crowded_for_ns.load(Ordering::Relaxed);
                let now = now();
                // Long ago: it begins anew.
                let is_new = now > self.crowded_until_ns.load(Ordering::Relaxed) + 2 * CROWDED_FOR_MAX_NS;
                let for_ns = if is_new {
                    CROWDED_FOR_NS
                } else {
                    (2 * before).clamp(CROWDED_FOR_NS, CROWDED_FOR_MAX_NS)
                };
                self.crowded_for_ns.store(for_ns, Ordering::Relaxed);
                self.crowded_until_ns.store(now + for_ns, Ordering::Relaxed);
            }
            End::Ready | End::Followed | End::Late => {}
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn where_the_core_is_shared_it_stays_off_polling_for_longer_and_longer() {
        let experience = Experience::default();
        assert!(!experience.is_crowded(0, || false));
        let mut now = 1;
        for doubling in 0..8 {
            experience.learn(End::Crowded, || now);
            let until = now + (CROWDED_FOR_NS << doubling).min(CROWDED_FOR_MAX_NS);
            assert!(
                experience.is_crowded(until - 1, || false) && !experience.is_crowded(until, || false),
                "{doubling}"
            );
            now = until;
        }
        // Quick events do not change that.
        experience.learn(End::Crowded, || now);
        experience.polls.forget_failures();
        assert!(experience.is_crowded(now + CROWDED_FOR_MAX_NS - 1, || false));
        // After a long time it begins with a short one.
        now += 4 * CROWDED_FOR_MAX_NS;
        experience.learn(End::Crowded, || now);
        assert!(!experience.is_crowded(now + CROWDED_FOR_NS, || false));
    }

    #[test]
    fn nobody_polls_while_more_threads_want_to_run_than_there_are_cores() {
        let experience = Experience::default();
        assert!(experience.is_crowded(0, || true));
        assert!(experience.is_crowded(LOOK_INTERVAL_NS - 1, || unreachable!("it has just looked")));
        assert!(!experience.is_crowded(LOOK_INTERVAL_NS, || false));
        assert!(!experience.is_crowded(2 * LOOK_INTERVAL_NS - 1, || true));
        assert!(experience.is_crowded(2 * LOOK_INTERVAL_NS, || true));
    }
}
