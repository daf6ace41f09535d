//! The engine token: the thread that holds it runs the lane.
//!
//! A lock that the data path only ever *tries*. A thread that finds it held leaves its work in a ring and goes on,
//! because the holder looks for such work after it has let go. Control calls, which are rare, wait for it; while one
//! waits, tries fail, so that a thread that polls without pause cannot keep it out.
//!
//! Why no work is lost: a poster makes its work visible, sets `work_left`, and only then tries; the holder lets go, and
//! only then looks at `work_left`. All four steps are sequentially consistent, so one of the two sees the other.
#![allow(unsafe_code)]

use highwire_wake::world::may_switch;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[repr(align(128))]
pub(crate) struct EngineToken<T> {
    held: AtomicBool,
    waiting: AtomicU32,
    work_left: AtomicBool,
    engine: UnsafeCell<T>,
}

// SAFETY: `held` lets one thread at a time reach the engine, which may move between threads.
unsafe impl<T: Send> Sync for EngineToken<T> {}

/// The right to run the engine; letting it go lets the next one in.
pub(crate) struct Running<'a, T> {
    token: &'a EngineToken<T>,
}

impl<T> EngineToken<T> {
    pub(crate) fn new(engine: T) -> EngineToken<T> {
        EngineToken {
            held: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            work_left: AtomicBool::new(false),
            engine: UnsafeCell::new(engine),
        }
    }

    /// The token, if no thread has it and no control call waits for it.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Running<'_, T>> {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.take()
    }

    /// The token, after waiting for it. For control calls only: a thread holds it for one pump at most.
    pub(crate) fn enter(&self) -> Running<'_, T> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let running = loop {
            if let Some(running) = self.take() {
                break running;
            }
            highwire_wake::yield_core();
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        running
    }

    /// Marks that work waits in a ring. The caller then calls `try_enter`; if that fails, the holder takes
    /// the work up.
    #[inline]
    pub(crate) fn leave_work(&self) {
        may_switch();
        self.work_left.store(true, Ordering::SeqCst);
    }

    /// Whether work was left since the last call. To be called after letting go of the token.
    #[inline]
    pub(crate) fn take_work_left(&self) -> bool {
        may_switch();
        self.work_left.load(Ordering::SeqCst) && self.work_left.swap(false, Ordering::SeqCst)
    }

    #[inline]
    fn take(&self) -> Option<Running<'_, T>> {
        may_switch();
        self.held
            .compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
            .then(|| Running { token: self })
    }
}

impl<T> Deref for Running<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this value exists only while `held` is set for it.
        unsafe { &*self.token.engine.get() }
    }
}

impl<T> DerefMut for Running<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and there is one such value at a time.
        unsafe { &mut *self.token.engine.get() }
    }
}

impl<T> Drop for Running<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // A swap, not a store: on every machine the look at `work_left` that follows stays behind it.
        self.token.held.swap(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_runs_the_engine() {
        let token = EngineToken::new(0u64);
        let held = token.try_enter();
        // Twice, because a failed try must not release another thread's token.
        assert!(held.is_some() && token.try_enter().is_none() && token.try_enter().is_none());
        drop(held);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| *token.enter() += 1));
            }
        });
        assert_eq!(*token.enter(), 2000);
    }

    #[test]
    fn work_that_was_left_is_always_taken_up() {
        use std::sync::atomic::AtomicU64;
        let token = EngineToken::new(0u64);
        let left = AtomicU64::new(0);
        let serve = || {
            loop {
                let Some(mut done) = token.try_enter() else { return };
                *done += left.swap(0, Ordering::SeqCst);
                drop(done);
                if !token.take_work_left() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        left.fetch_add(1, Ordering::SeqCst);
                        token.leave_work();
                        serve();
                    }
                });
            }
        });
        assert_eq!((*token.enter(), left.load(Ordering::SeqCst)), (10_000, 0));
    }
}
