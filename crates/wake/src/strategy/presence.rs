//! How many threads wait at a station, and how many have waited there lately.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The threads that wait at a station now, and the most that have at once since the last look. Every figure but the first is a hint.
#[derive(Debug, Default)]
pub(super) struct Presence {
    waiting: AtomicUsize,
    most: AtomicUsize,
}

/// A thread's stay.
pub(super) struct Present<'a>(&'a Presence);

impl Presence {
    /// A thread begins to wait.
    pub(super) fn enter(&self) -> Present<'_> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        if waiting > self.most.load(Ordering::Relaxed) {
            self.most.store(waiting, Ordering::Relaxed);
        }
        Present(self)
    }

    /// How many threads have left to serve their events and will soon wait again, as far as those that wait have been more since the last
    /// call.
    pub(super) fn take_absent(&self) -> usize {
        let waiting = self.waiting.load(Ordering::Relaxed);
        self.most.swap(waiting, Ordering::Relaxed).saturating_sub(waiting)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn threads_are_absent_that_have_waited_since_the_last_look_and_do_not_now() {
        let presence = Presence::default();
        assert_eq!(presence.take_absent(), 0);
        let first = presence.enter();
        let others = [presence.enter(), presence.enter()];
        assert_eq!(presence.take_absent(), 0, "all three wait");
        drop(others);
        assert_eq!(presence.take_absent(), 2);
        assert_eq!(presence.take_absent(), 0, "they have been away since the last look");
        drop(presence.enter());
        assert_eq!(presence.take_absent(), 1);
        drop(first);
        assert_eq!(presence.take_absent(), 1);
        assert_eq!(presence.take_absent(), 0);
    }
}
