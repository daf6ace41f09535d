//! How long the background thread does not look at the lanes by itself.
//!
//! A thread of the application that has found completions keeps acknowledgements back for its answer. If there is no answer, it may
//! not come back for a long time, so it keeps none while the background thread sleeps for long. Where that happens often in one sleep to
//! threads that wait, the background thread is woken: it then looks in every now and then.
//!
//! Why no acknowledgement is left behind: the background thread says how long it will sleep, and then looks at each lane, with the lane's
//! token; the other thread looks here with the token, too. So either it sees that the background thread sleeps, or that one sees the
//! acknowledgement.

use highwire_stdx::{Duration, Instant};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A sleep up to this long leaves acknowledgements late, and no peer waiting: it is short beside every timeout.
const SHORT: Duration = Duration::from_millis(1);

/// So often in one sleep a thread goes without it; then it is woken.
const MISSED_MAX: u32 = 8;

/// Until when the background thread sleeps.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    /// In nanoseconds of the device's clock; zero while it is awake.
    until_ns: AtomicU64,
    /// It is woken when the thread that leads goes.
    is_relieved: AtomicBool,
    missed: AtomicU32,
}

impl Absence {
    /// It will sleep until then, and has not yet looked at the lanes.
    pub(crate) fn begin(&self, until: Instant, is_relieved: bool) {
        self.is_relieved.store(is_relieved, Ordering::Relaxed);
        self.missed.store(0, Ordering::Relaxed);
        self.until_ns.store(until.as_nanos().max(1), Ordering::Release);
    }

    /// It is awake, and looks at the lanes before it sleeps again.
    pub(crate) fn end(&self) {
        self.until_ns.store(0, Ordering::Release);
    }

    /// Whether what a thread leaves behind is seen to soon. `leads`: the thread leads, and the next one that does, or the background thread, is
    /// told when it goes.
    #[inline]
    pub(crate) fn is_short(&self, now: Instant, leads: bool) -> bool {
        let until_ns = self.until_ns.load(Ordering::Acquire);
        until_ns <= (now + SHORT).as_nanos() || leads && self.is_relieved.load(Ordering::Relaxed)
    }

    /// A thread would have left something behind, had this not been a long sleep; whether to end the sleep.
    #[inline]
    pub(crate) fn is_missed(&self) -> bool {
        // Not an increment: with several lanes it may come a little later.
        let missed = self.missed.load(Ordering::Relaxed) + 1;
        self.missed.store(missed, Ordering::Relaxed);
        missed == MISSED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sleep_is_no_time_to_leave_work_behind_unless_its_end_is_near_or_told() {
        let absence = Absence::default();
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        assert!(absence.is_short(at(0), false), "it is awake");
        absence.begin(at(100_000), false);
        assert!(!absence.is_short(at(98_999), false) && !absence.is_short(at(98_999), true));
        assert!(absence.is_short(at(99_000), false), "it is about to wake");
        absence.begin(at(100_000), true);
        assert!(!absence.is_short(at(0), false), "a thread that does not lead tells it nothing");
        assert!(absence.is_short(at(0), true));
        let missed = || (1..100).filter(|_| absence.is_missed()).count();
        assert_eq!((missed(), missed()), (1, 0), "it is woken once");
        absence.begin(at(100_000), false);
        assert_eq!((1..MISSED_MAX).filter(|_| absence.is_missed()).count(), 0, "not too soon");
        assert!(absence.is_missed());
        absence.end();
        assert!(absence.is_short(at(0), false));
    }
}
