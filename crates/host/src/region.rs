//! Protection domains and registered memory.
//!
//! Memory from [`ProtectionDomain::allocate`] lies in segments that processes of the same user can map, which is what
//! lets a peer on this host WRITE and READ it without a packet. Any other memory of the process can be registered as well.
#![allow(unsafe_code)]

use crate::device::Owner;
use crate::error::MemoryError;
use highwire_link::shm::{Access as ShmAccess, PublishedRegion};
use highwire_uapi::SharedBuffer;
use highwire_verbs::{Access, LocalKey, Pd, RegionAttr, Remote, RemoteKey, Sge};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A protection domain. Clones are the same domain; it lives as long as anything in it.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

pub(crate) struct PdInner {
    pub(crate) device: Arc<Owner>,
    pub(crate) pd: Pd,
}

/// Registered memory that belongs to somebody else. Dropping it withdraws the keys.
pub struct MemoryRegion {
    pd: Arc<PdInner>,
    addr: u64,
    length: u64,
    key: u32,
    is_published: bool,
}

/// Registered memory of our own, which peers can reach directly. Its bytes may be written by peers at any time, so there
/// are no references to them: they are copied in and out.
pub struct Buffer {
    // Before the memory: keys go first.
    region: MemoryRegion,
    memory: SharedBuffer,
}

impl ProtectionDomain {
    pub(crate) fn create(device: &Arc<Owner>) -> ProtectionDomain {
        let mut lanes = device.lanes.iter();
        let first = lanes.next().expect("a device has at least one lane");
        let pd = first.control(|engine| engine.rnic.alloc_pd());
        lanes.for_each(|lane| lane.control(|engine| engine.rnic.adopt_pd(pd)));
        ProtectionDomain { inner: Arc::new(PdInner { device: Arc::clone(device), pd }) }
    }

    /// A buffer of `length` bytes, registered, with arbitrary contents.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn allocate(&self, length: usize, access: Access) -> Result<Buffer, MemoryError> {
        let memory = self.inner.device.pool.allocate(length, 4096.min(length.next_power_of_two()));
        let memory = memory.map_err(MemoryError::Pool)?;
        // SAFETY: the buffer owns the memory, and drops the region first.
        let region = unsafe { self.register(memory.as_ptr(), length, access) }?;
        Ok(Buffer { region, memory })
    }

    /// Registers memory of the process.
    ///
    /// # Safety
    /// The memory must stay mapped, and writable if `access` allows any writes, until the region is dropped and every
    /// request that names it has completed. Peers may change it whenever `access` lets them, so no reference to it may
    /// be assumed stable.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub unsafe fn register(
        &self,
        addr: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        self.inner.register(addr as u64, addr as u64, length as u64, access)
    }

    /// Registers memory that peers name by addresses beginning at `iova` instead of its own.
    ///
    /// # Safety
    /// As [`register`](Self::register).
    ///
    /// # Errors
    /// [`MemoryError`].
    pub unsafe fn register_at(
        &self,
        addr: *mut u8,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        self.inner.register(addr as u64, iova, length as u64, access)
    }

    /// The domain's number, the same in every lane.
    pub fn id(&self) -> Pd {
        self.inner.pd
    }
}

impl PdInner {
    fn register(
        self: &Arc<PdInner>,
        addr: u64,
        iova: u64,
        length: u64,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        let attr = RegionAttr { addr, length, iova, access };
        let mut done = 0;
        let key = loop {
            let mut lanes = self.device.lanes.iter();
            let first = lanes.next().expect("a device has at least one lane");
            let key = first
                .control(|engine| engine.rnic.regions_mut().register(self.pd, attr))
                .map_err(MemoryError::Register)?;
            // Lanes draw keys of their own for windows, so a key may be taken in another lane: then draw again.
            let taken = lanes
                .by_ref()
                .inspect(|_| done += 1)
                .find(|lane| {
                    lane.control(|engine| engine.rnic.regions_mut().register_as(key.0, self.pd, attr))
                        .is_err()
                })
                .is_some();
            if !taken {
                break key;
            }
            self.device.lanes.iter().take(done).for_each(|lane| {
                let _ = lane.control(|engine| engine.rnic.regions_mut().deregister(key));
            });
            done = 0;
        };
        let mut region =
            MemoryRegion { pd: Arc::clone(self), addr: iova, length, key: key.0, is_published: false };
        region.is_published = self.publish(key, &attr);
        Ok(region)
    }

    /// Opens the region to peers that can map it.
    fn publish(&self, key: LocalKey, attr: &RegionAttr) -> bool {
        let Some(local) = self.device.directly_reached() else { return false };
        let Some((segment, offset)) = self.device.pool.locate(attr.addr as *const u8, attr.length as usize)
        else {
            return false;
        };
        let entry = PublishedRegion {
            pd: self.pd.0,
            access: shm_access(attr.access),
            iova: attr.iova,
            length: attr.length,
            segment,
            offset: offset as u64,
            bound_qpn: 0,
        };
        // A full table only means that peers send packets.
        local.publish_region(key.0, &entry).is_ok()
    }
}

pub(crate) fn shm_access(access: Access) -> ShmAccess {
    let bit = |has, bit| if access.contains(has) { bit } else { ShmAccess(0) };
    bit(Access::REMOTE_WRITE, ShmAccess::REMOTE_WRITE)
        | bit(Access::REMOTE_READ, ShmAccess::REMOTE_READ)
        | bit(Access::REMOTE_ATOMIC, ShmAccess::REMOTE_ATOMIC)
}

impl Drop for PdInner {
    fn drop(&mut self) {
        for lane in &self.device.lanes {
            // Refused only while something is in it, and everything in it keeps it alive.
            let _ = lane.control(|engine| engine.rnic.dealloc_pd(self.pd));
        }
    }
}

impl MemoryRegion {
    /// The first address, as keys refer to it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// How many bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> LocalKey {
        LocalKey(self.key)
    }

    /// The key for peers.
    pub fn rkey(&self) -> RemoteKey {
        RemoteKey(self.key)
    }

    /// `length` bytes from `offset` on, for a work request.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.addr + offset, length, lkey: self.lkey() }
    }

    /// What a peer needs to reach the bytes from `offset` on.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { va: self.addr + offset, rkey: self.rkey() }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Some(local) = self.pd.device.local.as_ref().filter(|_| self.is_published) {
            // A peer may be copying right now. It is waited for however long it takes: its death is noticed.
            while local.withdraw_region(self.key, Duration::from_millis(100)).is_err() {}
        }
        for lane in &self.pd.device.lanes {
            let _ = lane.control(|engine| engine.rnic.regions_mut().deregister(LocalKey(self.key)));
        }
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

    /// Copies bytes out. What a peer writes meanwhile may arrive in part.
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
