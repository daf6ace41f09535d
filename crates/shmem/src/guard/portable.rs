//! The same accesses without machine code, unguarded.

use super::Lost;
use crate::copy::{copy_racy, copy_racy_last_release};
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) unsafe fn copy(source: *const u8, target: *mut u8, bulk: usize, tail: usize) -> Result<(), Lost> {
    // SAFETY: the caller's promise.
    unsafe {
        if tail == 0 {
            copy_racy(source, target, bulk);
        } else {
            copy_racy_last_release(source, target, bulk + tail);
        }
    }
    Ok(())
}

pub(super) unsafe fn compare_swap(word: *mut u64, compare: u64, swap: u64) -> Result<u64, Lost> {
    // SAFETY: the caller's promise.
    let word = unsafe { AtomicU64::from_ptr(word) };
    let (Ok(was) | Err(was)) = word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
    Ok(was)
}

pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Lost> {
    // SAFETY: the caller's promise.
    Ok(unsafe { AtomicU64::from_ptr(word) }.fetch_add(add, Ordering::SeqCst))
}

pub(super) unsafe fn give_up(_: *mut libc::c_void) -> bool {
    false
}
