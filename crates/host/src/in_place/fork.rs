//! A child of `fork` must not write into its parent's buffers: the program's private memory stays private.
//!
//! The child's handler runs before `fork` returns there, with only the thread that called it, and may call nothing that
//! takes a lock. So the ranges wait for it behind one pointer, which is replaced as a whole. No process is copied while
//! pages are on their way: `fork` waits for the thread that moves them.

use super::moving::replace_by_copy;
use std::ops::Range;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

static RANGES: AtomicPtr<Vec<Range<usize>>> = AtomicPtr::new(ptr::null_mut());
static IS_READY: AtomicBool = AtomicBool::new(false);
/// A thread moves pages, or copies the process.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// Has children of later forks get copies; false if the system refuses.
pub(super) fn is_ready() -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are plain functions that live as long as the process.
        let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        IS_READY.store(refused == 0, Ordering::Release);
    });
    IS_READY.load(Ordering::Acquire)
}

/// While it lives, no thread of the process calls `fork`, and this one handles no signals: a handler could write to pages that
/// are on their way, or copy the process.
pub(super) struct Undisturbed(libc::sigset_t);

impl Undisturbed {
    pub(super) fn new() -> Undisturbed {
        // SAFETY: the calls fill plain values.
        let signals = unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            before
        };
        before();
        Undisturbed(signals)
    }

    /// Replaces the ranges that children get copies of.
    pub(super) fn protect(&self, ranges: impl Iterator<Item = Range<usize>>) {
        let ranges = Box::into_raw(Box::new(ranges.collect()));
        let before = RANGES.swap(ranges, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: the pointer came from a box, and only a child reads through it, in its own memory.
            drop(unsafe { Box::from_raw(before) });
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        in_parent();
        // SAFETY: the mask is the one that `new` was given.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Not a lock that sleeps: it is held for a copy at most, and a child inherits it.
extern "C" fn before() {
    while IS_BUSY.swap(true, Ordering::Acquire) {
        // SAFETY: a plain system call.
        unsafe { libc::sched_yield() };
    }
}

extern "C" fn in_parent() {
    IS_BUSY.store(false, Ordering::Release);
}

extern "C" fn in_child() {
    let ranges = RANGES.load(Ordering::Acquire);
    if !ranges.is_null() {
        // SAFETY: the list that the pointer led to when the process was copied is there, whole: a list is freed only after the
        // pointer was replaced.
        for range in unsafe { &*ranges } {
            // SAFETY: the range was moved by us, and the child has one thread. If the program has unmapped it since, nothing
            // can be read there, and nothing happens.
            let _ = unsafe { replace_by_copy(range) };
        }
    }
    IS_BUSY.store(false, Ordering::Release);
}
