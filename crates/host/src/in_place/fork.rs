//! A child of `fork` must not write into its parent's buffers: the program's private memory stays private.
//!
//! The child's handler runs before `fork` returns there, with only the thread that called it, and may call nothing that
//! takes a lock. So the ranges wait for it behind one pointer, which is replaced as a whole.

use super::replace_by_copy;
use std::ops::Range;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

static RANGES: AtomicPtr<Vec<Range<usize>>> = AtomicPtr::new(ptr::null_mut());
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Has children of later forks get copies; false if the system refuses.
pub(super) fn is_ready() -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function that lives as long as the process.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        IS_READY.store(refused == 0, Ordering::Release);
    });
    IS_READY.load(Ordering::Acquire)
}

/// Replaces the ranges that children get copies of. The caller holds the lock that all changes happen under.
pub(super) fn protect(ranges: impl Iterator<Item = Range<usize>>) {
    let ranges = Box::into_raw(Box::new(ranges.collect()));
    let before = RANGES.swap(ranges, Ordering::AcqRel);
    if !before.is_null() {
        // SAFETY: the pointer came from a box, and only a child reads through it, in its own memory.
        drop(unsafe { Box::from_raw(before) });
    }
}

extern "C" fn in_child() {
    let ranges = RANGES.load(Ordering::Acquire);
    if ranges.is_null() {
        return;
    }
    // SAFETY: the list that the pointer led to when the process was copied is there, whole: a list is freed only after the
    // pointer was replaced.
    for range in unsafe { &*ranges } {
        // SAFETY: the range was moved by us, and the child has one thread. If the program has unmapped it since, nothing can
        // be read there, and nothing happens.
        let _ = unsafe { replace_by_copy(range) };
    }
}
