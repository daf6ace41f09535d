//! The kernel's calls about mappings, past the C library's functions of their names.
//!
//! Libraries put functions of their own in those places to learn which memory a program gives up (UCX's memory events). A move
//! is no such news, because the program's memory stays what it was. And such a function for `mremap` may know four arguments
//! only, and moves the pages to an address that nobody asked for.

use std::io;
use std::ops::Range;

/// # Safety
/// As for `mmap`: what lies at a fixed place is given up.
pub(super) unsafe fn map(
    place: &Range<usize>,
    rights: libc::c_int,
    flags: libc::c_int,
    file: libc::c_int,
    offset: u64,
) -> io::Result<usize> {
    // SAFETY: by contract.
    address(unsafe { libc::syscall(libc::SYS_mmap, place.start, place.len(), rights, flags, file, offset) })
}

/// # Safety
/// Nothing uses the range any more.
pub(super) unsafe fn unmap(range: &Range<usize>) {
    // SAFETY: by contract.
    unsafe { libc::syscall(libc::SYS_munmap, range.start, range.len()) };
}

/// Moves a mapping to another place.
///
/// # Safety
/// What lies there is given up, and nothing uses the old place, which the flags may leave mapped.
pub(super) unsafe fn remap(range: &Range<usize>, to: usize, flags: libc::c_int) -> io::Result<()> {
    let flags = flags | libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: by contract.
    let moved = unsafe { libc::syscall(libc::SYS_mremap, range.start, range.len(), range.len(), flags, to) };
    address(moved).map(drop)
}

fn address(result: libc::c_long) -> io::Result<usize> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}
