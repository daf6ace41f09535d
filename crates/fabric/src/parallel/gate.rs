//! Where threads wait for each other, a few times per simulated microsecond.
//!
//! A window may be shorter than the cost of sleeping, so threads spin for a while, and yield their core when
//! others are late. A thread that panics breaks the gate, so that the others do not wait for ever.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const SPINS: u32 = 500;

/// Opens when as many threads wait as it was made for.
pub(super) struct Gate {
    count: usize,
    waiting: AtomicUsize,
    rounds: AtomicUsize,
    is_broken: AtomicBool,
}

/// Breaks the gate if its thread panics while it lives.
pub(super) struct Breaker<'a>(pub(super) &'a Gate);

impl Drop for Breaker<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.is_broken.store(true, Ordering::Relaxed);
        }
    }
}

impl Gate {
    pub(super) fn new(count: usize) -> Gate {
        let zero = AtomicUsize::new;
        Gate { count, waiting: zero(0), rounds: zero(0), is_broken: AtomicBool::new(false) }
    }

    /// Returns when all threads have come. What a thread did before it came, all see afterwards.
    ///
    /// # Panics
    /// If a thread that should come has panicked.
    pub(super) fn wait(&self) {
        let round = self.rounds.load(Ordering::Acquire);
        // AcqRel: the last thread to come sees what all did before, and publishes it with `rounds`.
        if self.waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
            self.waiting.store(0, Ordering::Relaxed);
            self.rounds.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.rounds.load(Ordering::Acquire) == round {
            if spins < SPINS {
                spins += 1;
                hint::spin_loop();
            } else {
                assert!(!self.is_broken.load(Ordering::Relaxed), "another part of the network has failed");
                thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_before_all_have_come() {
        let gate = Gate::new(3);
        let come = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=200 {
                        come.fetch_add(1, Ordering::Relaxed);
                        gate.wait();
                        assert_eq!(come.load(Ordering::Relaxed), 3 * round);
                        gate.wait();
                    }
                });
            }
        });
    }
}
