//! The bytes that connections hold at a node's doors: requests that have not been carried out, and answers that have not been read.
//!
//! Each connection has a limit, and all together have one. A little is free, so that a connection that asks for little goes on while
//! others hold all that there is.

use crate::error::StoreError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What one connection may hold of answers: all keys and values of one.
pub(crate) const ANSWER_BYTES_MAX: usize = 40 << 20;
/// What all connections together may hold, of requests and answers, beyond what is free.
const TOTAL_BYTES_MAX: usize = 512 << 20;
/// What each connection may hold whatever others do.
const FREE_BYTES: usize = 64 << 10;

/// What all connections of a node hold.
#[derive(Debug, Default)]
pub(crate) struct Total {
    held: AtomicUsize,
    /// The most that there ever was of all, and of one.
    held_max: AtomicUsize,
    held_by_one_max: AtomicUsize,
    refused: AtomicU64,
}

impl Total {
    /// Bytes held now, the most ever, and the most that one connection ever held.
    pub(crate) fn bytes(&self) -> [usize; 3] {
        [&self.held, &self.held_max, &self.held_by_one_max].map(|bytes| bytes.load(Ordering::Relaxed))
    }

    /// Requests that were refused because all connections together held too much.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(crate) struct Room {
    total: Arc<Total>,
    bytes: usize,
    most: usize,
}

impl Room {
    /// An empty one, for at most so many bytes.
    pub(crate) fn new(total: &Arc<Total>, most: usize) -> Room {
        Room { total: Arc::clone(total), bytes: 0, most }
    }

    /// An empty one, for as many bytes as this one.
    pub(crate) fn sibling(&self) -> Room {
        Room::new(&self.total, self.most)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds so many bytes more.
    ///
    /// # Errors
    /// The connection, or all of them, would hold too much; then it holds what it held.
    pub(crate) fn take(&mut self, more: usize) -> Result<(), StoreError> {
        self.resize(self.bytes.saturating_add(more))
    }

    /// Holds so many bytes.
    ///
    /// # Errors
    /// As `take`.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), StoreError> {
        if bytes > self.most {
            return Err(StoreError::invalid(format!(
                "the answer has more than {} bytes, which is not possible; ask for less at a time",
                self.most
            )));
        }
        let counted = |bytes: usize| bytes.saturating_sub(FREE_BYTES);
        let (before, after) = (counted(self.bytes), counted(bytes));
        let held = &self.total.held;
        if after > before {
            let all = held.fetch_add(after - before, Ordering::Relaxed) + (after - before);
            if all > TOTAL_BYTES_MAX {
                held.fetch_sub(after - before, Ordering::Relaxed);
                self.total.refused.fetch_add(1, Ordering::Relaxed);
                return Err(StoreError::Unavailable(format!(
                    "clients of this node have not read their answers yet, which together have {TOTAL_BYTES_MAX} bytes"
                )));
            }
            self.total.held_max.fetch_max(all, Ordering::Relaxed);
        } else {
            held.fetch_sub(before - after, Ordering::Relaxed);
        }
        self.total.held_by_one_max.fetch_max(bytes, Ordering::Relaxed);
        self.bytes = bytes;
        Ok(())
    }

    /// Holds no more than so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        // Holding less is always possible.
        let _ = self.resize(self.bytes.min(bytes));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_and_all_together_hold_no_more_than_they_may() {
        let total = Arc::default();
        let mut rooms: Vec<Room> = (0..20).map(|_| Room::new(&total, ANSWER_BYTES_MAX)).collect();
        assert!(matches!(rooms[0].take(ANSWER_BYTES_MAX + 1), Err(StoreError::Invalid(_))));
        assert_eq!((rooms[0].bytes(), total.bytes()), (0, [0, 0, 0]));
        let filled = rooms.iter_mut().filter_map(|room| room.take(ANSWER_BYTES_MAX).ok()).count();
        assert_eq!(filled, TOTAL_BYTES_MAX / (ANSWER_BYTES_MAX - FREE_BYTES));
        let [held, most, by_one] = total.bytes();
        assert!(held == most && most <= TOTAL_BYTES_MAX && by_one == ANSWER_BYTES_MAX);
        assert_eq!(total.refused(), 20 - filled as u64);
        // A small answer has its place nevertheless.
        rooms[19].take(FREE_BYTES).expect("free");
        let rest = ANSWER_BYTES_MAX - FREE_BYTES;
        assert!(matches!(rooms[19].take(rest), Err(StoreError::Unavailable(_))));
        rooms[0].shrink(10);
        rooms[19].take(rest).expect("room again");
        drop(rooms);
        assert_eq!(total.bytes()[0], 0);
    }
}
