//! A lock-free stack of free blocks, by index.
//!
//! The head carries a count beside the index, so that a block that was taken and given back meanwhile is noticed (ABA). Links live in the
//! blocks' own first words, which are always atomics, so that reading the link of a block that was just taken is harmless.

use crate::sync::{AtomicU64, Ordering};

const INDEX_BITS: u32 = 32;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// The stack's head: count in the high half, index + 1 in the low one, 0 for empty.
pub(crate) struct FreeList {
    head: AtomicU64,
}

impl FreeList {
    pub(crate) fn new() -> FreeList {
        FreeList { head: AtomicU64::new(0) }
    }

    /// Gives a block back. `link` finds the first word of a block.
    pub(crate) fn push<'a>(&self, index: u32, link: impl Fn(u32) -> &'a AtomicU64) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link(index).store(head & INDEX_MASK, Ordering::Relaxed);
            let new = next_count(head) | (u64::from(index) + 1);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes a block.
    pub(crate) fn pop<'a>(&self, link: impl Fn(u32) -> &'a AtomicU64) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = (head & INDEX_MASK).checked_sub(1)? as u32;
            let new = next_count(head) | (link(index).load(Ordering::Relaxed) & INDEX_MASK);
            // Release, too: the links that earlier pushes published stay visible to the next thread that pops.
            match self.head.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }
}

fn next_count(head: u64) -> u64 {
    (head >> INDEX_BITS).wrapping_add(1) << INDEX_BITS
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    struct Shared {
        list: FreeList,
        links: [AtomicU64; 2],
        owners: [AtomicU64; 2],
    }

    /// Takes a block, marks it as owned by exactly one thread, and gives it back.
    fn use_a_block(shared: &Shared) {
        let Some(index) = shared.list.pop(|i| &shared.links[i as usize]) else { return };
        assert_eq!(shared.owners[index as usize].fetch_add(1, Ordering::Relaxed), 0, "two owners");
        shared.owners[index as usize].fetch_sub(1, Ordering::Relaxed);
        shared.list.push(index, |i| &shared.links[i as usize]);
    }

    #[test]
    fn a_block_has_one_owner() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                list: FreeList::new(),
                links: [AtomicU64::new(0), AtomicU64::new(0)],
                owners: [AtomicU64::new(0), AtomicU64::new(0)],
            });
            shared.list.push(0, |i| &shared.links[i as usize]);
            shared.list.push(1, |i| &shared.links[i as usize]);
            let other = shared.clone();
            let thread = loom::thread::spawn(move || use_a_block(&other));
            use_a_block(&shared);
            thread.join().unwrap();
            let mut free = Vec::new();
            while let Some(index) = shared.list.pop(|i| &shared.links[i as usize]) {
                free.push(index);
            }
            free.sort_unstable();
            assert_eq!(free, [0, 1], "a block was lost or is there twice");
        });
    }
}
