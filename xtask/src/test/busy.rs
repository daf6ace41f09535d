//! Threads that keep the machine busy, so that tests show how patient they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Threads that compute until this is dropped.
pub(super) struct Busy {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Busy {
    pub(super) fn start(threads: u32) -> Busy {
        let ends = Arc::new(AtomicBool::new(false));
        let threads = (0..threads)
            .map(|seed| {
                let ends = Arc::clone(&ends);
                std::thread::spawn(move || compute(u64::from(seed), &ends))
            })
            .collect();
        Busy { ends, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn compute(seed: u64, ends: &AtomicBool) -> u64 {
    let mut number = seed | 1;
    while !ends.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17) ^ 1);
        }
    }
    number
}
