//! When a thread that sleeps on the source of work wakes by itself.
//!
//! Work has timers of its own: for a missing acknowledgement, or for one that was delayed. A thread that
//! sleeps on the descriptors sleeps until the first of them. A thread that sets an earlier timer, and goes to
//! sleep in turn, wakes the other; a later timer wakes no thread. Nearly all timers are later, since a timer
//! that is set later is mostly due later.
//!
//! Why no timer is missed: a sleeper that wakes says so, and only then looks for the first timer and says
//! until when it sleeps next; the setter sets its timer, and only then asks. A full fence keeps the two steps
//! apart on both sides, so either the setter learns that no thread sleeps, or the sleeper sees the timer. The
//! bell must be able to end the sleep from before the look.

use crate::sync::{AtomicU64, Ordering, fence};

/// Until when a thread sleeps on the work, in nanoseconds of any clock that both sides use.
#[derive(Debug, Default)]
pub struct Watch {
    /// Zero: no thread sleeps on it.
    until: AtomicU64,
}

impl Watch {
    /// The thread is about to sleep until then, and has looked for all timers that are due before.
    pub fn begin(&self, until_ns: u64) {
        self.until.store(until_ns.max(1), Ordering::Release);
    }

    /// The thread is awake. Timers that it looks at from now on were not set by a thread that believes it
    /// asleep.
    pub fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether a thread sleeps on the work, and wakes by itself before `deadline`, which has been set before this call.
    pub fn wakes_before(&self, deadline_ns: u64) -> bool {
        fence(Ordering::SeqCst);
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && until <= deadline_ns
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_due_before_the_sleep_ends_needs_a_bell() {
        let watch = Watch::default();
        assert!(!watch.wakes_before(u64::MAX), "nobody sleeps");
        watch.begin(100);
        assert!(watch.wakes_before(100) && watch.wakes_before(u64::MAX));
        assert!(!watch.wakes_before(99));
        watch.end();
        assert!(!watch.wakes_before(100));
    }
}
