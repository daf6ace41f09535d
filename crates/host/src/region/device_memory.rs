//! Device memory: bytes that belong to the device, which programs reach by copying and by registering them.
//!
//! A card has such memory on its chip. Here it comes from the segments that neighbours can map, so peers on this host reach it
//! as fast as any other.
#![allow(unsafe_code)]

use super::{MemoryRegion, ProtectionDomain};
use crate::device::Device;
use crate::error::MemoryError;
use highwire_shmem::SharedBuffer;
use highwire_verbs::{Access, RegisterError};
use std::sync::Arc;

/// Memory of the device. Clones are the same memory; it is freed once the last of them and the last region of it are gone.
#[derive(Clone)]
pub struct DeviceMemory {
    pub(super) memory: Arc<SharedBuffer>,
}

impl Device {
    /// Memory of the device: `length` zero bytes at a multiple of `align`, which is a power of two.
    ///
    /// # Errors
    /// [`MemoryError::Pool`].
    pub fn device_memory(&self, length: usize, align: usize) -> Result<DeviceMemory, MemoryError> {
        let memory = self.pool().allocate(length, align).map_err(MemoryError::Pool)?;
        let memory = DeviceMemory { memory: Arc::new(memory) };
        // Bytes that an earlier user of the pool left must not be visible.
        let zeros = [0; 4096];
        for at in (0..length).step_by(zeros.len()) {
            memory.write(at, &zeros[..zeros.len().min(length - at)])?;
        }
        Ok(memory)
    }
}

impl DeviceMemory {
    /// How many bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// Beyond the end.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MemoryError> {
        self.memory.write(offset, bytes).map_err(|_| MemoryError::Register(RegisterError::BadRange))
    }

    /// Copies bytes out. A peer's concurrent write may be seen in part.
    ///
    /// # Errors
    /// Beyond the end.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.read(offset, bytes).map_err(|_| MemoryError::Register(RegisterError::BadRange))
    }
}

impl ProtectionDomain {
    /// Registers `length` bytes of device memory from `offset` on. Keys count from zero.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn register_device_memory(
        &self,
        memory: &DeviceMemory,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        if offset.checked_add(length).is_none_or(|end| end > memory.len()) {
            return Err(MemoryError::Register(RegisterError::BadRange));
        }
        let start = memory.memory.as_ptr().wrapping_add(offset);
        // SAFETY: the region keeps the memory, and is withdrawn before it lets go.
        let mut region = unsafe { self.register_at(start, length, 0, access) }?;
        region.keeps = Some(Arc::clone(&memory.memory));
        Ok(region)
    }
}
