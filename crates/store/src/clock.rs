//! A node's clock: nanoseconds since the machine was started, including the time that it slept.
//!
//! Leases rest on the *rate* of this clock. The kernel slews it by at most 500 ppm (`adjtimex(2)`), and a quartz is off by less than 200; the
//! bound of [`DRIFT_PPM_MAX`] leaves room. `CLOCK_MONOTONIC` would stand still while a laptop or a virtual machine is suspended, and a
//! node would believe in leases that are long over.

use rustix::time::{ClockId, clock_gettime};

/// How far the rates of nodes' clocks may be from true time, in millionths.
pub(crate) const DRIFT_PPM_MAX: u64 = 1000;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// The time now.
    #[inline]
    pub fn now_ns(self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}
