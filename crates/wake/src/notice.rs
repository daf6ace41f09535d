//! The word in which a thread says what it does, for others that may have to wake it.
//!
//! A thread that goes to sleep announces that, looks for work a last time, settles and sleeps. A thread with work for it makes the work
//! visible and calls. Why no call is lost: a full fence keeps the two steps apart on both sides, so either the sleeper sees the work,
//! or the caller sees the announcement and rings. A call replaces the announcement, so the sleeper can no longer settle, and no second caller
//! rings.
//!
//! Why no timer is missed: a sleeper that wakes says so, and only then looks for the first timer and settles until then; the thread that
//! sets a timer sets it, and only then asks. So either it learns that no thread sleeps until a later time, or the sleeper sees the
//! timer. The same holds for a leader that leaves its seat, and only then asks whether a thread relies on it.

use crate::duty::{Duty, Said};
use crate::seat::Seat;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::world::may_switch;
use highwire_stdx::Instant;

/// What one thread says. Alone in its cache lines: all threads read it all the time, and only sleeps write it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Notice(AtomicU64);

/// An announcement that is to be settled.
#[derive(Debug)]
#[must_use]
pub struct Announced(u64);

impl Default for Notice {
    fn default() -> Notice {
        Notice(AtomicU64::new(Said::Awake.to_word()))
    }
}

impl Notice {
    /// The thread is about to look for work a last time, and then to sleep until then at the latest.
    pub fn announce(&self, duty: Duty, until: Instant) -> Announced {
        let word = Said::Asleep { duty, until, is_settled: false }.to_word();
        may_switch();
        self.0.swap(word, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        may_switch();
        Announced(word)
    }

    /// The thread has looked, and sleeps until then; false if it was called meanwhile, and must not sleep.
    pub fn settle(&self, announced: Announced, duty: Duty, until: Instant) -> bool {
        let word = Said::Asleep { duty, until, is_settled: true }.to_word();
        may_switch();
        self.0.compare_exchange(announced.0, word, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The thread is awake, and looks for work from now on; true if it was called.
    pub fn end(&self) -> bool {
        let before = self.0.swap(Said::Awake.to_word(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Said::from_word(before) == Said::Called
    }

    /// Ends the sleep, or the one that was announced; true if the caller must ring. The work must be visible before.
    #[inline]
    pub fn call(&self) -> bool {
        may_switch();
        fence(Ordering::SeqCst);
        let mut seen = self.0.load(Ordering::Relaxed);
        while let Said::Asleep { .. } = Said::from_word(seen) {
            let called = Said::Called.to_word();
            match self.0.compare_exchange(seen, called, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    may_switch();
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The caller has just left a leader's seat: ends the sleep if the thread relies on a leader and there is none now; true if the
    /// caller must ring.
    #[inline]
    pub fn call_if_forsaken(&self, seat: &Seat) -> bool {
        self.said_after().relies() && !seat.is_taken() && self.call()
    }

    /// What the thread said last, for one that holds the token of the work: the two have taken it one after the other.
    #[inline]
    pub fn said(&self) -> Said {
        Said::from_word(self.0.load(Ordering::Acquire))
    }

    /// The same after something that the caller has just done.
    #[inline]
    pub fn said_after(&self) -> Said {
        fence(Ordering::SeqCst);
        self.said()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use highwire_stdx::Duration;

    const SOON: Instant = Instant::from_nanos(1_000_000);

    #[test]
    fn the_first_call_rings_and_forbids_the_sleep() {
        let notice = Notice::default();
        assert!(!notice.call(), "it is awake");
        let announced = notice.announce(Duty::Watching, SOON);
        assert!(notice.call() && !notice.call(), "one ring is enough");
        assert_eq!(notice.said(), Said::Called);
        assert!(!notice.settle(announced, Duty::Watching, SOON), "there is work");
        assert!(notice.end() && !notice.end());
        let announced = notice.announce(Duty::Watching, SOON + Duration::from_secs(1));
        assert!(!notice.said_after().wakes_before(None), "it has yet to look");
        assert!(notice.settle(announced, Duty::Watching, SOON));
        assert!(notice.said_after().wakes_before(Some(SOON)));
        assert!(!notice.end(), "it woke by itself");
        assert_eq!(notice.said(), Said::Awake);
    }
}
