//! Copies and atomics that survive missing memory.
//!
//! A program may unmap memory that it has registered, and another process may truncate a file that both have
//! mapped. The next access gets a signal. So all accesses to such memory are one piece of machine code, and
//! the handler of SIGSEGV and SIGBUS knows its place: a fault inside ends the access and reports it, and
//! every other fault goes on to the handler that was there before. The guard costs nothing until a fault
//! comes.
//!
//! Other accesses touch segments as well: those to rings, tables, cursors. If another process has truncated a
//! segment's file, the handler puts pages of zeros there, for this process alone, and counts it
//! ([`lost_segments`]): then the other end looks like one that has gone, as indeed it has.
//!
//! Limits: a thread that blocks SIGSEGV dies of it, as always. The program may install a handler of its own
//! later, which then gets every fault; each registration calls [`install`] again, which goes on top of it.
//! Other processors than x86-64 have no guard yet: there the accesses are plain.

mod handler;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod machine;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[path = "guard/portable.rs"]
mod machine;
mod pause;
mod segments;

pub use pause::{Pause, can_pause, is_anybody_inside, pause};

use std::sync::atomic::Ordering;

/// The memory is missing. Bytes before the first missing one may have been copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

/// Copies `len` bytes from `source` to `target`; other threads may be reading, writing or unmapping either.
/// An aligned target is written by whole 8-byte words if `len` is below 384.
///
/// # Errors
/// [`Lost`], once [`install`] was called.
///
/// # Safety
/// The bytes at the target may be overwritten, and there is no reference to them. The ranges do not overlap.
#[inline]
pub unsafe fn copy_guarded(source: *const u8, target: *mut u8, len: usize) -> Result<(), Lost> {
    // SAFETY: the caller's promise.
    unsafe { machine::copy(source, target, len, 0) }
}

/// Like [`copy_guarded`], but the last bytes become visible last: a reader that sees the last byte of `target` with Acquire
/// sees all of it. An aligned copy of 1, 2, 4 or 8 bytes is one store.
///
/// # Errors
/// As [`copy_guarded`].
///
/// # Safety
/// As for [`copy_guarded`].
#[inline]
pub unsafe fn copy_guarded_last_release(source: *const u8, target: *mut u8, len: usize) -> Result<(), Lost> {
    if len == 0 {
        return Ok(());
    }
    // The last aligned word of the target, or the part of it that the copy covers.
    let last = ((target.addr() + len - 1) & !7).saturating_sub(target.addr());
    // SAFETY: the caller's promise; the tail has 1 to 8 bytes.
    unsafe { machine::copy(source, target, last, len - last) }
}

/// Replaces the word by `swap` if it equals `compare`; returns its former value.
///
/// # Errors
/// As [`copy_guarded`].
///
/// # Safety
/// As for [`copy_guarded`]; the address is a multiple of eight.
#[inline]
pub unsafe fn compare_swap_guarded(word: *mut u64, compare: u64, swap: u64) -> Result<u64, Lost> {
    // SAFETY: the caller's promise.
    unsafe { machine::compare_swap(word, compare, swap) }
}

/// Adds to the word, wrapping; returns its former value.
///
/// # Errors
/// As [`copy_guarded`].
///
/// # Safety
/// As for [`compare_swap_guarded`].
#[inline]
pub unsafe fn fetch_add_guarded(word: *mut u64, add: u64) -> Result<u64, Lost> {
    // SAFETY: the caller's promise.
    unsafe { machine::fetch_add(word, add) }
}

/// Lets the segment that is mapped there outlive its file.
pub(crate) fn watch(start: usize, len: usize) {
    segments::watch(start, len);
}

/// Forgets a segment that is about to be unmapped.
pub(crate) fn forget(start: usize) {
    segments::forget(start);
}

/// Whether a segment of this library begins there.
pub fn is_segment(start: usize) -> bool {
    segments::is_watched(start)
}

/// How often a segment of this process has lost pages because a process truncated its file.
pub fn lost_segments() -> u64 {
    segments::LOST.load(Ordering::Relaxed)
}

/// Lets the guarded accesses report faults that would otherwise be SIGSEGV and SIGBUS. Cheap to repeat, for
/// programs that install handlers of their own.
pub fn install() {
    if !cfg!(miri) {
        handler::install();
    }
    // Threads that copy afterwards see the installed handlers.
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        copy: unsafe fn(*const u8, *mut u8, usize) -> Result<(), Lost>,
        len: usize,
        source_shift: usize,
        target_shift: usize,
    ) {
        let source: Vec<u8> = (0..len + 32).map(|i| (i * 7 + 1) as u8).collect();
        let mut target = vec![0xEEu8; len + 32];
        // SAFETY: both vectors are longer than shift + len and are not aliased.
        let copied =
            unsafe { copy(source.as_ptr().add(source_shift), target.as_mut_ptr().add(target_shift), len) };
        assert_eq!(copied, Ok(()));
        assert_eq!(target[target_shift..target_shift + len], source[source_shift..source_shift + len]);
        assert!(target[..target_shift].iter().all(|&b| b == 0xEE), "wrote before the target");
        assert!(target[target_shift + len..].iter().all(|&b| b == 0xEE), "wrote behind the target");
    }

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let lengths: Vec<usize> = if cfg!(miri) { (0..40).collect() } else { (0..600).collect() };
        for len in lengths {
            for shifts in 0..64 {
                check(copy_guarded, len, shifts % 8, shifts / 8);
                check(copy_guarded_last_release, len, shifts % 8, shifts / 8);
            }
        }
    }

    #[test]
    fn atomics_return_what_was_there() {
        let mut word = 5u64;
        let at = &raw mut word;
        // SAFETY: the word belongs to this test.
        unsafe {
            assert_eq!(fetch_add_guarded(at, u64::MAX), Ok(5));
            assert_eq!(compare_swap_guarded(at, 5, 9), Ok(4));
            assert_eq!(compare_swap_guarded(at, 4, 9), Ok(4));
        }
        assert_eq!(word, 9);
    }

    #[test]
    fn a_segment_whose_file_was_truncated_is_zeros_and_counted() {
        use crate::{Segment, Window};
        if cfg!(miri) {
            println!("skipped: no mappings of files");
            return;
        }
        let folder = std::env::temp_dir();
        // More than one block's worth, so that the last is not in the first.
        let segments: Vec<_> = (0..70)
            .map(|number| {
                let path = folder.join(format!("highwire-guard-{}-{number}", std::process::id()));
                let segment = Segment::create_file(&path, 3 * 4096, 0o600).expect("a file");
                let _ = std::fs::remove_file(path);
                Window::whole(&std::sync::Arc::new(segment))
            })
            .collect();
        let last = segments.last().expect("one");
        for page in 0..3 {
            last.u64_at(page * 4096).store(7, Ordering::Relaxed);
        }
        let file = last.segment().file().expect("a file").try_clone_to_owned().expect("a descriptor");
        std::fs::File::from(file).set_len(4096).expect("truncates");
        let before = lost_segments();
        let words: [u64; 3] = std::array::from_fn(|page| last.u64_at(page * 4096).load(Ordering::Relaxed));
        assert_eq!(words, [7, 0, 0], "what is left of the file stays");
        assert!(lost_segments() > before);
        // From now on the pages are this process's own.
        last.u64_at(2 * 4096).store(9, Ordering::Relaxed);
        assert_eq!(last.u64_at(2 * 4096).load(Ordering::Relaxed), 9);
    }
}
