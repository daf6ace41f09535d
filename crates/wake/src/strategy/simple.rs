//! The strategies without memory: spin, or sleep at once while other threads do the work.

use super::{Outcome, Station, TURNS_PER_CLOCK, Turn, Wait, WakeStrategy, Work};
use crate::account::Kind;
use crate::sys::{self, Priority};
use crate::word::WakeWord;
use crate::world;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Spins until the event is there: the shortest possible wait, at a core for each thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusyPoll;

impl WakeStrategy for BusyPoll {
    fn wait(&self, _station: &Station, wait: &Wait<'_>) -> Outcome {
        // Read before the look, and not again in each turn: another thread may post between two turns.
        let mut posts = wait.word.posts();
        if wait.is_ready() {
            return Outcome::Over;
        }
        let begin = world::now();
        let mut turns = 0;
        loop {
            wait.work.turn();
            turns += 1;
            let is_over = std::mem::replace(&mut posts, wait.word.posts()) != posts && (wait.is_over)();
            if is_over || (turns % TURNS_PER_CLOCK == 0 && wait.is_late(world::now())) {
                let (kind, outcome) =
                    if is_over { (Kind::Own, Outcome::Over) } else { (Kind::InVain, Outcome::TimedOut) };
                wait.account.note(kind, turns, world::now() - begin);
                return outcome;
            }
        }
    }
}

/// Sleeps at once; the thread that runs the work wakes it, from any core. As a card's completion channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event;

impl WakeStrategy for Event {
    fn wait(&self, _station: &Station, wait: &Wait<'_>) -> Outcome {
        if wait.is_ready() { Outcome::Over } else { wait.sleep_until_over(0, std::time::Duration::ZERO) }
    }
}

/// Sleeps at once, and records its core: the thread that runs the work moves to that core, since a thread is
/// woken several times faster from its own core than from another. The paper's design for saving power.
#[derive(Clone, Copy, Debug, Default)]
pub struct Affine;

impl WakeStrategy for Affine {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        if wait.is_ready() {
            return Outcome::Over;
        }
        station.note_sleep_here();
        wait.sleep_until_over(0, std::time::Duration::ZERO)
    }
}

/// Sleeps at once; a thread of the same core, the dispatcher, polls for all that sleep there
/// ([`Dispatcher::serve`]), and makes way for the thread that it wakes because it runs only when nothing else
/// does. The paper's design for low latency.
#[derive(Debug, Default)]
pub struct Dispatcher {
    /// The word on which the dispatcher itself sleeps while no thread waits.
    bell: WakeWord,
    waiting: AtomicU64,
    beats: AtomicU64,
    is_closing: AtomicBool,
}

/// Turns without a waiting thread after which a dispatcher sleeps.
const LONELY_TURNS_MAX: u32 = 4096;

impl WakeStrategy for Dispatcher {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        if wait.is_ready() {
            return Outcome::Over;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        // Posts without looking for sleepers: the dispatcher may be about to sleep.
        self.bell.post();
        station.note_sleep_here();
        let outcome = wait.sleep_until_over(0, std::time::Duration::ZERO);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        outcome
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
}
