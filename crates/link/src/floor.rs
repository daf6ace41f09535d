//! The limits of this machine: bare UDP, caches and memory.
//!
//! Ratios to these figures say how good everything above is, on any machine and under any load, provided that both were
//! taken in one run. Two threads on two cores poll; on a machine with one core they yield to each other and the figures
//! say little. Every function is bounded by the counts that it is given.

mod memory;
mod udp;

pub use memory::{cache_line_round_trip, memcpy_throughput};
pub use udp::{udp_gso_throughput, udp_message_rate, udp_round_trip};

use crate::sys;
use hdrhistogram::Histogram;
use highwire_stdx::Duration;
use std::io;
use std::time::Instant;

/// The distribution of a time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The number of samples.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Half of the samples were at most this.
    pub median_ns: u64,
    /// Ninety-nine of a hundred samples were at most this.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The average.
    pub mean_ns: f64,
}

/// How much went through in how much time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that arrived; for memory the same.
    pub received: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// From the first to the last.
    pub elapsed: Duration,
    /// The time of one call: one message, one train, one copy.
    pub call: Summary,
}

impl Throughput {
    /// Messages that arrived, per second.
    pub fn messages_per_second(&self) -> f64 {
        self.received as f64 / self.elapsed.as_secs_f64()
    }

    /// Bytes that arrived, per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

/// Binds the calling thread to one core.
///
/// # Errors
/// The core does not exist or is forbidden to this process.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    sys::pin_to(&[core])
}

/// The cores that the calling thread may run on, in ascending order.
///
/// # Errors
/// Those of `sched_getaffinity`.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    sys::allowed_cores()
}

/// How two measuring threads share the machine.
#[derive(Clone, Copy)]
struct Pair {
    cores: Option<[usize; 2]>,
}

impl Pair {
    /// Two different cores if there are two.
    fn new() -> Pair {
        let cores = sys::allowed_cores().unwrap_or_default();
        Pair { cores: cores.first().zip(cores.get(1)).map(|(&a, &b)| [a, b]) }
    }

    /// Binds the calling thread, the `side`th of the two. A refusal only makes the figures less steady.
    fn settle(self, side: usize) {
        if let Some(cores) = self.cores {
            let _ = pin_to_core(cores[side]);
        }
    }

    /// A pause between two looks at memory that the other side changes.
    #[inline]
    fn pause(self) {
        match self.cores {
            Some(_) => std::hint::spin_loop(),
            None => std::thread::yield_now(),
        }
    }

    /// As `pause`, but lets others run after a while: where cores are shared, the other side may be waiting for one.
    #[inline]
    fn pause_politely(self, idle: &mut u32) {
        *idle = idle.saturating_add(1);
        if *idle < 1_000 { self.pause() } else { std::thread::yield_now() }
    }
}

/// Gathers times into a [`Summary`].
struct Gauge {
    histogram: Histogram<u64>,
}

impl Gauge {
    fn new() -> Gauge {
        // Up to ten seconds with three significant digits.
        let histogram = Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("the bounds are in order");
        Gauge { histogram }
    }

    fn record(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos);
    }

    fn summary(&self) -> Summary {
        let h = &self.histogram;
        Summary {
            count: h.len(),
            min_ns: h.min(),
            median_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
            max_ns: h.max(),
            mean_ns: h.mean(),
        }
    }
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Ends a wait that would otherwise last for ever: a datagram may be lost even on loopback.
struct Patience {
    spins: u32,
    since: Option<Instant>,
}

impl Patience {
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(1);

    fn new() -> Patience {
        Patience { spins: 0, since: None }
    }

    /// Whether it has run out. Looks at the clock only now and then, so as not to disturb the measurement.
    fn is_over(&mut self) -> bool {
        self.spins = self.spins.wrapping_add(1);
        if !self.spins.is_multiple_of(4096) {
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() > Patience::LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plausible(summary: &Summary) {
        assert!(summary.count > 0 && summary.median_ns > 0, "{summary:?}");
        assert!(summary.min_ns <= summary.median_ns && summary.median_ns <= summary.p99_ns, "{summary:?}");
        assert!(summary.p99_ns <= summary.max_ns, "{summary:?}");
    }

    #[test]
    fn every_floor_gives_an_answer() {
        plausible(&udp_round_trip(48, 200).unwrap());
        plausible(&cache_line_round_trip(6_400));
        let copies = memcpy_throughput(4096, 1 << 20);
        plausible(&copies.call);
        assert_eq!(copies.bytes, 1 << 20);
        let rate = udp_message_rate(48, 500).unwrap();
        plausible(&rate.call);
        assert_eq!(rate.sent, 500);
        assert!(rate.received <= 500 && rate.bytes == 48 * rate.received);
        match udp_gso_throughput(1024, 2_000) {
            Ok(trains) => {
                plausible(&trains.call);
                assert!(trains.received > 0 && trains.bytes == 1024 * trains.received, "{trains:?}");
            }
            Err(error) => println!("skipped: {error}"),
        }
    }

    #[test]
    fn senseless_sizes_are_refused() {
        assert!(udp_round_trip(0, 10).is_err());
        assert!(udp_round_trip(65_001, 10).is_err());
        assert!(udp_gso_throughput(0, 10).is_err());
        assert!(pin_to_core(1 << 20).is_err());
    }

    #[test]
    fn a_thread_can_be_bound_to_a_core() {
        std::thread::spawn(|| {
            let cores = allowed_cores().unwrap();
            pin_to_core(cores[0]).unwrap();
            assert_eq!(allowed_cores().unwrap(), cores[..1]);
        })
        .join()
        .unwrap();
    }
}
