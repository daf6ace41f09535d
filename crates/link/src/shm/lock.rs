//! Locks on single bytes of a file, held by an open file description.
//!
//! The kernel drops such a lock when the last descriptor of the description is closed, so also when its process dies.
//! A child made by `fork` shares the description: it keeps its parent's engine alive, which is what a program that turns
//! itself into a daemon wants.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Between two attempts at a lock: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// The bytes of an engine's file that are locked, and their meaning.
#[derive(Clone, Copy, Debug)]
pub(super) enum Byte {
    /// An engine holds it as long as it lives; on the registry's lock file, a process holds it while it changes directories.
    Life,
    /// Held by a peer while it announces a channel.
    Attach,
    /// On the registry's lock file: held by a process that looks for the broker of this address, and by that broker when it is
    /// about to end. Each address has its own lock, so that processes of one do not wait for those of another.
    Broker(IpAddr),
    /// On the roster: held by a device as long as this column is its own.
    Column(u32),
}

impl Byte {
    fn offset(self) -> libc::off_t {
        match self {
            Byte::Life => 0,
            Byte::Attach => 1,
            Byte::Column(column) => 2 + libc::off_t::from(column),
            Byte::Broker(IpAddr::V4(v4)) => 1 << 32 | i64::from(v4.to_bits()),
            // Two addresses may have one byte in common: then they wait for each other.
            Byte::Broker(IpAddr::V6(v6)) => {
                let (high, low) = ((v6.to_bits() >> 64) as u64, v6.to_bits() as u64);
                1 << 62 | ((high.rotate_left(23) ^ low) >> 2) as i64
            }
        }
    }
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

/// Waits for the lock. Holders keep it for microseconds, unless one is stopped or starved, so this waits for
/// at most `patience`.
///
/// # Errors
/// `TimedOut` then, among those of the system.
pub(super) fn lock(fd: BorrowedFd<'_>, byte: Byte, patience: Duration) -> io::Result<()> {
    let begin = Instant::now();
    let mut pause = PAUSE_MIN;
    while !try_lock(fd, byte)? {
        if begin.elapsed() >= patience {
            let text = format!("another process has held a lock for {patience:?}: it may be stopped");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
    Ok(())
}

/// Gives the lock back.
pub(super) fn unlock(fd: BorrowedFd<'_>, byte: Byte) {
    // Unlocking an open file cannot fail.
    let _ = call(fd, libc::F_OFD_SETLK, &mut request(byte, libc::F_UNLCK));
}

/// Whether another process or descriptor holds the lock. It does not take the lock, so it disturbs no other process.
pub(super) fn is_locked(fd: BorrowedFd<'_>, byte: Byte) -> io::Result<bool> {
    let mut request = request(byte, libc::F_WRLCK);
    call(fd, libc::F_OFD_GETLK, &mut request)?;
    Ok(i32::from(request.l_type) != libc::F_UNLCK)
}

fn request(byte: Byte, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte.offset(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_lock_is_waited_for_and_not_for_ever() {
        let path = std::env::temp_dir().join(format!("highwire-patience-{}", std::process::id()));
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).open(&path).expect("a file")
        };
        let (holder, waiter) = (open(), open());
        assert!(try_lock(holder.as_fd(), Byte::Life).expect("an answer"));
        let error = lock(waiter.as_fd(), Byte::Life, Duration::from_millis(30)).expect_err("it is held");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("may be stopped"), "{error}");
        lock(waiter.as_fd(), Byte::Attach, Duration::ZERO).expect("the other byte is free");
        let waiting = std::thread::spawn(move || lock(waiter.as_fd(), Byte::Life, Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(20));
        unlock(holder.as_fd(), Byte::Life);
        waiting.join().expect("no panic").expect("it was given back");
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn brokers_of_different_addresses_do_not_wait_for_each_other() {
        let path = std::env::temp_dir().join(format!("highwire-lock-{}", std::process::id()));
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).open(&path).expect("a file")
        };
        let addresses =
            ["127.83.20.7", "127.83.20.8", "0.0.0.0", "255.255.255.255", "::1", "fe80::1", "ff::2"];
        let bytes: Vec<Byte> = addresses
            .map(|address| Byte::Broker(address.parse().expect("an address")))
            .into_iter()
            .chain([Byte::Life, Byte::Attach])
            .collect();
        let held: Vec<_> = bytes.iter().map(|_| open()).collect();
        for (file, byte) in held.iter().zip(&bytes) {
            assert!(try_lock(file.as_fd(), *byte).expect("an answer"), "{byte:?}");
            assert!(!try_lock(open().as_fd(), *byte).expect("an answer"), "{byte:?} twice");
        }
        let _ = std::fs::remove_file(&path);
    }
}
