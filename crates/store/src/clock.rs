//! A node's clock: nanoseconds since the machine was started, including the time that it slept.
//!
//! Leases rest on the *rate* of this clock. The kernel slews it by at most 500 ppm (`adjtimex(2)`), and a quartz is off by less than 200; the
//! bound of [`DRIFT_PPM_MAX`] leaves room. `CLOCK_MONOTONIC` would stand still while a laptop or a virtual machine is suspended, and a
//! node would believe in leases that are long over.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// How far the rates of nodes' clocks may be from true time, in millionths.
pub(crate) const DRIFT_PPM_MAX: u64 = 1000;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// The time now.
    #[inline]
    pub fn now_ns(self) -> u64 {
        #[cfg(test)]
        if let Some(now_ns) = simulated::now_ns() {
            return now_ns;
        }
        let now = clock_gettime(ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

/// The time of day at a node, by which keys expire. Nodes' may differ, and each may step in either direction.
///
/// Tests move it, instead of waiting.
#[derive(Clone, Debug, Default)]
pub struct Wall(Arc<WallState>);

#[derive(Debug, Default)]
struct WallState {
    ahead_ms: AtomicI64,
    is_unswept: AtomicBool,
}

impl Wall {
    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        let now = clock_gettime(ClockId::Realtime);
        let now_us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        #[cfg(test)]
        let now_us = simulated::now_ns().map_or(now_us, |now_ns| (now_ns / 1000) as i64);
        let ahead_us = self.0.ahead_ms.load(Ordering::Relaxed).saturating_mul(1000);
        u64::try_from(now_us.saturating_add(ahead_us)).unwrap_or(0)
    }

    /// Steps forwards, or back.
    pub fn step(&self, by_ms: i64) {
        self.0.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Whether the node looks for keys that have expired and that nobody reads.
    pub fn set_swept(&self, is_swept: bool) {
        self.0.is_unswept.store(!is_swept, Ordering::Relaxed);
    }

    pub(crate) fn is_swept(&self) -> bool {
        !self.0.is_unswept.load(Ordering::Relaxed)
    }
}

/// The time of a simulation, which takes the place of the machine's on the thread that runs it.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;

    thread_local! {
        static NOW_NS: Cell<Option<u64>> = const { Cell::new(None) };
    }

    pub(crate) fn now_ns() -> Option<u64> {
        NOW_NS.get()
    }

    pub(crate) fn set(now_ns: Option<u64>) {
        NOW_NS.set(now_ns);
    }
}
