//! Protection domains and registered memory.
//!
//! Memory from [`ProtectionDomain::allocate`] lies in segments that processes of the same user can map, which is what
//! lets a peer on this host WRITE and READ it without a packet. Any other memory of the process can be registered as well.
#![allow(unsafe_code)]

mod buffer;
mod device_memory;

pub use buffer::Buffer;
pub use device_memory::DeviceMemory;

use crate::device::Owner;
use crate::error::MemoryError;
use highwire_link::shm::{Access as ShmAccess, PublishedRegion};
use highwire_uapi::SharedBuffer;
use highwire_verbs::{
    Access, AccessError, LocalKey, Pd, RegionAttr, RegionChange, RegisterError, Remote, RemoteKey, Sge,
};
use std::sync::Arc;
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
    /// What it was registered with.
    attr: RegionAttr,
    is_published: bool,
    /// Memory that must stay as long as its keys.
    keeps: Option<Arc<SharedBuffer>>,
}

/// What is to change about a region; `None` leaves it as it is.
#[derive(Clone, Copy, Default)]
pub struct MemoryChange<'a> {
    /// It moves to this protection domain.
    pub pd: Option<&'a ProtectionDomain>,
    /// It stands for this memory from now on: address, length, and the first address that keys refer to.
    pub memory: Option<(*mut u8, usize, u64)>,
    /// It permits this.
    pub access: Option<Access>,
}

impl ProtectionDomain {
    pub(crate) fn create(device: &Arc<Owner>) -> ProtectionDomain {
        let mut lanes = device.lanes.iter();
        let first = lanes.next().expect("a device has at least one lane");
        let pd = first.control(|engine| engine.rnic.alloc_pd());
        lanes.for_each(|lane| lane.control(|engine| engine.rnic.adopt_pd(pd)));
        ProtectionDomain { inner: Arc::new(PdInner { device: Arc::clone(device), pd }) }
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
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { addr as u64 };
        self.inner.register(addr as u64, iova, length as u64, access)
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

    /// A region of no memory, for local keys only: what is sent from it is zero, and what is received into it is gone. Any
    /// address will do.
    pub fn null_region(&self) -> MemoryRegion {
        let attr = RegionAttr { addr: 0, length: 0, iova: 0, access: Access::LOCAL_WRITE };
        let key = loop {
            let mut lanes = self.inner.device.lanes.iter();
            let first = lanes.next().expect("a device has at least one lane");
            let key = first.control(|engine| engine.rnic.regions_mut().register_null(self.inner.pd));
            let taken = lanes.any(|lane| {
                lane.control(|engine| engine.rnic.regions_mut().register_null_as(key.0, self.inner.pd))
                    .is_err()
            });
            if !taken {
                break key;
            }
            self.inner.revoke(key);
        };
        MemoryRegion {
            pd: Arc::clone(&self.inner),
            addr: 0,
            length: u64::MAX,
            key: key.0,
            attr,
            is_published: false,
            keeps: None,
        }
    }

    /// Whether a request of this domain could use the memory, and write to it if `writes`.
    ///
    /// # Errors
    /// Why it could not.
    pub fn check(&self, sge: &Sge, writes: bool) -> Result<(), AccessError> {
        let lane = self.inner.device.lanes.first().expect("a device has at least one lane");
        lane.control(|engine| {
            let regions = engine.rnic.regions();
            regions.check_local(self.inner.pd, sge.lkey, sge.addr, sge.length, writes).map(drop)
        })
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
        let mut region = MemoryRegion {
            pd: Arc::clone(self),
            addr: iova,
            length,
            key: key.0,
            attr,
            is_published: false,
            keeps: None,
        };
        region.is_published = self.publish(key, &attr);
        Ok(region)
    }

    /// Takes a key out of every lane, with the windows that are bound to its region.
    fn revoke(&self, key: LocalKey) {
        for lane in &self.device.lanes {
            lane.dispose(|engine| engine.rnic.regions_mut().revoke(key));
        }
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
            lane.dispose(|engine| engine.rnic.dealloc_pd(self.pd));
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

impl MemoryRegion {
    /// Withdraws the keys, if no window is bound to the region.
    ///
    /// # Errors
    /// [`RegisterError::InUse`], with the region.
    pub fn deregister(self) -> Result<(), (MemoryRegion, RegisterError)> {
        let is_bound =
            |region: &MemoryRegion| {
                region.pd.device.lanes.iter().any(|lane| {
                    lane.control(|engine| engine.rnic.regions().has_windows(LocalKey(region.key)))
                })
            };
        if is_bound(&self) { Err((self, RegisterError::InUse)) } else { Ok(()) }
    }

    /// Changes what the region stands for; its keys stay the same. Requests that name it meanwhile may go either way.
    ///
    /// # Safety
    /// As for [`ProtectionDomain::register`], for the memory named here.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] while windows are bound to it, or why the new attributes cannot be. It is as it was then.
    pub unsafe fn reregister(&mut self, change: &MemoryChange<'_>) -> Result<(), RegisterError> {
        if change.pd.is_some_and(|pd| !Arc::ptr_eq(&pd.inner.device, &self.pd.device)) {
            return Err(RegisterError::NoSuchPd);
        }
        let memory = change.memory.map(|(addr, length, iova)| (addr as u64, length as u64, iova));
        let table_change =
            RegionChange { pd: change.pd.map(|pd| pd.inner.pd), memory, access: change.access };
        let back = RegionChange {
            pd: Some(self.pd.pd),
            memory: Some((self.attr.addr, self.attr.length, self.attr.iova)),
            access: Some(self.attr.access),
        };
        self.withdraw();
        let key = LocalKey(self.key);
        for (done, lane) in self.pd.device.lanes.iter().enumerate() {
            let changed = lane.control(|engine| engine.rnic.regions_mut().reregister(key, &table_change));
            if let Err(error) = changed {
                for lane in &self.pd.device.lanes[..done] {
                    let _ = lane.control(|engine| engine.rnic.regions_mut().reregister(key, &back));
                }
                self.is_published = self.pd.publish(key, &self.attr);
                return Err(error);
            }
        }
        if let Some((addr, length, iova)) = memory {
            self.attr = RegionAttr { addr, length, iova, ..self.attr };
            (self.addr, self.length) = (iova, length);
            self.keeps = None;
        }
        self.attr.access = change.access.unwrap_or(self.attr.access);
        if let Some(pd) = change.pd {
            self.pd = Arc::clone(&pd.inner);
        }
        self.is_published = self.pd.publish(key, &self.attr);
        Ok(())
    }

    /// Closes the region to peers that reach it without packets. One may be copying right now; it is waited for however
    /// long it takes: its death is noticed.
    fn withdraw(&mut self) {
        if let Some(local) = self.pd.device.local.as_ref().filter(|_| self.is_published) {
            while local.withdraw_region(self.key, Duration::from_millis(100)).is_err() {}
        }
        self.is_published = false;
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.withdraw();
        self.pd.revoke(LocalKey(self.key));
    }
}
