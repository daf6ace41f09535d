//! Large tables on huge pages.
//!
//! A simulated network of a thousand hosts has some thirty megabytes that events touch everywhere: with pages
//! of 4 KiB the processor spends a tenth of its time on looking up their addresses. Many systems give huge
//! pages only to programs that ask (`transparent_hugepage/enabled` says `madvise`), so this allocator asks
//! for large blocks; all others are mimalloc's, which allocates and frees a small block in a fraction of the
//! C library's time: a node of the store does so a few dozen times a transaction.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use mimalloc::MiMalloc;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap};

/// The program's allocator.
pub struct HugePages;

/// The size of a huge page on most machines. Smaller blocks are mimalloc's.
const HUGE: usize = 2 << 20;

const fn is_large(size: usize, align: usize) -> bool {
    size >= HUGE && align <= 4096
}

/// The size in whole huge pages; `None` if it is impossible.
fn rounded(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(HUGE)
}

fn map(size: usize) -> *mut u8 {
    let Some(length) = rounded(size) else { return null_mut() };
    // SAFETY: a new mapping at a place of the system's choice overlaps nothing.
    let mapped =
        unsafe { mmap_anonymous(null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    mapped.map_or(null_mut(), |place| advised(place, length))
}

/// Asks for huge pages; without effect on a system that has none.
fn advised(place: *mut c_void, length: usize) -> *mut u8 {
    // SAFETY: the mapping was made just now and is `length` long; the advice changes no contents.
    let _ = unsafe { madvise(place, length, Advice::LinuxHugepage) };
    place.cast()
}

// SAFETY: the layout alone decides whether a block is a mapping of its own or mimalloc's, so each goes back
// to its origin. Mappings are aligned to pages and zero.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size(), layout.align()) {
            return map(layout.size());
        }
        // SAFETY: as the caller promises.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size(), layout.align()) {
            return map(layout.size());
        }
        // SAFETY: as the caller promises.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_large(layout.size(), layout.align()) {
            // SAFETY: as the caller promises; the block is mimalloc's.
            return unsafe { MiMalloc.dealloc(block, layout) };
        }
        if let Some(length) = rounded(layout.size()) {
            // SAFETY: `map` made it with this length, and the caller no longer uses it.
            let _ = unsafe { munmap(block.cast(), length) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (is_large(layout.size(), layout.align()), is_large(size, layout.align())) {
            // SAFETY: as the caller promises; the block is mimalloc's and stays so.
            (false, false) => unsafe { MiMalloc.realloc(block, layout, size) },
            (true, true) => {
                let (Some(old), Some(new)) = (rounded(layout.size()), rounded(size)) else {
                    return null_mut();
                };
                // SAFETY: `map` made it with the old length; the caller uses only what is returned.
                let moved = unsafe { mremap(block.cast(), old, new, MremapFlags::MAYMOVE) };
                moved.map_or(null_mut(), |place| advised(place, new))
            }
            // SAFETY: the new layout is valid, since the caller promises that of the size; both blocks hold
            // the copied bytes.
            _ => unsafe {
                let fresh = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                if let (Some(to), Some(from)) = (NonNull::new(fresh), NonNull::new(block)) {
                    to.copy_from_nonoverlapping(from, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                fresh
            },
        }
    }
}

#[cfg(test)]
mod tests {
    /// The tests of this program use it as their allocator, too.
    #[test]
    fn blocks_grow_and_shrink_across_the_border() {
        let mut bytes: Vec<u32> = Vec::new();
        for number in 0..2_000_000 {
            bytes.push(number);
        }
        bytes.truncate(1000);
        bytes.shrink_to_fit();
        assert!(bytes.iter().copied().eq(0..1000));
        bytes.resize(3_000_000, 7);
        bytes.truncate(1_500_000);
        bytes.shrink_to_fit();
        assert_eq!((bytes[999], bytes[1000], bytes[1_499_999]), (999, 7, 7));
        let zeroes = vec![0u64; 1 << 20];
        assert!(zeroes.iter().all(|&zero| zero == 0));
    }
}
