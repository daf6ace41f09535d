//! The machine's monotonic clock, in the protocol's own unit.
//!
//! Asking the system costs about as much as handling a small packet's headers. If the system itself uses the
//! processor's time stamp counter, this clock reads the counter directly, once enough time has passed to know
//! its rate.
#![allow(unsafe_code)]

use highwire_stdx::Instant;
use highwire_wake::world;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long the counter is compared with the system's clock before it is believed: the rate is then known to a few parts
/// in a million, as precisely as timers need it.
const CALIBRATION_NANOS: u64 = 20_000_000;

/// Two looks at the counter around one at the system's clock are this close together unless something came between.
const TICKS_TOGETHER: u64 = 4000;
const ATTEMPTS: u32 = 16;

/// Nanoseconds since the clock was made. Clones share one origin.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
    /// The counter at the origin, where there is one that can be used.
    ticks_at_origin: Option<u64>,
    /// Nanoseconds per tick, times 2^32; zero until it is known.
    rate: Arc<AtomicU64>,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        let reliable = is_reliable();
        let (mut before, mut origin) = (ticks(), std::time::Instant::now());
        // Being interrupted between the two would shift all times by as much.
        for _ in 0..ATTEMPTS {
            if !reliable || ticks().wrapping_sub(before) < TICKS_TOGETHER {
                break;
            }
            (before, origin) = (ticks(), std::time::Instant::now());
        }
        Clock { origin, ticks_at_origin: reliable.then_some(before), rate: Arc::default() }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        if let Some(time) = world::time() {
            return Instant::from_nanos(time.as_nanos() as u64);
        }
        let rate = self.rate.load(Ordering::Relaxed);
        match self.ticks_at_origin {
            Some(origin) if rate != 0 => {
                let passed = u128::from(ticks().wrapping_sub(origin));
                Instant::from_nanos(((passed * u128::from(rate)) >> 32) as u64)
            }
            _ => self.ask(),
        }
    }

    #[cold]
    fn ask(&self) -> Instant {
        let before = ticks();
        let elapsed = self.origin.elapsed();
        // 64 bits of nanoseconds last 584 years.
        let nanos = elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos());
        let was_interrupted = ticks().wrapping_sub(before) >= TICKS_TOGETHER;
        if let Some(origin) = self.ticks_at_origin
            && nanos >= CALIBRATION_NANOS
            && !was_interrupted
        {
            let rate = (u128::from(nanos) << 32) / u128::from(before.wrapping_sub(origin).max(1));
            // The first rate stays: time must not jump when two threads find slightly different ones.
            let _ = self.rate.compare_exchange(0, rate as u64, Ordering::Relaxed, Ordering::Relaxed);
        }
        Instant::from_nanos(nanos)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

/// Whether the counter runs at one rate and is the same on all cores: the system uses it only then.
fn is_reliable() -> bool {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    cfg!(target_arch = "x86_64") && source.is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_tells_the_systems_time() {
        let clock = Clock::start();
        let mut last = clock.now();
        // Across the calibration, and as long again.
        while last.as_nanos() < 2 * CALIBRATION_NANOS {
            let now = clock.now();
            assert!(now.as_nanos() + 50_000 >= last.as_nanos(), "{last:?} then {now:?}");
            last = now;
        }
        let system = clock.origin.elapsed().as_nanos() as u64;
        let off = system.abs_diff(clock.now().as_nanos());
        // The bound is wide, because the machine may run other programs between the two readings.
        assert!(off < CALIBRATION_NANOS, "off by {off} ns");
    }
}
