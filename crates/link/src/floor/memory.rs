//! Caches and memory: the best exchange between two cores, and of one core with itself.

use super::{Gauge, Pair, Summary, Throughput, nanos_since};
use highwire_stdx::Duration;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One word alone on the pair of lines that the hardware fetches together.
#[repr(align(128))]
struct Line(AtomicU64);

/// Round trips between looks at the clock, which itself costs a quarter of one.
const ROUND_TRIPS_PER_SAMPLE: u64 = 64;

/// Two threads answer each other through two cache lines. Each sample is the average of 64 round trips; `round_trips` is
/// rounded up to whole samples.
pub fn cache_line_round_trip(round_trips: u64) -> Summary {
    let pair = Pair::new();
    let samples = round_trips.div_ceil(ROUND_TRIPS_PER_SAMPLE).max(1);
    let total = samples * ROUND_TRIPS_PER_SAMPLE;
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let await_value = |line: &Line, value: u64| {
        while line.0.load(Ordering::Acquire) != value {
            pair.pause();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pair.settle(1);
            for turn in 1..=total {
                await_value(&there, turn);
                back.0.store(turn, Ordering::Release);
            }
        });
        let asker = scope.spawn(|| {
            pair.settle(0);
            let mut gauge = Gauge::new();
            for sample in 0..samples {
                let start = Instant::now();
                for turn in 1..=ROUND_TRIPS_PER_SAMPLE {
                    let turn = sample * ROUND_TRIPS_PER_SAMPLE + turn;
                    there.0.store(turn, Ordering::Release);
                    await_value(&back, turn);
                }
                gauge.record(nanos_since(start) / ROUND_TRIPS_PER_SAMPLE);
            }
            gauge.summary()
        });
        asker.join().expect("the measuring thread does not panic")
    })
}

/// One thread copies `block_bytes` at a time, `total_bytes` in all, between two buffers that are as large as a block.
pub fn memcpy_throughput(block_bytes: usize, total_bytes: u64) -> Throughput {
    let block_bytes = block_bytes.max(1);
    let source = vec![0xA5u8; block_bytes];
    let mut target = vec![0u8; block_bytes];
    // Short copies share a look at the clock.
    let copies_per_sample = (16_384 / block_bytes as u64).max(1);
    let samples = total_bytes.div_ceil(block_bytes as u64 * copies_per_sample).max(1);
    let mut gauge = Gauge::new();
    let begin = Instant::now();
    for _ in 0..samples {
        let start = Instant::now();
        for _ in 0..copies_per_sample {
            black_box(&mut target).copy_from_slice(black_box(&source));
        }
        gauge.record((nanos_since(start) / copies_per_sample).max(1));
    }
    let elapsed = Duration::from_nanos(nanos_since(begin).max(1));
    let copies = samples * copies_per_sample;
    Throughput {
        sent: copies,
        received: copies,
        bytes: copies * block_bytes as u64,
        elapsed,
        call: gauge.summary(),
    }
}
