//! Threads that poll in vain on a core that other threads poll on, or beside more neighbours than there are cores.
//!
//! Each of them would keep its core until the scheduler takes it away, milliseconds later, while the thread that it waits for
//! cannot run: four MPI ranks on two cores. So such a thread gives its core away now and then, and after each poll in vain while another one
//! polls on this very core ([`Company`]). A polling thread that has its core to itself, with enough cores for a process and its
//! neighbours, does not yield: any other program on the machine would take the core for as long as the scheduler lets it.

use crate::company::{Company, Look};
use crate::sys;
use highwire_stdx::Instant;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Empty polls of one queue after which its thread looks around, and gives its core away if there is a crowd.
const POLLS_PER_TURN: u32 = 64;

/// Whether a device and its neighbours outnumber the cores.
#[derive(Debug)]
pub(crate) struct Crowd {
    cores: usize,
    is_crowd: AtomicBool,
    turns: AtomicU64,
}

/// Polls of one queue in a row that have found nothing, and what its thread knows of others on its core.
#[derive(Debug, Default)]
pub(crate) struct EmptyPolls {
    count: AtomicU32,
    look: Look,
}

impl Crowd {
    pub(crate) fn new(cores: usize) -> Crowd {
        Crowd { cores, is_crowd: AtomicBool::new(false), turns: AtomicU64::new(0) }
    }

    /// The device has so many neighbours now.
    pub(crate) fn note(&self, neighbours: usize) {
        self.is_crowd.store(neighbours >= self.cores, Ordering::Relaxed);
    }

    /// A thread has polled in vain for a while: where there is a crowd, or another thread polls on this core, others get the core.
    /// Whether they did.
    #[cold]
    pub(crate) fn give_way(&self, polls: &EmptyPolls, company: &Company, now: Instant) -> bool {
        let is_crowded = company.shares_core(&polls.look, now) || self.is_crowd.load(Ordering::Relaxed);
        if is_crowded {
            self.make_way();
        }
        is_crowded
    }

    /// Gives this thread's core to others.
    pub(crate) fn make_way(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        sys::be_patient();
        highwire_wake::yield_core();
        #[cfg(test)]
        if let Some(others) = MEANWHILE.take() {
            others();
        }
    }

    /// How often a thread has given its core away.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
}

impl EmptyPolls {
    /// How many polls in a row have found nothing: another number while a thread polls in vain.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Notes one poll; true if so many in a row have found nothing that the thread should [give way](Crowd::give_way),
    /// or one, if its core is shared.
    #[inline]
    pub(crate) fn note(&self, found: bool) -> bool {
        // Not an increment: of several pollers' counts some get lost.
        let empty = self.count.load(Ordering::Relaxed);
        if found {
            if empty != 0 {
                self.count.store(0, Ordering::Relaxed);
            }
            return false;
        }
        let empty = empty.wrapping_add(1);
        self.count.store(empty, Ordering::Relaxed);
        empty.is_multiple_of(POLLS_PER_TURN) || self.look.is_shared()
    }
}

#[cfg(test)]
thread_local! {
    /// What others do while the thread of a test has given its core away.
    pub(crate) static MEANWHILE: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_way_after_many_polls_in_a_row_that_found_nothing() {
        let polls = EmptyPolls::default();
        for _ in 0..3 {
            assert!((1..POLLS_PER_TURN).all(|_| !polls.note(false)));
            assert!(polls.note(false));
        }
        assert!((1..POLLS_PER_TURN).all(|_| !polls.note(false)));
        assert!(!polls.note(true) && !polls.note(false), "it begins anew");
    }

    #[test]
    fn cores_are_given_away_only_where_a_device_and_its_neighbours_outnumber_them() {
        let crowd = Crowd::new(2);
        for (neighbours, turns) in [(0, 0), (1, 0), (2, 1), (7, 2), (1, 2)] {
            crowd.note(neighbours);
            let gave = crowd.give_way(&EmptyPolls::default(), &Company::default(), Instant::ZERO);
            assert_eq!((gave, crowd.turns()), (neighbours > 1, turns), "{neighbours} neighbours");
        }
    }
}
