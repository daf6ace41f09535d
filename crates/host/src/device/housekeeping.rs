//! What a device does now and then: it writes its counters for other programs to read, and looks after peers.

use highwire_link::shm::stats::StatsFile;
use highwire_stdx::{Duration, Instant};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The time between two times.
const INTERVAL: Duration = Duration::from_millis(100);
/// Where application threads alone run the device, so many of their visits pass between two looks at the clock.
const VISITS_PER_LOOK: u32 = 256;

/// When it is due, and what was told the last time.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    /// Without the file, `highwire stat` cannot show the device's counters; nothing else depends on it.
    pub(super) stats: Option<StatsFile>,
    /// Visits of application threads, where those alone run the device.
    visits: AtomicU32,
    /// When it is due, in nanoseconds.
    due: AtomicU64,
    /// How often it was done.
    times: AtomicU64,
    /// Visits of application threads to all lanes when the counters were written last, and whether the background thread has had work since.
    told_visits: AtomicU64,
    has_worked: AtomicBool,
}

impl Housekeeping {
    pub(super) fn new(stats: Option<StatsFile>) -> Housekeeping {
        Housekeeping { stats, ..Housekeeping::default() }
    }

    /// A visit of an application thread; true if it is to look at the clock.
    #[inline]
    pub(super) fn note_visit(&self) -> bool {
        // Not an increment: a lost count among several pollers delays the next look a little.
        let visits = self.visits.load(Ordering::Relaxed).wrapping_add(1);
        self.visits.store(visits, Ordering::Relaxed);
        visits.is_multiple_of(VISITS_PER_LOOK)
    }

    /// The background thread has had work.
    pub(crate) fn note_work(&self) {
        self.has_worked.store(true, Ordering::Relaxed);
    }

    /// Whether it is due. Only one thread is told so.
    pub(super) fn take_due(&self, now: Instant) -> bool {
        let (now, due) = (now.as_nanos(), self.due.load(Ordering::Relaxed));
        let next = now + INTERVAL.as_nanos();
        now >= due && self.due.compare_exchange(due, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// It was done.
    pub(super) fn note_done(&self) {
        self.times.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was done.
    pub(super) fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    /// Whether counters may have changed since the last call, if there were so many visits to all lanes by now.
    pub(super) fn has_news(&self, visits: u64) -> bool {
        let were_visited = self.told_visits.swap(visits, Ordering::Relaxed) != visits;
        self.has_worked.swap(false, Ordering::Relaxed) || were_visited
    }
}
