//! Registered memory of our own.
//!
//! It lies in segments that processes of the same user can map, which is what lets a peer on this host WRITE and READ it
//! without a packet.
#![allow(unsafe_code)]

use super::{MemoryRegion, ProtectionDomain};
use crate::error::MemoryError;
use highwire_shmem::SharedBuffer;
use highwire_verbs::Access;
use std::sync::atomic::{AtomicU64, Ordering};

/// Registered memory of our own, which peers can reach directly. Its bytes may be written by peers at any time, so there
/// are no references to them: they are copied in and out.
pub struct Buffer {
    // Before the memory: keys go first.
    region: MemoryRegion,
    memory: SharedBuffer,
}

impl ProtectionDomain {
    /// A buffer of `length` bytes, registered, with arbitrary contents.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn allocate(&self, length: usize, access: Access) -> Result<Buffer, MemoryError> {
        let memory = self.inner.device.arenas.pool.allocate(length, 4096.min(length.next_power_of_two()));
        let memory = memory.map_err(MemoryError::Pool)?;
        // SAFETY: the buffer owns the memory, and drops the region first.
        let region = unsafe { self.register(memory.as_ptr(), length, access) }?;
        Ok(Buffer { region, memory })
    }
}

impl std::ops::Deref for Buffer {
    type Target = MemoryRegion;
    fn deref(&self) -> &MemoryRegion {
        &self.region
    }
}

impl Buffer {
    /// Copies bytes in.
    ///
    /// # Panics
    /// Beyond the buffer's end.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes).expect("within the buffer");
    }

    /// Copies bytes out. A peer's concurrent write may be seen in part.
    ///
    /// # Panics
    /// Beyond the buffer's end.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.memory.read(offset, bytes).expect("within the buffer");
    }

    /// Copies bytes out into a vector.
    ///
    /// # Panics
    /// Beyond the buffer's end.
    pub fn to_vec(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        let chunk = [byte; 4096];
        let length = self.memory.len();
        (0..length)
            .step_by(chunk.len())
            .for_each(|at| self.write(at, &chunk[..chunk.len().min(length - at)]));
    }

    /// The aligned 64-bit word at `offset`, for polling and for atomics that both sides use.
    ///
    /// # Panics
    /// Beyond the buffer's end, or at an offset that is no multiple of eight.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.memory.len(), "the word lies beyond the buffer's end");
        self.memory.window().u64_at(offset)
    }

    /// The byte at `offset` as it is now; everything written before it by one WRITE is visible then.
    ///
    /// # Panics
    /// Beyond the buffer's end.
    #[inline]
    pub fn byte(&self, offset: usize) -> u8 {
        let word = self.memory.window().u64_at(offset & !7).load(Ordering::Acquire);
        word.to_le_bytes()[offset & 7]
    }

    /// The address in this process.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}
