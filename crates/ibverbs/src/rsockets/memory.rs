//! Buffers that the network reads and writes: pages of their own, registered as long as they live.

use std::ptr::{NonNull, null_mut};

use libc::{c_int, c_void};

use super::c;
use super::wire::Target;
use crate::abi::{ibv_mr, ibv_pd};

/// A registered buffer. A peer may write to it at any time, so it is read and written by pointer only.
pub(super) struct Buffer {
    start: NonNull<u8>,
    length: usize,
    mr: *mut ibv_mr,
}

// SAFETY: the memory is this buffer's alone in this process; the owner of the buffer may use it.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A buffer of zeros.
    pub(super) fn new(pd: *mut ibv_pd, length: usize, access: u32) -> Result<Buffer, c_int> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping changes no existing memory.
        let start = unsafe { libc::mmap(null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(c::last_errno());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(libc::ENOMEM)?;
        let mut buffer = Buffer { start, length, mr: null_mut() };
        // SAFETY: the domain is alive, and the memory remains until the region is gone.
        buffer.mr = c::made(unsafe { c::ibv_reg_mr(pd, start.as_ptr().cast(), length, access as c_int) })?;
        Ok(buffer)
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the region lives as long as the buffer.
        unsafe { (*self.mr).lkey }
    }

    /// Where byte `at` is.
    pub(super) fn at(&self, at: usize) -> *mut u8 {
        assert!(at <= self.length, "within the buffer");
        self.start.as_ptr().wrapping_add(at)
    }

    /// The target by which a peer writes to `length` bytes from `at` on.
    pub(super) fn target(&self, at: usize, length: usize) -> Target {
        // SAFETY: as in `lkey`.
        let key = unsafe { (*self.mr).rkey };
        Target { addr: self.at(at) as u64, key, length: length as u32 }
    }

    /// Copies in, round the end.
    ///
    /// # Safety
    /// `from` is `length` readable bytes long.
    pub(super) unsafe fn fill(&self, at: usize, from: *const u8, length: usize) {
        let first = length.min(self.length - at);
        // SAFETY: the caller's promise; both parts are within the buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(from, self.at(at), first);
            std::ptr::copy_nonoverlapping(from.add(first), self.at(0), length - first);
        }
    }

    /// Copies out, round the end.
    ///
    /// # Safety
    /// `to` is `length` writable bytes long.
    pub(super) unsafe fn drain(&self, at: usize, to: *mut u8, length: usize) {
        let first = length.min(self.length - at);
        // SAFETY: the caller's promise; both parts are within the buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at(at), to, first);
            std::ptr::copy_nonoverlapping(self.at(0), to.add(first), length - first);
        }
    }

    /// The value that a peer wrote at `at`.
    pub(super) fn read<T: Copy>(&self, at: usize) -> T {
        assert!(at + size_of::<T>() <= self.length, "within the buffer");
        // SAFETY: within the buffer, and any bytes are a value of the structures that are read.
        unsafe { self.at(at).cast::<T>().read_volatile() }
    }

    /// Overwrites a peer's value.
    pub(super) fn write<T: Copy>(&self, at: usize, value: T) {
        assert!(at + size_of::<T>() <= self.length, "within the buffer");
        // SAFETY: within the buffer.
        unsafe { self.at(at).cast::<T>().write_volatile(value) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: both were made here; the queue pair that uses them is gone.
        unsafe {
            if !self.mr.is_null() {
                c::ibv_dereg_mr(self.mr);
            }
            libc::munmap(self.start.as_ptr().cast::<c_void>(), self.length);
        }
    }
}
