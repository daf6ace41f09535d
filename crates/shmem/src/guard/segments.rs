//! The addresses of segments, for a handler that may take no lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

const BLOCK: usize = 64;

/// Segments, in blocks that are never freed. There is no lock, which the child of a fork might find held for ever.
struct Block {
    entries: [Entry; BLOCK],
    next: AtomicPtr<Block>,
}

/// Free if the start is 0, and not yet valid if the length is.
struct Entry {
    start: AtomicUsize,
    len: AtomicUsize,
}

impl Block {
    const fn new() -> Block {
        Block {
            entries: [const { Entry { start: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; BLOCK],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

static FIRST: Block = Block::new();
pub(super) static LOST: AtomicU64 = AtomicU64::new(0);

/// The blocks, in order.
fn blocks() -> impl Iterator<Item = &'static Block> {
    std::iter::successors(Some(&FIRST), |block| {
        // SAFETY: set once to a block that is never freed.
        unsafe { block.next.load(Ordering::Acquire).as_ref() }
    })
}

pub(super) fn watch(start: usize, len: usize) {
    let mut block = &FIRST;
    loop {
        let claimed = block.entries.iter().find(|entry| {
            let free = entry.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed);
            free.is_ok()
        });
        if let Some(entry) = claimed {
            return entry.len.store(len, Ordering::Release);
        }
        let next = block.next.load(Ordering::Acquire);
        if next.is_null() {
            let fresh = Box::into_raw(Box::new(Block::new()));
            let linked = block.next.compare_exchange(next, fresh, Ordering::AcqRel, Ordering::Acquire);
            if linked.is_err() {
                // SAFETY: no other thread has seen it: another thread's block was linked.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        // SAFETY: set by now, once, to a block that is never freed.
        block = unsafe { &*block.next.load(Ordering::Acquire) };
    }
}

pub(super) fn is_watched(start: usize) -> bool {
    blocks().flat_map(|block| &block.entries).any(|entry| entry.start.load(Ordering::Acquire) == start)
}

pub(super) fn forget(start: usize) {
    let is_it = |entry: &&Entry| entry.start.load(Ordering::Acquire) == start;
    if let Some(entry) = blocks().flat_map(|block| &block.entries).find(is_it) {
        entry.len.store(0, Ordering::Release);
        entry.start.store(0, Ordering::Release);
    }
}

/// Puts zeros where a segment's file ends too early, from the page of `address` on; false if no segment lies
/// there. Calls only functions that are safe in a signal handler.
pub(super) fn mend(address: usize) -> bool {
    for entry in blocks().flat_map(|block| &block.entries) {
        let len = entry.len.load(Ordering::Acquire);
        let start = entry.start.load(Ordering::Relaxed);
        if address.wrapping_sub(start) >= len {
            continue;
        }
        let page = address & !(crate::segment::PAGE_BYTES - 1);
        let (rights, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: the range is a mapping of this crate's that cannot be read any more; the thread that
        // faulted is using it, so it stays. errno is the interrupted code's.
        unsafe {
            let errno = *libc::__errno_location();
            let mended = libc::mmap(page as *mut libc::c_void, start + len - page, rights, flags, -1, 0);
            *libc::__errno_location() = errno;
            if mended != libc::MAP_FAILED {
                LOST.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
    }
    false
}
