//! Descriptors that a program cannot reach by accident.
//!
//! A kernel holds the files of a device by itself: a program that closes a descriptor, or all of them as a daemon does, and then opens a
//! file under the same number, is not written to. A library has only numbers. So what it writes to is a duplicate under a
//! high number, where programs get none unless they have hundreds of files open; and a counter's file carries a mark, which is looked at
//! before every write.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

// fcntl(2): the signal for asynchronous input, a number that belongs to the file and is not used otherwise here.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;
/// Real-time signals, the only numbers that mark a file.
const MARKS: std::ops::RangeInclusive<i32> = 34..=64;

/// Where the high numbers begin: behind the first three quarters of those that the process may have, and not higher than needed, since the
/// kernel's table of files grows with the highest.
fn floor() -> RawFd {
    // SAFETY: a structure of numbers, written by the call.
    let soft = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 { limit.rlim_cur } else { 1024 }
    };
    (soft.min(4096) / 4 * 3) as RawFd
}

fn duplicate(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: a call about numbers.
    let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, floor()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A counter's file, marked, under a high number; programs may know it by another one.
#[derive(Debug)]
pub(super) struct Marked {
    mark: libc::c_int,
    held: Option<OwnedFd>,
    /// The number that the program knows.
    shown: Option<OwnedFd>,
}

impl Marked {
    /// Keeps a new file, and its number for the program to see if `is_shown`.
    pub(super) fn new(file: OwnedFd, is_shown: bool) -> Marked {
        static NEXT: AtomicI32 = AtomicI32::new(0);
        let count = MARKS.end() - MARKS.start() + 1;
        let mark = MARKS.start() + NEXT.fetch_add(1, Ordering::Relaxed).rem_euclid(count);
        // SAFETY: a call about numbers. Where a kernel refuses it, the file is taken for another one, and nothing is written.
        unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, mark) };
        match duplicate(file.as_fd()) {
            Ok(held) => Marked { mark, held: Some(held), shown: is_shown.then_some(file) },
            Err(_) => Marked { mark, held: Some(file), shown: None },
        }
    }

    fn is_behind(&self, fd: RawFd) -> bool {
        // SAFETY: a call about a number.
        unsafe { libc::fcntl(fd, F_GETSIG) == self.mark }
    }

    /// The library's own number, if the file is still behind it.
    pub(super) fn held(&self) -> Option<BorrowedFd<'_>> {
        self.held.as_ref().filter(|held| self.is_behind(held.as_raw_fd())).map(AsFd::as_fd)
    }

    /// The program's number.
    pub(super) fn shown(&self) -> BorrowedFd<'_> {
        match (&self.shown, &self.held) {
            (Some(shown), _) | (None, Some(shown)) => shown.as_fd(),
            (None, None) => unreachable!("a file is let go only when this is dropped"),
        }
    }

    /// Whether the program has left its number to the file.
    pub(super) fn is_shown(&self) -> bool {
        self.is_behind(self.shown().as_raw_fd())
    }
}

impl Drop for Marked {
    /// A number that another file has got meanwhile is not closed.
    fn drop(&mut self) {
        for fd in [self.shown.take(), self.held.take()].into_iter().flatten() {
            if !self.is_behind(fd.as_raw_fd()) {
                std::mem::forget(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn counter() -> OwnedFd {
        // SAFETY: a plain system call, whose result is new and ours.
        unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) }
    }

    /// Puts a file of the program's in the place of another: what `close` and `open` do.
    fn replace(fd: RawFd, by: &File) {
        // SAFETY: a call about numbers.
        assert_eq!(unsafe { libc::dup2(by.as_raw_fd(), fd) }, fd);
    }

    #[test]
    fn a_foreign_file_under_a_number_is_neither_used_nor_closed() {
        let foreign = File::open("/dev/null").expect("a file");
        let marked = Marked::new(counter(), true);
        let (shown, held) = (marked.shown().as_raw_fd(), marked.held().expect("it is there").as_raw_fd());
        assert!(marked.is_shown() && held >= floor() && shown < held);
        replace(shown, &foreign);
        assert!(!marked.is_shown() && marked.held().is_some(), "the library's own number is another");
        replace(held, &foreign);
        assert!(marked.held().is_none());
        drop(marked);
        for fd in [shown, held] {
            // SAFETY: calls about numbers, which are the test's now.
            assert!(unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0, "{fd} was closed");
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }

    #[test]
    fn two_counters_in_a_row_have_different_marks() {
        let (one, other) = (Marked::new(counter(), true), Marked::new(counter(), true));
        assert!(!one.is_behind(other.shown().as_raw_fd()));
    }
}
