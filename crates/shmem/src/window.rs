//! A checked view of shared memory: the only way the rest of the crate touches it.
//!
//! A window is inside its segment by construction and keeps it mapped. Each access checks its offset again,
//! which costs a fraction of a nanosecond and makes the accessors safe even if a header lies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::copy;
use crate::layout::LayoutError;
use crate::segment::Segment;

/// A range of a [`Segment`], aligned to 64 bytes at its start.
#[derive(Clone)]
pub struct Window {
    base: *mut u8,
    len: usize,
    segment: Arc<Segment>,
    offset: usize,
}

// SAFETY: the memory is only accessed atomically or by racy copies, and the segment outlives the window.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// The bytes `offset .. offset + len` of a segment.
    ///
    /// # Errors
    /// [`LayoutError::OutOfBounds`] or [`LayoutError::Misaligned`] (the start must be a multiple of 64).
    pub fn new(segment: &Arc<Segment>, offset: usize, len: usize) -> Result<Window, LayoutError> {
        let end = offset.checked_add(len).filter(|&end| end <= segment.len());
        if end.is_none() {
            return Err(LayoutError::OutOfBounds { offset, len, mapped: segment.len() });
        }
        if !offset.is_multiple_of(64) {
            return Err(LayoutError::Misaligned { offset });
        }
        // SAFETY: `offset` is at most the segment's length.
        let base = unsafe { segment.as_ptr().add(offset) };
        Ok(Window { base, len, segment: Arc::clone(segment), offset })
    }

    /// The whole of a segment.
    pub fn whole(segment: &Arc<Segment>) -> Window {
        Window { base: segment.as_ptr(), len: segment.len(), segment: Arc::clone(segment), offset: 0 }
    }

    /// A part of this window.
    ///
    /// # Errors
    /// As for [`Window::new`].
    pub fn part(&self, offset: usize, len: usize) -> Result<Window, LayoutError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(LayoutError::OutOfBounds { offset, len, mapped: self.len });
        }
        Window::new(&self.segment, self.offset + offset, len)
    }

    /// Bytes in the window.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the window has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segment that holds the window.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Where the window starts in its segment, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The address of the first byte, in this process.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// The 64-bit word at `offset`.
    ///
    /// # Panics
    /// If the word is not inside the window or not aligned, which is a bug in Highwire: offsets are constants
    /// or come from a validated layout.
    #[inline]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset & 7 == 0 && offset < self.len && self.len - offset >= 8, "u64 outside of the window");
        // SAFETY: in bounds and aligned (the base is 64-byte aligned); the segment is kept mapped by `self`; every
        // other access to this memory is atomic, too.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    /// The 32-bit word at `offset`.
    ///
    /// # Panics
    /// As for [`Window::u64_at`].
    #[inline]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(offset & 3 == 0 && offset < self.len && self.len - offset >= 4, "u32 outside of the window");
        // SAFETY: as in `u64_at`.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }

    /// Copies `N` words out, each by one relaxed load.
    ///
    /// # Panics
    /// As for [`Window::u64_at`].
    #[inline]
    pub fn load_words_relaxed<const N: usize>(&self, offset: usize) -> [u64; N] {
        self.check(offset, N * 8);
        // SAFETY: `check` covers all words.
        std::array::from_fn(|i| unsafe {
            AtomicU64::from_ptr(self.base.add(offset + 8 * i).cast()).load(Ordering::Relaxed)
        })
    }

    /// Copies `N` words in, each by one relaxed store.
    ///
    /// # Panics
    /// As for [`Window::u64_at`].
    #[inline]
    pub fn store_words_relaxed<const N: usize>(&self, offset: usize, words: &[u64; N]) {
        self.check(offset, N * 8);
        for (i, &word) in words.iter().enumerate() {
            // SAFETY: `check` covers all words.
            unsafe {
                AtomicU64::from_ptr(self.base.add(offset + 8 * i).cast()).store(word, Ordering::Relaxed)
            };
        }
    }

    /// Copies bytes out of the window. Concurrent writers may tear them.
    ///
    /// # Panics
    /// If the range is not inside the window.
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= self.len && self.len - offset >= to.len(), "read outside of the window");
        // SAFETY: in bounds; `to` is exclusive and lies in private memory.
        unsafe { copy::copy_racy(self.base.add(offset), to.as_mut_ptr(), to.len()) };
        copy::after_reading();
    }

    /// Copies bytes into the window; publish them with a Release store afterwards.
    ///
    /// # Panics
    /// If the range is not inside the window.
    #[inline]
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        assert!(offset <= self.len && self.len - offset >= from.len(), "write outside of the window");
        // SAFETY: in bounds; there are no references into shared memory.
        unsafe { copy::copy_racy(from.as_ptr(), self.base.add(offset), from.len()) };
    }

    /// Prefetches the cache line at `offset` for reading. Offsets outside of the window have no effect.
    #[inline]
    pub fn prefetch_read(&self, offset: usize) {
        copy::prefetch_read(self.base.wrapping_add(offset));
    }

    /// Prefetches the cache line at `offset` for writing, which takes it away from other cores.
    #[inline]
    pub fn prefetch_write(&self, offset: usize) {
        copy::prefetch_write(self.base.wrapping_add(offset));
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset & 7 == 0 && offset <= self.len && self.len - offset >= len,
            "words outside of the window"
        );
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window({}..{})", self.offset, self.offset + self.len)
    }
}
