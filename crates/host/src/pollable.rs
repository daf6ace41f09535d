//! Queues that an application sleeps on with `poll`, `epoll` or whatever else its event loop is made of.
//!
//! Invariant: the descriptor counts the entries, so it is readable exactly while there are any. Both change under one
//! lock, or a reader could take an entry whose count is yet to come.

use crate::sys::{self, EventFd};
use highwire_stdx::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Entries, oldest first, behind a descriptor.
#[derive(Debug)]
pub(crate) struct PollableQueue<T> {
    entries: Mutex<VecDeque<T>>,
    event: EventFd,
    /// Entries kept at most; beyond it the oldest go.
    max: usize,
}

impl<T> PollableQueue<T> {
    pub(crate) fn new(max: usize) -> io::Result<PollableQueue<T>> {
        Ok(PollableQueue { entries: Mutex::new(VecDeque::new()), event: EventFd::counting()?, max })
    }

    pub(crate) fn push(&self, entry: T) {
        let mut entries = self.lock();
        if entries.len() >= self.max {
            entries.pop_front();
        } else {
            self.event.signal();
        }
        entries.push_back(entry);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut entries = self.lock();
        let entry = entries.pop_front()?;
        self.event.take_one();
        Some(entry)
    }

    /// Takes the oldest entry, waiting for one until `timeout` has passed; for ever without one.
    pub(crate) fn wait(&self, timeout: Option<std::time::Duration>) -> Option<T> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(entry) = self.pop() {
                return Some(entry);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            sys::wait_readable(&[self.event.fd()], left.map(Duration::from));
        }
    }

    /// Forgets the entries that are not to be kept.
    pub(crate) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let mut entries = self.lock();
        let before = entries.len();
        entries.retain(keep);
        (entries.len()..before).for_each(|_| self.event.take_one());
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable<T>(queue: &PollableQueue<T>) -> bool {
        sys::wait_readable(&[queue.fd()], Some(Duration::ZERO))
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_there_are_entries() {
        let queue = PollableQueue::new(3).expect("an eventfd");
        assert!(!is_readable(&queue) && queue.pop().is_none());
        (0..5).for_each(|n| queue.push(n));
        assert!(is_readable(&queue));
        assert_eq!((queue.pop(), is_readable(&queue)), (Some(2), true));
        queue.retain(|n| *n == 4);
        assert_eq!((queue.pop(), is_readable(&queue)), (Some(4), false));
        assert_eq!(queue.wait(Some(std::time::Duration::ZERO)), None);
    }

    #[test]
    fn a_waiting_thread_gets_what_another_pushes() {
        let queue = PollableQueue::new(3).expect("an eventfd");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.wait(None));
            queue.push(7);
            assert_eq!(waiting.join().expect("no panic"), Some(7));
        });
    }
}
