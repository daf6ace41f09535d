//! Where threads wait for the next phase of a run, a few times per simulated microsecond.
//!
//! A phase may be shorter than the cost of sleeping, so a thread spins for a while. Then it sleeps: where cores are busy
//! with other work, a thread that spins takes the time of the one it waits for. A thread that panics breaks the gate, so
//! that the others do not wait for ever.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

/// About ten microseconds: what a sleep and a wake-up cost.
const SPINS: u32 = 2_000;

/// The number of the present phase, and those who wait for the next one.
pub(super) struct Gate {
    phase: AtomicU64,
    is_broken: AtomicBool,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

/// Breaks the gate if its thread panics while it lives.
pub(super) struct Breaker<'a>(pub(super) &'a Gate);

impl Drop for Breaker<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.is_broken.store(true, Ordering::SeqCst);
            self.0.wake();
        }
    }
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate {
            phase: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// The present phase. What was done in earlier ones is seen.
    pub(super) fn phase(&self) -> u64 {
        self.phase.load(Ordering::Acquire)
    }

    /// Begins the phase after `phase`. Only one thread does so.
    pub(super) fn open(&self, phase: u64) {
        // SeqCst, as in `wait`: either the sleeper sees the new phase, or this thread sees the sleeper.
        self.phase.store(phase + 1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// Returns when `phase` is over.
    ///
    /// # Panics
    /// If another thread has panicked.
    pub(super) fn wait(&self, phase: u64) {
        for _ in 0..SPINS {
            if self.phase() != phase {
                return;
            }
            hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.guard();
        while self.phase.load(Ordering::SeqCst) == phase && !self.is_broken.load(Ordering::SeqCst) {
            guard = self.changed.wait(guard).unwrap_or_else(|broken| broken.into_inner());
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        assert!(!self.is_broken.load(Ordering::SeqCst), "another part of the network has failed");
    }

    /// Under the lock, so that nobody goes to sleep between a look at the phase and the call.
    fn wake(&self) {
        let _guard = self.guard();
        self.changed.notify_all();
    }

    /// The lock guards nothing that a panic could leave half done.
    fn guard(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_before_the_phase_is_over() {
        let gate = Gate::new();
        let reached = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for phase in 0..2_000 {
                        gate.wait(phase);
                        assert!(reached.load(Ordering::Relaxed) > phase);
                    }
                });
            }
            for phase in 0..2_000 {
                reached.store(phase + 1, Ordering::Relaxed);
                gate.open(phase);
                if phase % 100 == 0 {
                    // Long enough for the others to fall asleep, or not: both must work.
                    (0..20 * SPINS).for_each(|_| hint::spin_loop());
                }
            }
        });
    }

    #[test]
    fn a_thread_that_panics_wakes_those_that_wait() {
        let gate = Gate::new();
        let results = thread::scope(|scope| {
            let sleeper = scope.spawn(|| gate.wait(0));
            let failing = scope.spawn(|| {
                let _breaker = Breaker(&gate);
                while gate.sleepers.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
                panic!("a part fails");
            });
            [failing.join().is_err(), sleeper.join().is_err()]
        });
        assert_eq!(results, [true, true]);
    }
}
