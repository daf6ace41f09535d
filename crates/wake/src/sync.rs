//! Atomics, and the futex under them: the system's, or loom's model of it.

use crate::word::Slept;

#[cfg(not(feature = "model"))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(feature = "model")]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// The futex that wakes sleeping threads. The system's needs no state of its own.
#[cfg(not(feature = "model"))]
#[derive(Debug, Default)]
pub(crate) struct Gate;

#[cfg(not(feature = "model"))]
impl Gate {
    /// Sleeps while the upper half of `word` is `seen`.
    pub(crate) fn sleep(
        &self,
        word: &AtomicU64,
        seen: u32,
        is_shared: bool,
        timeout: Option<std::time::Duration>,
    ) -> Slept {
        match crate::world::model() {
            Some(model) => {
                model.sleep(name(word), &|| (word.load(Ordering::Relaxed) >> 32) as u32 == seen, timeout)
            }
            None => crate::sys::futex_wait(word, seen, is_shared, timeout),
        }
    }

    /// Wakes one sleeper, or all.
    pub(crate) fn wake(&self, word: &AtomicU64, is_shared: bool, all: bool) -> u32 {
        match crate::world::model() {
            Some(model) => model.wake(name(word), all),
            None => crate::sys::futex_wake(word, is_shared, if all { i32::MAX } else { 1 }),
        }
    }
}

/// The model's name for a word.
#[cfg(not(feature = "model"))]
fn name(word: &AtomicU64) -> usize {
    std::ptr::from_ref(word).addr()
}

/// A futex as futex(2) describes it: the comparison and the beginning of the sleep are one step, under a lock
/// that a waker takes as well.
#[cfg(feature = "model")]
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lock: loom::sync::Mutex<u32>,
    woken: loom::sync::Condvar,
}

#[cfg(feature = "model")]
impl Gate {
    pub(crate) fn sleep(
        &self,
        word: &AtomicU64,
        seen: u32,
        _is_shared: bool,
        _timeout: Option<std::time::Duration>,
    ) -> Slept {
        let mut asleep = self.lock.lock().expect("no model thread panics with it");
        // Relaxed, as weak as the kernel's own read may be.
        if (word.load(Ordering::Relaxed) >> 32) as u32 == seen {
            *asleep += 1;
            asleep = self.woken.wait(asleep).expect("as above");
            drop(asleep);
        }
        Slept::Posted
    }

    pub(crate) fn wake(&self, _word: &AtomicU64, _is_shared: bool, all: bool) -> u32 {
        let mut asleep = self.lock.lock().expect("no model thread panics with it");
        let woken = if all { *asleep } else { (*asleep).min(1) };
        *asleep -= woken;
        if all {
            self.woken.notify_all()
        } else {
            self.woken.notify_one()
        }
        woken
    }
}
