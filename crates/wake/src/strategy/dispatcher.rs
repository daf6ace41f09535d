//! A dispatcher: a thread that polls for all threads that sleep on its core.

use super::{Outcome, Station, TURNS_PER_CLOCK, Turn, Wait, WakeStrategy, Work};
use crate::seat::Leading;
use crate::sys::{self, Priority};
use crate::word::WakeWord;
use crate::world;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Sleeps at once; a thread of the same core, the dispatcher, polls for all that sleep there, and makes way for the thread that it wakes. The
/// paper's design for low latency.
///
/// [`serve`](Self::serve) is for a thread that may run only when no other does. [`serve_for`](Self::serve_for) is for one that leads, and
/// sleeps while nothing happens.
#[derive(Debug)]
pub struct Dispatcher {
    /// The word on which the dispatcher itself sleeps while no thread waits.
    bell: WakeWord,
    waiting: AtomicU64,
    beats: AtomicU64,
    is_closing: AtomicBool,
    /// A dispatcher leads: work that a thread leaves behind is done by its next turn.
    leads: AtomicBool,
    /// How long it polls without any work, although threads wait.
    quiet: Duration,
}

/// Turns without a waiting thread after which a dispatcher sleeps.
const LONELY_TURNS_MAX: u32 = 4096;
/// After so long without work a dispatcher that leads sleeps until a thread begins to wait.
const QUIET: Duration = Duration::from_secs(1);

impl WakeStrategy for Dispatcher {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        if wait.is_ready() {
            return Outcome::Over;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        // Posts without looking for sleepers: the dispatcher may be about to sleep.
        self.bell.post();
        station.note_sleep_here();
        let outcome = wait.sleep_until_over(|| {
            if self.leads.load(Ordering::Acquire) {
                wait.work.leave_to_leader()
            } else {
                wait.work.hand_over()
            }
        });
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        outcome
    }
}

impl Default for Dispatcher {
    fn default() -> Dispatcher {
        Dispatcher {
            bell: WakeWord::default(),
            waiting: AtomicU64::new(0),
            beats: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            leads: AtomicBool::new(false),
            quiet: QUIET,
        }
    }
}

impl Dispatcher {
    /// Runs the dispatcher until [`close`](Self::close). If the system refuses the lowest priority it runs as
    /// any other thread: the waiting threads then take turns with it.
    pub fn serve(&self, work: &dyn Work) {
        self.serve_at(None, work);
    }

    /// As [`serve`](Self::serve); with a priority, for which the process needs permission, it runs before all
    /// ordinary threads, so that no other program keeps it from looking. It then has the core to itself,
    /// except for threads of a higher priority: threads that it wakes should have one.
    pub fn serve_at(&self, priority: Option<Priority>, work: &dyn Work) {
        let is_urgent = priority.is_some_and(|priority| sys::run_urgently(priority).is_ok());
        let makes_way = is_urgent || sys::run_only_when_idle().is_ok();
        let mut lonely = 0;
        while !self.is_closing.load(Ordering::Acquire) {
            let turn = work.turn();
            self.beats.store(self.beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            if turn == Turn::Woke && !makes_way {
                sys::yield_core();
            } else if !turn.is_work() && work.shares_core() {
                // Another process's dispatcher, perhaps: of two that run only when no other thread does, each would keep the core for a
                // whole time slice.
                work.make_way();
            }
            lonely = if self.waiting.load(Ordering::Acquire) > 0 { 0 } else { lonely + 1 };
            if lonely > LONELY_TURNS_MAX {
                self.rest(work);
                lonely = 0;
            }
        }
    }

    /// The same for a thread with the usual priority, that leads at a station: other threads see whether it runs, and one that needs its core
    /// has it after the present turn. While nothing happens it leaves the work to the background thread.
    pub fn serve_for(&self, station: &Station, work: &dyn Work) {
        while !self.is_closing.load(Ordering::Acquire) {
            let posts = self.bell.posts();
            if self.waiting.load(Ordering::Acquire) > 0
                && let Some(leading) = station.seat.try_take()
            {
                self.leads.store(true, Ordering::Release);
                self.poll_while_wanted(&leading, work);
                self.leads.store(false, Ordering::Release);
                drop(leading);
                // A thread that has left its work to the dispatcher did so before.
                work.hand_over();
            }
            if !self.is_closing.load(Ordering::Acquire) {
                self.bell.sleep(posts, None);
            }
        }
    }

    fn poll_while_wanted(&self, leading: &Leading<'_>, work: &dyn Work) {
        let (mut lonely, mut turns, mut worked) = (0, 0u64, world::now());
        while lonely <= LONELY_TURNS_MAX && !self.is_closing.load(Ordering::Acquire) {
            let turn = work.turn();
            leading.beat();
            turns += 1;
            lonely = if self.waiting.load(Ordering::Acquire) > 0 { 0 } else { lonely + 1 };
            if turn.is_work() {
                worked = world::now();
            }
            match turn {
                Turn::Worked => continue,
                Turn::Woke => sys::yield_core(),
                Turn::Idle | Turn::Taken if work.shares_core() => work.make_way(),
                // Any thread that wants this core has it now; if none does, this is a short call.
                Turn::Idle | Turn::Taken => sys::yield_core(),
            }
            if turns.is_multiple_of(TURNS_PER_CLOCK) && world::now() - worked > self.quiet {
                return;
            }
        }
    }

    /// Sleeps until a thread waits.
    fn rest(&self, work: &dyn Work) {
        let posts = self.bell.posts();
        if self.waiting.load(Ordering::Acquire) == 0 && !self.is_closing.load(Ordering::Acquire) {
            work.hand_over();
            self.bell.sleep(posts, None);
        }
    }

    /// How often the dispatcher has said that it runs.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Ends [`serve`](Self::serve).
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.bell.post_all();
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A dispatcher's work that finds something in every second turn, and ends after 100.
    struct Alternating<'a> {
        dispatcher: &'a Dispatcher,
        is_shared: bool,
        turns: Cell<u64>,
        ways: Cell<u64>,
    }

    impl Work for Alternating<'_> {
        fn turn(&self) -> Turn {
            self.turns.set(self.turns.get() + 1);
            if self.turns.get() == 100 {
                self.dispatcher.close();
            }
            if self.turns.get().is_multiple_of(2) { Turn::Worked } else { Turn::Idle }
        }
        fn hand_over(&self) {}
        fn shares_core(&self) -> bool {
            self.is_shared
        }
        fn make_way(&self) {
            self.ways.set(self.ways.get() + 1);
        }
    }

    #[test]
    fn a_dispatcher_makes_way_after_each_turn_in_vain_where_another_one_polls_on_its_core() {
        for (is_shared, expected) in [(true, 50), (false, 0)] {
            let dispatcher = Dispatcher::default();
            let [turns, ways] = [const { Cell::new(0) }; 2];
            let work = Alternating { dispatcher: &dispatcher, is_shared, turns, ways };
            dispatcher.serve(&work);
            assert_eq!((work.turns.get(), work.ways.get()), (100, expected));
        }
    }

    /// Longer than anything takes here, however busy the machine is.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let begin = world::now();
        while !is_so() {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            std::thread::yield_now();
        }
    }

    /// Work that has an event for a thread in every hundredth turn, while it has any.
    struct Events {
        word: WakeWord,
        are_there: AtomicU64,
        left: AtomicU64,
        turns: AtomicU64,
        /// By the dispatcher. The thread that waits, and made this, leaves its work as well.
        handed_over: AtomicU64,
        waits: std::thread::ThreadId,
    }

    impl Work for Events {
        fn turn(&self) -> Turn {
            let turns = self.turns.fetch_add(1, Ordering::SeqCst) + 1;
            if !turns.is_multiple_of(100) || self.left.load(Ordering::SeqCst) == 0 {
                return Turn::Idle;
            }
            self.left.fetch_sub(1, Ordering::SeqCst);
            self.are_there.fetch_add(1, Ordering::SeqCst);
            if self.word.post() == crate::Posted::Woke { Turn::Woke } else { Turn::Worked }
        }
        fn hand_over(&self) {
            if std::thread::current().id() != self.waits {
                self.handed_over.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Ends a dispatcher, also if the test fails.
    struct Closing<'a>(&'a Dispatcher);

    impl Drop for Closing<'_> {
        fn drop(&mut self) {
            self.0.close();
        }
    }

    /// Runs a dispatcher that leads, and `wait` beside it.
    fn beside(quiet: Duration, events: u64, wait: impl FnOnce(&Dispatcher, &Station, &Events)) -> Events {
        let dispatcher = Dispatcher { quiet, ..Dispatcher::default() };
        let station = Station::new();
        let waits = std::thread::current().id();
        let [are_there, turns, handed_over] = [const { AtomicU64::new(0) }; 3];
        let work = Events {
            word: WakeWord::default(),
            are_there,
            left: AtomicU64::new(events),
            turns,
            handed_over,
            waits,
        };
        std::thread::scope(|threads| {
            threads.spawn(|| dispatcher.serve_for(&station, &work));
            let _closing = Closing(&dispatcher);
            wait(&dispatcher, &station, &work);
        });
        assert!(!station.seat.is_taken(), "it has gone");
        work
    }

    fn wait_once(dispatcher: &Dispatcher, station: &Station, work: &Events) -> crate::Figures {
        let account = crate::Account::default();
        let taken = Cell::new(false);
        let is_over = || {
            let is_there = |there: u64| there.checked_sub(1);
            let took = !taken.get()
                && work.are_there.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_there).is_ok();
            taken.set(taken.get() || took);
            taken.get()
        };
        let wait = Wait {
            word: &work.word,
            place: None,
            account: &account,
            is_over: &is_over,
            work,
            deadline: Some(world::now() + PATIENCE),
        };
        assert_eq!(dispatcher.wait(station, &wait), Outcome::Over);
        account.figures()
    }

    #[test]
    fn a_dispatcher_that_leads_finds_the_events_of_threads_that_only_sleep() {
        const HOUR: Duration = Duration::from_secs(3600);
        let work = beside(HOUR, 50, |dispatcher, station, work| {
            for _ in 0..50 {
                assert_eq!(wait_once(dispatcher, station, work).own(), 0, "it has not polled");
            }
            assert!(station.seat.beats() > 0, "others see that it runs");
            // No thread waits: it goes, and says so.
            until("it hands the work over", || work.handed_over.load(Ordering::SeqCst) > 0);
        });
        assert!(work.turns.load(Ordering::SeqCst) >= 5_000);
    }

    #[test]
    fn while_nothing_happens_it_leaves_the_work_to_others_and_the_next_wait_brings_it_back() {
        beside(Duration::ZERO, 0, |dispatcher, station, work| {
            std::thread::scope(|threads| {
                let waiting = threads.spawn(|| wait_once(dispatcher, station, work));
                // Twice: the thread that waits leaves its work as well, as long as no dispatcher leads.
                until("it comes and goes", || station.seat.beats() > 0 && !station.seat.is_taken());
                assert!(!waiting.is_finished(), "its event has not come");
                // The background thread finds it.
                work.are_there.fetch_add(1, Ordering::SeqCst);
                work.word.post();
                waiting.join().expect("no panic");
            });
            let before = station.seat.beats();
            work.left.store(1, Ordering::SeqCst);
            std::thread::scope(|threads| {
                let waiting = threads.spawn(|| wait_once(dispatcher, station, work));
                until("it is back", || station.seat.beats() != before);
                work.are_there.fetch_add(1, Ordering::SeqCst);
                work.word.post();
                waiting.join().expect("no panic");
            });
        });
    }
}
