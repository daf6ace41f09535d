//! The free places of a send queue, for programs that are to see them as with a card.
//!
//! A card gives the places of requests back when a completion of a signaled one that came after them is polled. A program
//! that never asks for completions finds its queue full there; here its requests end by themselves, and the mistake would
//! show on hardware only. So a queue pair can keep the places of its requests until the program has taken a completion.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The places of one send queue. Requests count from one, in the order in which they were posted.
#[derive(Debug)]
pub(crate) struct Places {
    limit: u64,
    signals_all: bool,
    has_signaled: bool,
    posted: u64,
    /// Up to this request all places are free.
    freed: u64,
    /// Signaled requests that have not completed yet.
    signaled: VecDeque<u64>,
    /// Completions that the program may not have taken yet: their numbers in the completion queue, and requests.
    waiting: VecDeque<(u64, u64)>,
    /// A request has failed: from here on all requests complete, and the queue pair is of no use before it is reset.
    is_broken: bool,
    /// How many places are in use, for threads that post while another one runs the engine.
    used: Arc<AtomicU64>,
}

impl Places {
    pub(crate) fn new(limit: u32, signals_all: bool, used: Arc<AtomicU64>) -> Places {
        Places {
            limit: u64::from(limit),
            signals_all,
            has_signaled: false,
            posted: 0,
            freed: 0,
            signaled: VecDeque::new(),
            waiting: VecDeque::new(),
            is_broken: false,
            used,
        }
    }

    /// Whether there is a place for a request behind `ahead` others that are about to be posted; `taken` says how many completions the program
    /// has taken out of the queue, and is asked only where that decides.
    #[inline]
    pub(crate) fn has_room_behind(&mut self, ahead: u64, taken: impl FnOnce() -> u64) -> bool {
        if self.posted - self.freed + ahead < self.limit || self.is_broken {
            return true;
        }
        let taken = taken();
        while let Some(&(_, request)) = self.waiting.front().filter(|(number, _)| *number < taken) {
            self.freed = request;
            self.waiting.pop_front();
        }
        self.tell();
        self.posted - self.freed + ahead < self.limit
    }

    #[inline]
    pub(crate) fn note_posted(&mut self, is_signaled: bool) {
        self.posted += 1;
        self.tell();
        if is_signaled || self.signals_all {
            self.signaled.push_back(self.posted);
            self.has_signaled = true;
        }
    }

    fn tell(&self) {
        self.used.store(self.posted - self.freed, Ordering::Relaxed);
    }

    /// The oldest signaled request completes, as number `number` of the completion queue.
    #[inline]
    pub(crate) fn note_completed(&mut self, number: u64) {
        if let Some(request) = self.signaled.pop_front() {
            self.waiting.push_back((number, request));
        }
    }

    /// How many requests were posted since the last reset, if none of them was signaled.
    pub(crate) fn posted_without_signal(&self) -> Option<u64> {
        (!self.has_signaled && self.posted > 0).then_some(self.posted)
    }

    pub(crate) fn note_failed(&mut self) {
        self.is_broken = true;
    }

    /// The completion queue has another ring, which counts anew; completions that wait in it count as taken.
    pub(crate) fn forget_numbers(&mut self) {
        if let Some((_, request)) = self.waiting.drain(..).next_back() {
            self.freed = request;
        }
    }

    /// The queue pair is reset: no earlier request is in the queue.
    pub(crate) fn reset(&mut self) {
        let limit = u32::try_from(self.limit).unwrap_or(u32::MAX);
        *self = Places::new(limit, self.signals_all, Arc::clone(&self.used));
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_once_a_completion_behind_it_was_taken() {
        let mut places = Places::new(4, false, Arc::default());
        assert!(places.has_room_behind(3, || 0) && !places.has_room_behind(4, || 0), "four in one go");
        for signaled in [false, false, true, false] {
            assert!(places.has_room_behind(0, || 0));
            places.note_posted(signaled);
        }
        assert!(!places.has_room_behind(0, || 9), "nothing has completed");
        places.note_completed(7);
        assert!(!places.has_room_behind(0, || 7), "completed, and not taken");
        // Three places at once: those of the signaled request and of the two before it.
        for _ in 0..3 {
            assert!(places.has_room_behind(0, || 8));
            places.note_posted(false);
        }
        assert!(!places.has_room_behind(0, || 100));
        places.note_failed();
        assert!(places.has_room_behind(0, || 8), "it is over with the queue pair, and requests are flushed");
        places.reset();
        (0..4).for_each(|_| places.note_posted(false));
        assert!(!places.has_room_behind(0, || 100));
    }

    #[test]
    fn another_ring_takes_no_place_along() {
        let mut places = Places::new(2, true, Arc::default());
        places.note_posted(false);
        places.note_posted(false);
        places.note_completed(5);
        places.note_completed(6);
        places.forget_numbers();
        assert!(places.has_room_behind(0, || 0));
    }
}
