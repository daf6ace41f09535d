//! How a thread that sleeps on descriptors is told that there is something to do: the background thread, or a thread that rests.

use crate::sys::EventFd;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Waker {
    event: EventFd,
    sleeps: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker { event: EventFd::new()?, sleeps: AtomicBool::new(false) })
    }

    /// Ends the sleep, or the next one. Costs a system call only if the thread sleeps. The work must be visible before.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            self.event.signal();
        }
    }

    /// The thread is about to look for work a last time, and then to sleep.
    pub(crate) fn prepare_sleep(&self) {
        self.sleeps.store(true, Ordering::SeqCst);
    }

    /// The thread is awake again.
    pub(crate) fn awake(&self) {
        if !self.sleeps.swap(false, Ordering::SeqCst) {
            self.event.clear();
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }
}
