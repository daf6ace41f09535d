//! Memory for values and overflow buckets: blocks of equal size that have an index and never move.
//!
//! A pool grows by segments, each twice as large as the one before, so that a commit never fails for want of space that its lock promised.
//! Blocks are atomic words: a reader that lost its race reads words of another value, and its sequence lock tells it so.

use std::sync::OnceLock;

use crate::sync::{AtomicU64, Ordering};

use super::free_list::FreeList;

/// Blocks in the first segment.
const FIRST: u64 = 64;
const SEGMENTS: usize = 26;

/// Blocks of `words` words each.
pub(crate) struct Pool {
    words: usize,
    segments: [OnceLock<Box<[AtomicU64]>>; SEGMENTS],
    unused: AtomicU64,
    free: FreeList,
}

impl Pool {
    pub(crate) fn new(words: usize) -> Pool {
        Pool {
            words,
            segments: [const { OnceLock::new() }; SEGMENTS],
            unused: AtomicU64::new(0),
            free: FreeList::new(),
        }
    }

    /// A block of the caller's own. Its words keep their old contents.
    pub(crate) fn allocate(&self) -> u32 {
        if let Some(index) = self.free.pop(|index| &self.block(index)[0]) {
            return index;
        }
        let index =
            u32::try_from(self.unused.fetch_add(1, Ordering::Relaxed)).expect("fewer than 2^32 blocks");
        self.block(index);
        index
    }

    /// Gives a block back.
    pub(crate) fn release(&self, index: u32) {
        self.free.push(index, |index| &self.block(index)[0]);
    }

    /// A block that was allocated at some time.
    pub(crate) fn block(&self, index: u32) -> &[AtomicU64] {
        let (segment, offset, blocks) = place(index);
        let words = self.segments[segment]
            .get_or_init(|| (0..blocks as usize * self.words).map(|_| AtomicU64::new(0)).collect());
        &words[offset as usize * self.words..][..self.words]
    }

    /// The memory that it has taken.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.segments.iter().filter_map(OnceLock::get).map(|segment| segment.len());
        words.sum::<usize>() * size_of::<u64>()
    }

    /// A block that a racing reader was led to: perhaps none.
    pub(crate) fn try_block(&self, index: u32) -> Option<&[AtomicU64]> {
        let (segment, offset, _) = place(index);
        let words = self.segments.get(segment)?.get()?;
        words.get(offset as usize * self.words..)?.get(..self.words)
    }
}

/// Segment, place in it, and the segment's size, in blocks.
fn place(index: u32) -> (usize, u64, u64) {
    let shifted = u64::from(index) / FIRST + 1;
    let segment = shifted.ilog2();
    let blocks = FIRST << segment;
    (segment as usize, u64::from(index) + FIRST - blocks, blocks)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..100_000u32 {
            let (segment, offset, blocks) = place(index);
            assert_eq!((segment, offset), expected, "index {index}");
            expected = if offset + 1 == blocks { (segment + 1, 0) } else { (segment, offset + 1) };
        }
        assert!(place(u32::MAX).0 <= SEGMENTS);
    }

    #[test]
    fn blocks_come_back() {
        let pool = Pool::new(2);
        let first: Vec<u32> = (0..200).map(|_| pool.allocate()).collect();
        first.iter().for_each(|&index| pool.release(index));
        let mut second: Vec<u32> = (0..200).map(|_| pool.allocate()).collect();
        second.sort_unstable();
        assert_eq!(first, second);
    }
}
