//! The machine's monotonic clock, in the protocol's own unit.

use highwire_stdx::Instant;

/// Nanoseconds since the clock was made. All lanes of a device share one origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { origin: std::time::Instant::now() }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let elapsed = self.origin.elapsed();
        // 64 bits of nanoseconds last 584 years.
        Instant::from_nanos(elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()))
    }
}
