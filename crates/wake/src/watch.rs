//! Until when a thread sleeps on what brings the work.
//!
//! Work has times of its own: an acknowledgement that is missing by then, one that was kept back. A thread that sleeps on the descriptors
//! sleeps until the first of them. A thread that sets an earlier one, and goes to sleep in turn, wakes the other; all others, whose times
//! come later, wake no thread. That is nearly all of them, since a time that is set later is mostly a later one.
//!
//! Why no time is missed: a sleeper that wakes says so, and only then looks for the first time and says until when it sleeps next; the setter
//! sets its time, and only then asks. A full fence keeps the two steps apart on both sides, so either the setter is told that nobody
//! sleeps, or the sleeper sees the time. The bell must be able to end the sleep from before the look.

use crate::sync::{AtomicU64, Ordering, fence};

/// What the thread that sleeps on the work says about it, in nanoseconds of whatever clock both use.
#[derive(Debug, Default)]
pub struct Watch {
    /// Zero: no thread does.
    until: AtomicU64,
}

impl Watch {
    /// The thread is about to sleep until then, having looked for all that is due before.
    pub fn begin(&self, until_ns: u64) {
        self.until.store(until_ns.max(1), Ordering::Release);
    }

    /// It is awake. What it looks at from now on was not set by a thread that takes it to be asleep.
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
