//! How long the thread of a device that no other thread runs stays awake without work.
//!
//! A thread that sleeps has to be woken for the next request or packet, and that costs more than a round trip. A thread that stays
//! awake keeps a core from the program that it works for, and from the engine at the other end. So it stays awake only while that has
//! paid, and gives its core away after every turn in vain: whichever thread has something to do then runs at once.
//!
//! It learns as [`Adaptive`](crate::Adaptive) does. After a vigil in vain it sleeps at once the next time, then three times, seven
//! times, up to 255. Two engines that answer each other may both sleep only because the other one does, so a sleep that was over
//! soon makes it try some longer vigils; if those are in vain, it tries that ever more rarely, too. A quick end of a sleep proves
//! nothing by itself: perhaps the work came only because this thread had left its core, to a program to which it cannot give it
//! away (threads of another session or group share the core by the group's turns, whichever of them yields). If other threads had its core for longer than vigils have saved, it keeps none for a while: the
//! scheduler prefers a thread that wakes to one that has given its core away.
//!
//! This module neither reads a clock nor sleeps: the thread reports what its turns find, and asks.

use crate::payoff::{Choice, Payoff, Polled, Terms};
use highwire_stdx::{Duration, Instant};

/// A turn in vain takes less than this if no other thread has the core meanwhile.
const AWAY: Duration = Duration::from_micros(200);
/// What a vigil saves that ends with work: a wake-up. And the most that is saved for the time when another thread has the core.
const SAVED: Duration = Duration::from_micros(10);
const SAVINGS_MAX: Duration = Duration::from_millis(20);
/// A vigil lasts 50 µs at most. After other threads had the core for longer than was saved there is none for 20 ms, and for 160 ms at most.
const TERMS: Terms =
    Terms { budget_ns: 50_000, quick_sleeps_count: false, pause_ns: 20_000_000, pause_max_ns: 160_000_000 };

/// What the thread does until there is work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// It stays awake, or sleeps, as was chosen.
    Chosen(Choice),
    /// It sleeps after a vigil in vain. This vigil is already recorded.
    Spent,
}

/// The thread's experience with its vigils.
#[derive(Debug, Default)]
pub struct Vigil {
    /// Since when there has been no work, and what to do until there is.
    idle: Option<(Instant, Plan)>,
    /// The last turn in vain.
    looked: Instant,
    payoff: Payoff,
    savings_ns: u64,
}

impl Vigil {
    /// After a turn: whether to make another one at once, and not to sleep. Without work, or if the thread `gives_way` after it, the core is to be given away first.
    pub fn goes_on(&mut self, has_worked: bool, gives_way: bool, now: Instant) -> bool {
        if has_worked {
            self.on_work(now);
        }
        has_worked && !gives_way || self.stays_awake(now)
    }

    fn on_work(&mut self, now: Instant) {
        let Some((since, plan)) = self.idle.take() else { return };
        let took_ns = now.saturating_since(since).as_nanos();
        match plan {
            Plan::Chosen(Choice::Sleep) => self.payoff.on_sleep(&TERMS, took_ns),
            Plan::Chosen(choice) => {
                self.savings_ns = (self.savings_ns + SAVED.as_nanos()).min(SAVINGS_MAX.as_nanos());
                self.payoff.on_poll(&TERMS, choice, Polled::Work, took_ns, now.as_nanos());
                if !self.note_look(now) {
                    self.payoff.on_poll(&TERMS, choice, Polled::Crowded, took_ns, now.as_nanos());
                }
            }
            Plan::Spent => {}
        }
    }

    /// A turn has found nothing: whether the thread stays awake.
    fn stays_awake(&mut self, now: Instant) -> bool {
        let (since, plan) = match self.idle {
            Some(idle) => idle,
            None => {
                self.looked = now;
                let choice = self.payoff.choose(&TERMS, now.as_nanos(), true);
                *self.idle.insert((now, Plan::Chosen(choice)))
            }
        };
        let Plan::Chosen(choice) = plan else { return false };
        let (Choice::Poll(longest_ns) | Choice::Trial(longest_ns)) = choice else { return false };
        let took_ns = now.saturating_since(since).as_nanos();
        let polled = if !self.note_look(now) {
            Polled::Crowded
        } else if took_ns < longest_ns {
            return true;
        } else {
            Polled::Vain
        };
        self.payoff.on_poll(&TERMS, choice, polled, took_ns, now.as_nanos());
        self.idle = Some((since, Plan::Spent));
        false
    }

    /// Takes note of another look; false if other threads have had the core for longer than vigils have saved.
    fn note_look(&mut self, now: Instant) -> bool {
        let away = now.saturating_since(std::mem::replace(&mut self.looked, now));
        if away < AWAY {
            return true;
        }
        let left = self.savings_ns.checked_sub(away.as_nanos());
        self.savings_ns = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// Nothing is to be done from `begin` on until work comes after `polled` if the thread stays awake, or after `slept` if it sleeps.
    /// Returns whether it slept, and when the work was found.
    fn wait(vigil: &mut Vigil, begin: u64, polled: u64, slept: u64) -> (bool, u64) {
        let mut micros = 0;
        while vigil.stays_awake(at(begin + micros)) {
            if micros >= polled {
                vigil.on_work(at(begin + micros));
                return (false, begin + micros);
            }
            micros += 1;
        }
        let end = begin + slept.max(micros);
        vigil.on_work(at(end));
        (true, end)
    }

    #[test]
    fn a_thread_stays_awake_while_work_comes_soon_and_after_vigils_in_vain_it_sleeps_ever_longer() {
        let mut vigil = Vigil::default();
        let mut now = 1;
        for _ in 0..1_000 {
            let (slept, then) = wait(&mut vigil, now, 10, 100);
            assert!(!slept);
            now = then + 2;
        }
        let mut in_a_row = Vec::new();
        let mut sleeps = 0;
        while in_a_row.len() < 10 {
            let begin = now;
            let stays = vigil.stays_awake(at(now));
            if stays {
                in_a_row.push(std::mem::take(&mut sleeps));
                while vigil.stays_awake(at(now)) {
                    now += 1;
                }
                assert_eq!(now - begin, 50, "a vigil ends");
            } else {
                sleeps += 1;
            }
            assert!(!vigil.stays_awake(at(now)), "it sleeps on until there is work");
            now = begin + 1_000;
            vigil.on_work(at(now));
        }
        assert_eq!(in_a_row, [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]);
        // A sleep that was over soon makes it try, and work that comes soon brings it back.
        assert_eq!(wait(&mut vigil, now, 10, 40), (true, now + 40));
        assert!((1..500).all(|event| !wait(&mut vigil, now + 50 * event, 10, 100).0));
    }

    #[test]
    fn two_engines_that_sleep_because_the_other_one_does_find_out() {
        for wake in [30, 60, 90] {
            let mut vigils = [Vigil::default(), Vigil::default()];
            for _ in 0..8 {
                vigils.iter_mut().for_each(|vigil| vigil.payoff.polls().on_failure());
            }
            let (mut now, mut has_slept, mut awake) = (1, [true, true], 0);
            for event in 0..400 {
                let (me, peer) = (event % 2, 1 - event % 2);
                let answer = if has_slept[peer] { wake } else { 1 };
                let (slept, then) = wait(&mut vigils[me], now, answer, answer + wake);
                has_slept[me] = slept;
                awake = if has_slept == [false, false] { awake + 1 } else { 0 };
                now = then + 1;
            }
            assert!(awake > 300, "with wake-ups of {wake} us both are awake for {awake} events only");
        }
    }

    #[test]
    fn a_program_that_runs_only_while_the_thread_sleeps_is_not_kept_from_its_core() {
        let mut vigil = Vigil::default();
        let mut now = 1;
        let mut in_vain = 0;
        for event in 0..6_000 {
            let begun = now;
            while vigil.stays_awake(at(now)) {
                now += 1;
            }
            in_vain += if event < 2_000 { 0 } else { now - begun };
            // It answers soon after it has the core.
            now += 20;
            vigil.on_work(at(now));
            now += 1;
        }
        assert!(in_vain < 4_000 * 2, "{in_vain} us in 4000 events");
    }

    #[test]
    fn work_with_a_pace_of_its_own_is_slept_for() {
        for pace in [60, 100, 150, 250, 1_000] {
            let mut vigil = Vigil::default();
            let mut now = 1;
            let mut vigils_of = |events: u32| {
                let awake = (0..events).filter(|_| {
                    let began = now;
                    let first = vigil.stays_awake(at(now));
                    now = wait(&mut vigil, began, pace, pace + 20).1;
                    first
                });
                awake.count()
            };
            vigils_of(2_000);
            let later = vigils_of(4_000);
            assert!(later <= 200, "{later} vigils for 4000 events, {pace} us apart");
        }
    }

    #[test]
    fn where_other_threads_have_the_core_for_longer_than_vigils_have_saved_there_is_none_for_a_while() {
        let mut vigil = Vigil::default();
        let mut now = 1;
        for doubling in 0..8 {
            assert!(vigil.stays_awake(at(now)), "{doubling}");
            now += 200;
            assert!(!vigil.stays_awake(at(now)), "it has been away");
            let until = now + (20_000 << doubling).min(160_000);
            vigil.on_work(at(now + 1));
            assert!(!vigil.stays_awake(at(until - 1)), "{doubling}");
            vigil.on_work(at(until));
            now = until;
        }
        // The thread that was away finds work when it comes back.
        assert!(vigil.stays_awake(at(now)));
        vigil.on_work(at(now + 200));
        assert!(!vigil.stays_awake(at(now + 201)));
        vigil.on_work(at(now + 202));
        // After a long time the pauses start short again.
        now += 6_000_000;
        assert!(vigil.stays_awake(at(now)) && !vigil.stays_awake(at(now + 200)));
        vigil.on_work(at(now + 201));
        assert!(vigil.stays_awake(at(now + 200 + 20_000)));
    }

    #[test]
    fn vigils_that_ended_with_work_pay_for_the_time_of_other_threads_and_for_no_more() {
        let mut vigil = Vigil::default();
        let mut now = 1;
        for _ in 0..100 {
            now = wait(&mut vigil, now, 5, 100).1 + 1;
        }
        // A thousand microseconds are saved: four times 240, and not a fifth time.
        for time in 0..5 {
            assert!(vigil.stays_awake(at(now)), "{time}");
            now += 240;
            vigil.on_work(at(now));
            now += 1;
        }
        assert!(!vigil.stays_awake(at(now)), "it has been away for longer than was saved");
    }
}
