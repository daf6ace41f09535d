//! Queues that an application sleeps on with `poll`, `epoll` or another event loop.
//!
//! Invariant: the descriptor counts the entries, less those that blocked threads are about to take, so it is readable while
//! there are others. Entries and count change under one lock; otherwise a reader could take an entry that is
//! not counted yet.

use crate::sys::{self, EventFd};
use highwire_stdx::Duration;
use highwire_wake::world;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries, oldest first, behind a descriptor.
#[derive(Debug)]
pub(crate) struct PollableQueue<T> {
    state: Mutex<State<T>>,
    event: EventFd,
    /// Entries kept at most; beyond it the oldest go.
    max: usize,
}

#[derive(Debug)]
struct State<T> {
    entries: VecDeque<T>,
    /// The descriptor's count.
    signalled: usize,
    /// Of the count, what threads in [`wait_as_read`](PollableQueue::wait_as_read) have read, and not yet noted.
    read: usize,
    /// Threads that take entries without the descriptor.
    blocked: usize,
}

/// While it lives, a thread waits for an entry in another way than at the descriptor.
#[derive(Debug)]
pub(crate) struct Blocked<'a, T> {
    queue: &'a PollableQueue<T>,
}

impl<T> PollableQueue<T> {
    pub(crate) fn new(max: usize) -> io::Result<PollableQueue<T>> {
        let state = State { entries: VecDeque::new(), signalled: 0, read: 0, blocked: 0 };
        Ok(PollableQueue { state: Mutex::new(state), event: EventFd::counting()?, max })
    }

    /// Adds an entry; true if the descriptor tells of it.
    pub(crate) fn push(&self, entry: T) -> bool {
        let mut state = self.lock();
        if state.entries.len() >= self.max {
            state.entries.pop_front();
        }
        state.entries.push_back(entry);
        let before = state.signalled;
        self.settle(&mut state);
        state.signalled > before
    }

    /// Whether such an entry waits.
    pub(crate) fn has(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.lock().entries.iter().any(is_it)
    }

    /// Whether a thread waits for an entry in another way than at the descriptor.
    pub(crate) fn is_waited_at(&self) -> bool {
        self.lock().blocked > 0
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        let entry = state.entries.pop_front()?;
        self.settle(&mut state);
        Some(entry)
    }

    /// Announces that this thread is about to take an entry, which the descriptor need not count.
    pub(crate) fn block(&self) -> Blocked<'_, T> {
        self.lock().blocked += 1;
        Blocked { queue: self }
    }

    /// Makes the descriptor tell of every entry that no blocked thread is about to take, and of none that is gone.
    fn settle(&self, state: &mut State<T>) {
        while state.signalled > state.entries.len() {
            if !self.event.take_one() {
                state.read += 1;
            }
            state.signalled -= 1;
        }
        while state.entries.len() > state.signalled + state.blocked {
            self.event.signal();
            state.signalled += 1;
        }
    }

    /// Takes the oldest entry, waiting for one until `timeout` has passed; for ever without one.
    pub(crate) fn wait(&self, timeout: Option<std::time::Duration>) -> Option<T> {
        let deadline = timeout.and_then(|timeout| world::now().checked_add(timeout));
        loop {
            if let Some(entry) = self.pop() {
                return Some(entry);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(world::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            match self.event.own() {
                Some(own) => sys::wait_readable(&[own], left.map(Duration::from)),
                // The application has closed everything: it is told that nothing comes.
                None => return None,
            };
        }
    }

    /// Takes the oldest entry as `read` on the descriptor would: only the kernel knows whether a signal's handler was to
    /// end the call, so this thread sleeps in its `read`. With a longest time, [`EventFd::take`] says what it does; `None` if
    /// that has passed.
    ///
    /// # Errors
    /// EINTR for a signal, EAGAIN if there is no entry and the descriptor is non-blocking.
    pub(crate) fn wait_as_read(&self, most: Option<std::time::Duration>) -> io::Result<Option<T>> {
        loop {
            if let Some(entry) = self.pop() {
                return Ok(Some(entry));
            }
            if !self.event.take(most)? {
                return Ok(None);
            }
            let mut state = self.lock();
            match state.read {
                // Another thread has taken the entry, and found that its count was read already.
                1.. => state.read -= 1,
                _ => state.signalled = state.signalled.saturating_sub(1),
            }
            let entry = state.entries.pop_front();
            self.settle(&mut state);
            if entry.is_some() {
                return Ok(entry);
            }
        }
    }

    /// Forgets the entries that are not to be kept.
    pub(crate) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let mut state = self.lock();
        state.entries.retain(keep);
        self.settle(&mut state);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }

    /// Whether the descriptor is still this queue's.
    pub(crate) fn is_open(&self) -> bool {
        self.event.is_open()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Blocked<'_, T> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.blocked -= 1;
        // This thread may leave without an entry: then the descriptor counts the entry, for threads that poll
        // it.
        self.queue.settle(&mut state);
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
        (0..5).for_each(|n| assert_eq!(queue.push(n), n < 3, "the descriptor tells of three"));
        assert!(is_readable(&queue));
        assert_eq!((queue.pop(), is_readable(&queue)), (Some(2), true));
        queue.retain(|n| *n == 4);
        assert_eq!((queue.pop(), is_readable(&queue)), (Some(4), false));
        assert_eq!(queue.wait(Some(std::time::Duration::ZERO)), None);
    }

    #[test]
    fn the_descriptor_tells_of_what_no_blocked_thread_takes() {
        let queue = PollableQueue::new(9).expect("an eventfd");
        let (first, second) = (queue.block(), queue.block());
        (0..2).for_each(|n| assert!(!queue.push(n), "it has a taker"));
        assert!(!is_readable(&queue), "both entries have a taker");
        queue.push(2);
        assert!(is_readable(&queue), "the third has none");
        assert_eq!(queue.pop(), Some(0));
        drop(first);
        // One thread is left for two entries, and the descriptor counts one of them.
        assert_eq!((queue.pop(), is_readable(&queue)), (Some(1), true));
        assert_eq!((queue.pop(), is_readable(&queue)), (Some(2), false));
        queue.push(3);
        assert!(!is_readable(&queue));
        drop(second);
        assert!(is_readable(&queue), "it left without taking it");
        assert_eq!((queue.pop(), is_readable(&queue)), (Some(3), false));
    }

    #[test]
    fn threads_that_read_share_the_count_with_those_that_do_not() {
        let queue = PollableQueue::new(usize::MAX).expect("an eventfd");
        let (entries, threads) = (2_000, 4);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..threads)
                .map(|_| {
                    let take = || {
                        (0..entries / threads)
                            .map(|_| queue.wait_as_read(None).expect("no signal").expect("it waits"))
                            .sum::<u64>()
                    };
                    scope.spawn(take)
                })
                .collect();
            (0..entries as u64).for_each(|n| {
                queue.push(n);
                // One that only looks takes an entry away below the readers, now and then.
                if let Some(entry) = (n % 3 == 0).then(|| queue.pop()).flatten() {
                    queue.push(entry);
                }
            });
            let sum: u64 = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
            assert_eq!(sum, (0..entries as u64).sum());
        });
        let state = queue.lock();
        assert_eq!((state.signalled, state.read, state.entries.len()), (0, 0, 0));
        drop(state);
        assert!(!is_readable(&queue));
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
