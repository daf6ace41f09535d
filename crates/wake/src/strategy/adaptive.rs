//! The default: a leader polls while that pays, and rests at once while it does not.
//!
//! Its loss against [`Event`](super::Event) is bounded: after a poll in vain it rests at once the next time,
//! then three times, seven times, up to 255; one of those rests that was over within the budget, its wake-up
//! included, makes it poll again. A rest is over when there is an event for any thread that waits, and the leader then
//! chooses anew, still in the same wait: a wait that lasts for hundreds of other threads' events says nothing about how soon they come. Two
//! threads that answer each other may both rest only because the other one
//! does, and then every wait takes two wake-ups: longer than the budget. So if rests are over within a few
//! budgets, it tries some longer polls in a row. If they make the events come within the budget, it goes on
//! polling; events that keep a pace of their own do not, and then it tries that ever more seldom, too.
//!
//! Where the thread that brings the events has the same core, they are there soon after the leader has gone to sleep, and never while it
//! polls. So a poll in vain right after a rest that brought polling back makes such rests count more seldom: one in two, in four, up to 256.
//!
//! No thread polls while more threads of the machine want to run than there are cores: a look every 20 ms
//! finds out, and more looks follow soon after one that says so, because threads that wake each other want to
//! run at the same moment without taking each other's core. The leader looks when those that it has just woken have had its
//! core: otherwise it would take the threads that it serves for a crowd. If another thread had the core while this one
//! polled nevertheless, it stops polling for a time that doubles, however soon events come: the kernel
//! prefers a thread that wakes from sleep to one that has used up its share by polling, and it wakes a thread on an idle core if there is
//! one. The first time is short, because one sleep is enough to get away from a core that is shared while another is idle.

use super::leader_follower::{Habit, lead_or_follow};
use super::{Outcome, Station, Wait, WakeStrategy, nanos};
use crate::duty::Lesson;
use crate::payoff::{Choice, Payoff, Terms};
use crate::sys;
use highwire_stdx::Instant;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How long it does not poll after another thread had the core: the first time, and at most.
const CROWDED_FOR_NS: u64 = 1_000_000;
const CROWDED_FOR_MAX_NS: u64 = 1_024_000_000;
/// The interval between two looks at how many threads want to run. A look costs as much as a few events.
const LOOK_INTERVAL_NS: u64 = 20_000_000;
/// The interval after a look that found too many, until this many in a row have.
const LOOK_AGAIN_NS: u64 = 1_000_000;
const LOOKS_IN_A_ROW: u32 = 4;

/// Chooses between leading and sleeping by what it observes.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    /// How long a leader polls without finding anything.
    pub budget: Duration,
}

/// The experience of a station's threads. Every figure is a hint: a lost update costs a microsecond.
#[derive(Debug, Default)]
pub(super) struct Experience {
    payoff: Payoff,
    /// When to look again whether there are more threads than cores, and how many looks in a row have found
    /// so.
    next_look_ns: AtomicU64,
    full_looks: AtomicU32,
}

/// The strategy at one station.
struct Adapting<'a> {
    terms: Terms,
    station: &'a Station,
}

impl WakeStrategy for Adaptive {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        lead_or_follow(station, wait, &Adapting { terms: terms(self.budget), station })
    }
}

impl Habit for Adapting<'_> {
    fn choose(&self, now: Instant) -> Choice {
        self.station.adaptive.choose(&self.terms, now.as_nanos())
    }

    fn is_full(&self, now: Instant) -> bool {
        self.station.adaptive.is_full(now.as_nanos(), || is_full(self.station.presence.take_absent()))
    }

    fn learn(&self, lesson: Lesson, now: Instant) {
        self.station.adaptive.learn(&self.terms, lesson, now.as_nanos());
    }
}

/// Whether more threads want to run than the machine has cores: both of the whole machine, or a thread that is kept on one core would take
/// those of the others for a crowd on its own. Threads that the leader has woken, and that are `absent` until they have served their events,
/// want to run as well, and are no crowd. If the system does not tell, or if the crowd is on this core alone, a poll finds out.
fn is_full(absent: usize) -> bool {
    sys::runnable_threads().is_some_and(|threads| threads > sys::machine_cores() + absent)
}

/// The terms on which a leader polls.
fn terms(budget: Duration) -> Terms {
    let (pause_ns, pause_max_ns) = (CROWDED_FOR_NS, CROWDED_FOR_MAX_NS);
    Terms { budget_ns: nanos(budget), quick_sleeps_count: true, pause_ns, pause_max_ns }
}

impl Experience {
    fn choose(&self, terms: &Terms, now: u64) -> Choice {
        self.payoff.choose(terms, now, !self.is_known_full(now))
    }

    fn learn(&self, terms: &Terms, lesson: Lesson, now: u64) {
        match lesson {
            Lesson::Polled(choice, polled, took) => {
                self.payoff.on_poll(terms, choice, polled, took.as_nanos(), now);
            }
            Lesson::Slept(took) => self.payoff.on_sleep(terms, took.as_nanos()),
        }
    }

    /// Whether more threads are known to want to run than there are cores. When it is time to look again, it is not known: the leader
    /// polls until it has looked.
    fn is_known_full(&self, now: u64) -> bool {
        self.full_looks.load(Ordering::Relaxed) >= LOOKS_IN_A_ROW
            && now < self.next_look_ns.load(Ordering::Relaxed)
    }

    /// Looks, if it is time; true if more threads want to run than there are cores.
    fn is_full(&self, now: u64, is_full: impl FnOnce() -> bool) -> bool {
        if now >= self.next_look_ns.load(Ordering::Relaxed) {
            let looks = if is_full() { self.full_looks.load(Ordering::Relaxed) + 1 } else { 0 };
            let is_settled = looks == 0 || looks >= LOOKS_IN_A_ROW;
            let next = if is_settled { LOOK_INTERVAL_NS } else { LOOK_AGAIN_NS };
            self.full_looks.store(looks.min(LOOKS_IN_A_ROW), Ordering::Relaxed);
            self.next_look_ns.store(now + next, Ordering::Relaxed);
        }
        self.full_looks.load(Ordering::Relaxed) >= LOOKS_IN_A_ROW
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::payoff::Polled;

    #[test]
    fn where_the_core_is_shared_it_stays_off_polling_for_longer_and_longer() {
        let experience = Experience::default();
        let crowded =
            |now| experience.payoff.on_poll(&terms(BUDGET), Choice::Poll(0), Polled::Crowded, 0, now);
        let is_crowded = |now| experience.payoff.is_paused(now);
        assert!(!is_crowded(0));
        let mut now = 1;
        for doubling in 0..12 {
            crowded(now);
            let until = now + (CROWDED_FOR_NS << doubling).min(CROWDED_FOR_MAX_NS);
            assert!(is_crowded(until - 1) && !is_crowded(until), "{doubling}");
            now = until;
        }
        // Quick events do not end the pause.
        crowded(now);
        experience.payoff.polls().forget_failures();
        assert!(is_crowded(now + CROWDED_FOR_MAX_NS - 1));
        // Pauses are shorter again where polling lasts: a thread that has met another on its core wakes on an idle one.
        let mut pause = CROWDED_FOR_MAX_NS;
        while pause > CROWDED_FOR_NS {
            now += pause + 4 * pause;
            pause /= 2;
            crowded(now);
            assert!(is_crowded(now + pause - 1) && !is_crowded(now + pause));
        }
    }

    #[test]
    fn no_thread_polls_while_more_threads_want_to_run_than_there_are_cores() {
        let experience = Experience::default();
        let mut now = 0;
        for look in 1..LOOKS_IN_A_ROW {
            assert!(
                !experience.is_full(now, || true),
                "look {look} may have met some that have just been woken"
            );
            now += LOOK_AGAIN_NS;
        }
        assert!(experience.is_full(now, || true));
        assert!(experience.is_full(now + LOOK_INTERVAL_NS - 1, || unreachable!("it has just looked")));
        assert_eq!(experience.choose(&terms(BUDGET), now + LOOK_INTERVAL_NS - 1), Choice::Sleep);
        now += LOOK_INTERVAL_NS;
        assert_eq!(
            experience.choose(&terms(BUDGET), now),
            Choice::Poll(nanos(BUDGET)),
            "it is time to look again"
        );
        assert!(experience.is_full(now, || true));
        assert_eq!(experience.choose(&terms(BUDGET), now), Choice::Sleep);
        now += LOOK_INTERVAL_NS;
        assert!(!experience.is_full(now, || false));
        assert!(!experience.is_full(now + LOOK_INTERVAL_NS - 1, || unreachable!("it has just looked")));
        assert!(!experience.is_full(now + LOOK_INTERVAL_NS, || true), "it begins anew");
        assert_eq!(experience.choose(&terms(BUDGET), now + LOOK_INTERVAL_NS), Choice::Poll(nanos(BUDGET)));
    }

    const BUDGET: Duration = Duration::from_micros(50);

    /// Plays a wait that would last `polled` if the thread polled, and `rested` if it slept; returns its
    /// choice.
    fn wait(experience: &Experience, polled: Duration, rested: Duration) -> Choice {
        let choice = experience.choose(&terms(BUDGET), 0);
        let lesson = match choice {
            Choice::Poll(longest) | Choice::Trial(longest) => {
                let end = if nanos(polled) < longest { Polled::Work } else { Polled::Vain };
                Lesson::Polled(choice, end, polled.into())
            }
            Choice::Sleep => Lesson::Slept(rested.into()),
        };
        experience.learn(&terms(BUDGET), lesson, 0);
        choice
    }

    /// An experience of long failure with polls and trials.
    fn disappointed() -> Experience {
        let experience = Experience::default();
        for _ in 0..8 {
            experience.payoff.polls().on_failure();
        }
        experience
    }

    #[test]
    fn two_threads_that_rest_because_the_other_one_does_find_out() {
        for wake_us in [30, 45, 60, 80] {
            let wake = Duration::from_micros(wake_us);
            let threads = [disappointed(), disappointed()];
            // Whether each thread rested in its last wait.
            let mut rested = [true, true];
            let mut fast = 0;
            for event in 0..400 {
                let (me, peer) = (event % 2, 1 - event % 2);
                // The peer answers once it is awake, and this thread sees the answer once it is awake.
                let answer = if rested[peer] { wake } else { Duration::from_micros(1) };
                rested[me] = wait(&threads[me], answer, answer + wake) == Choice::Sleep;
                fast = if rested == [false, false] { fast + 1 } else { 0 };
            }
            assert!(fast > 300, "with wake-ups of {wake_us} us both poll since {fast} events only");
        }
    }

    #[test]
    fn events_with_a_pace_of_their_own_are_polled_for_ever_more_seldom() {
        for pace_us in [60, 100, 150, 250, 1_000] {
            let experience = disappointed();
            let (pace, wake) = (Duration::from_micros(pace_us), Duration::from_micros(20));
            let polls = |experience: &Experience, events: u32| {
                (0..events).filter(|_| wait(experience, pace, pace + wake) != Choice::Sleep).count()
            };
            polls(&experience, 2_000);
            let later = polls(&experience, 4_000);
            assert!(later <= 200, "{later} polls for 4000 events with {pace_us} us between them");
        }
    }

    #[test]
    fn events_that_come_only_while_the_thread_rests_are_polled_for_ever_more_seldom() {
        let experience = Experience::default();
        let polls = |events: u32| {
            let (never, soon) = (Duration::from_secs(1), Duration::from_micros(3));
            (0..events).filter(|_| wait(&experience, never, soon) != Choice::Sleep).count()
        };
        polls(2_000);
        let later = polls(4_000);
        assert!(later <= 40, "{later} polls in vain for 4000 events");
        // Its core is its own now, and events come as soon as before: it polls again, and goes on.
        let soon = Duration::from_micros(3);
        let polls = (0..2_000).filter(|_| wait(&experience, soon, soon) != Choice::Sleep).count();
        assert!(polls >= 1_500, "{polls} polls for 2000 events");
    }

    #[test]
    fn a_trial_ends_where_another_thread_wants_the_core() {
        let experience = disappointed();
        experience.payoff.on_sleep(&terms(BUDGET), nanos(2 * BUDGET));
        assert_eq!(experience.choose(&terms(BUDGET), 0), Choice::Trial(4 * nanos(BUDGET)));
        experience.payoff.on_poll(&terms(BUDGET), Choice::Trial(0), Polled::Crowded, 0, 7);
        assert_eq!(experience.choose(&terms(BUDGET), 8), Choice::Sleep);
        experience.payoff.on_sleep(&terms(BUDGET), nanos(2 * BUDGET));
        assert_eq!(experience.choose(&terms(BUDGET), 9), Choice::Sleep, "it has just seen that");
    }
}
