//! The timers of queue pairs.
//!
//! Deadlines move with every acknowledgement, so they are not moved here: an entry that fires early finds its queue
//! pair's real deadline and is put back. Invariant: a queue pair with a deadline has an entry no later than it.

use highwire_stdx::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Entries, soonest first. Equal instants fire in the order of their slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Timers {
    pub(crate) fn arm(&mut self, at: Instant, slot: u32) {
        self.heap.push(Reverse((at, slot)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The next entry that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(Instant, u32)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}
