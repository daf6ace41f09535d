//! Locks on single bytes of a file, held by an open file description.
//!
//! The kernel drops such a lock when the last descriptor of the description is closed, so also when its process dies.
//! A child made by `fork` shares the description: it keeps its parent's engine alive, which is what a program that turns
//! itself into a daemon wants.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which byte of an engine's file means what.
#[derive(Clone, Copy, Debug)]
pub(super) enum Byte {
    /// Held as long as the engine lives; on the registry's lock file, by whoever changes directories.
    Life = 0,
    /// Held by a peer while it announces a channel.
    Attach = 1,
    /// On the registry's lock file: held by whoever looks for a broker, and by a broker about to end.
    Brokers = 2,
}

/// Takes the lock if it is free.
pub(super) fn try_lock(fd: BorrowedFd<'_>, byte: Byte) -> io::Result<bool> {
    let mut request = request(byte, libc::F_WRLCK);
    match call(fd, libc::F_OFD_SETLK, &mut request) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits for the lock. Holders keep it for microseconds.
pub(super) fn lock(fd: BorrowedFd<'_>, byte: Byte) -> io::Result<()> {
    loop {
        match call(fd, libc::F_OFD_SETLKW, &mut request(byte, libc::F_WRLCK)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Gives the lock back.
pub(super) fn unlock(fd: BorrowedFd<'_>, byte: Byte) {
    // Unlocking what is open cannot fail.
    let _ = call(fd, libc::F_OFD_SETLK, &mut request(byte, libc::F_UNLCK));
}

/// Whether somebody else holds the lock. Takes nothing, so it disturbs nobody.
pub(super) fn is_locked(fd: BorrowedFd<'_>, byte: Byte) -> io::Result<bool> {
    let mut request = request(byte, libc::F_WRLCK);
    call(fd, libc::F_OFD_GETLK, &mut request)?;
    Ok(i32::from(request.l_type) != libc::F_UNLCK)
}

fn request(byte: Byte, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte as libc::off_t,
        l_len: 1,
        // Must be zero for locks of open file descriptions.
        l_pid: 0,
    }
}

fn call(fd: BorrowedFd<'_>, command: i32, request: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open and `request` is a valid `struct flock`.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, request as *mut libc::flock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
