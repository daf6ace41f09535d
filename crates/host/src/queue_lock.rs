//! The lock around a thread's end of a ring: one that a signal handler can ask for.
//!
//! A handler that posts may have interrupted its own thread in the middle of a post to the same queue.
//! Waiting would never end, so the lock knows its holder and refuses.
#![allow(unsafe_code)]

use highwire_wake::world;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Looks at a lock that another thread holds, before the core is given away. Holders keep it for less than a microsecond.
const LOOKS: u32 = 64;

pub(crate) struct QueueLock<T> {
    /// 0, or the thread that holds the lock: holder and lock change in one step, so a signal handler finds
    /// both or neither.
    holder: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the holder alone reaches the value, which may move between threads.
unsafe impl<T: Send> Sync for QueueLock<T> {}

/// The right to the locked value.
pub(crate) struct Held<'a, T> {
    lock: &'a QueueLock<T>,
}

impl<T> QueueLock<T> {
    pub(crate) fn new(value: T) -> QueueLock<T> {
        QueueLock { holder: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// The value, once no other thread has it; `None` if the calling thread has it itself.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Held<'_, T>> {
        // SAFETY: asks for the thread's own number, an address and so never zero.
        let me = world::thread().unwrap_or_else(|| unsafe { libc::pthread_self() } as usize);
        let mut looks = 0;
        loop {
            match self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Held { lock: self }),
                Err(holder) if holder == me => return None,
                Err(_) => looks += 1,
            }
            if looks % LOOKS == 0 {
                highwire_wake::yield_core();
            }
            std::hint::spin_loop();
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this value exists only while the lock is its thread's.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and there is one such value at a time.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.holder.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_it_and_none_waits_for_itself() {
        let lock = QueueLock::new(0u64);
        let held = lock.lock().expect("free");
        assert!(lock.lock().is_none() && lock.lock().is_none(), "a second time");
        drop(held);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut value = lock.lock().expect("another thread has it");
                        let seen = *value;
                        std::hint::spin_loop();
                        *value = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock().expect("free"), 4000);
    }
}
