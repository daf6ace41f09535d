//! A sequence lock: writers exclude one another, and readers read again if a writer has disturbed them.
//!
//! Everything it guards is atomic words, read and written relaxed, so that a reader that races with a writer reads garbage that it throws
//! away, and no undefined behaviour. Held for the length of one table operation, never across a message.

use crate::sync::{AtomicU64, Ordering, fence, spin_loop};

/// Even: no thread writes. Odd: one writer does.
pub(crate) struct SeqLock {
    sequence: AtomicU64,
}

/// The right to write; ends when dropped.
pub(crate) struct WriteGuard<'a> {
    lock: &'a SeqLock,
    sequence: u64,
}

impl SeqLock {
    pub(crate) fn new() -> SeqLock {
        SeqLock { sequence: AtomicU64::new(0) }
    }

    /// Runs `read` until no writer has disturbed it. `read` gives `None` when it notices by itself that it reads garbage.
    pub(crate) fn read<T>(&self, mut read: impl FnMut() -> Option<T>) -> T {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            if before & 1 == 0
                && let Some(value) = read()
            {
                // Orders the relaxed loads of `read` before the second look.
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return value;
                }
            }
            pause();
        }
    }

    /// Waits for the right to write.
    pub(crate) fn write(&self) -> WriteGuard<'_> {
        loop {
            let sequence = self.sequence.load(Ordering::Relaxed);
            if sequence & 1 == 0
                && self
                    .sequence
                    .compare_exchange_weak(sequence, sequence + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                // A reader that sees one of the guarded stores must see the odd number too.
                fence(Ordering::Release);
                return WriteGuard { lock: self, sequence: sequence + 1 };
            }
            pause();
        }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.lock.sequence.store(self.sequence + 1, Ordering::Release);
    }
}

/// Under loom a spinning thread must give way, or the model has no end.
fn pause() {
    #[cfg(loom)]
    loom::thread::yield_now();
    spin_loop();
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    struct Pair {
        lock: SeqLock,
        a: AtomicU64,
        b: AtomicU64,
    }

    fn add_one(pair: &Pair) {
        let _guard = pair.lock.write();
        pair.a.store(pair.a.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        pair.b.store(pair.b.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn pair() -> Arc<Pair> {
        Arc::new(Pair { lock: SeqLock::new(), a: AtomicU64::new(0), b: AtomicU64::new(0) })
    }

    #[test]
    fn a_reader_never_sees_half_a_write() {
        loom::model(|| {
            let shared = pair();
            let writer = shared.clone();
            let thread = loom::thread::spawn(move || add_one(&writer));
            let (a, b) = shared
                .lock
                .read(|| Some((shared.a.load(Ordering::Relaxed), shared.b.load(Ordering::Relaxed))));
            assert_eq!(a, b);
            thread.join().unwrap();
        });
    }

    #[test]
    fn writers_exclude_one_another() {
        loom::model(|| {
            let shared = pair();
            let other = shared.clone();
            let thread = loom::thread::spawn(move || add_one(&other));
            add_one(&shared);
            thread.join().unwrap();
            assert_eq!(shared.a.load(Ordering::Relaxed), 2);
        });
    }
}
