//! A counter that can be polled.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_void};

/// A new counter at zero. With `EFD_SEMAPHORE`, a read takes one.
pub(crate) fn new(flags: c_int) -> Result<OwnedFd, c_int> {
    // SAFETY: the call has no preconditions.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | flags) };
    if fd < 0 {
        return Err(super::verbs::last_errno());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds to the counter.
pub(crate) fn add(fd: RawFd, count: u64) {
    // SAFETY: eight bytes are written from a live number. It cannot fail before 2^64 - 1 additions.
    unsafe { libc::write(fd, (&raw const count).cast::<c_void>(), 8) };
}

/// Waits, unless the descriptor is non-blocking, and takes one from the counter, or all.
///
/// # Errors
/// EAGAIN, EINTR, or what else reading says.
pub(crate) fn take(fd: RawFd) -> Result<(), c_int> {
    let mut count = 0u64;
    // SAFETY: eight bytes are read into a live number.
    let read = unsafe { libc::read(fd, (&raw mut count).cast::<c_void>(), 8) };
    if read == 8 { Ok(()) } else { Err(super::verbs::last_errno()) }
}

/// Takes from the counter without waiting, even if the descriptor is blocking.
pub(crate) fn try_take(fd: RawFd) -> bool {
    let mut count = 0u64;
    let vector = libc::iovec { iov_base: (&raw mut count).cast::<c_void>(), iov_len: 8 };
    // SAFETY: eight bytes are read into a live number.
    let read = unsafe { libc::preadv2(fd, &vector, 1, -1, libc::RWF_NOWAIT) };
    read == 8
}
