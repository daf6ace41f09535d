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
use crate::in_place::{self, HeldPart};
use crate::memory::{View, ViewPart};
use highwire_link::shm::{Access as ShmAccess, PublishedRegion};
use highwire_shmem::SharedBuffer;
use highwire_verbs::{
    Access, AccessError, LocalKey, Pd, RegionAttr, RegionChange, RegisterError, Remote, RemoteKey, Sge,
};
use std::sync::Arc;
use std::time::Duration;

/// How long a call waits for a neighbour that uses the object which the call withdraws. A process that has
/// lost its core gets one within this time; a stopped or malicious one may not.
pub(crate) const NEIGHBOUR_PATIENCE: Duration = Duration::from_secs(1);

/// A protection domain. Clones are the same domain; it lives as long as anything in it.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

pub(crate) struct PdInner {
    pub(crate) device: Arc<Owner>,
    pub(crate) pd: Pd,
}

/// Registered memory that the application owns. Dropping it withdraws the keys.
pub struct MemoryRegion {
    pd: Arc<PdInner>,
    addr: u64,
    length: u64,
    key: u32,
    /// The attributes with which it was registered.
    attr: RegionAttr,
    is_published: bool,
    /// The library is to hold its memory.
    is_held: bool,
    /// The parts of it that the library has mapped itself.
    parts: Vec<HeldPart>,
    /// Memory that must stay as long as its keys.
    keeps: Option<Arc<SharedBuffer>>,
}

/// How memory is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegisterOptions {
    /// The address by which keys refer to the first byte; its own unless given.
    pub iova: Option<u64>,
    /// The library holds the memory, as a card pins it. Private memory moves, where it lies, onto memory that peers on this host
    /// can reach, and moves back when the last region of it goes. Peers then WRITE and READ there without this side's help. A
    /// program that unmaps the memory too early, or maps something else there, does not find peers' bytes in what came later.
    pub in_place: bool,
}

/// A change of a region; `None` leaves an attribute as it is.
#[derive(Clone, Copy, Default)]
pub struct MemoryChange<'a> {
    /// The new protection domain.
    pub pd: Option<&'a ProtectionDomain>,
    /// The new memory: address, length, and the first address that keys refer to.
    pub memory: Option<(*mut u8, usize, u64)>,
    /// The new rights.
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
        // SAFETY: the caller's promise.
        unsafe { self.register_with(addr, length, access, &RegisterOptions::default()) }
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
        let options = RegisterOptions { iova: Some(iova), in_place: false };
        // SAFETY: the caller's promise.
        unsafe { self.register_with(addr, length, access, &options) }
    }

    /// Registers memory with a full configuration.
    ///
    /// # Safety
    /// As [`register`](Self::register). With `in_place`, no input or output is under way for which the kernel has pinned the
    /// memory (`O_DIRECT`). Threads may go on using it.
    ///
    /// # Errors
    /// [`MemoryError`]. It is no error if memory could not be moved: peers reach it with packets.
    pub unsafe fn register_with(
        &self,
        addr: *mut u8,
        length: usize,
        access: Access,
        options: &RegisterOptions,
    ) -> Result<MemoryRegion, MemoryError> {
        let own = if access.contains(Access::ZERO_BASED) { 0 } else { addr as u64 };
        let mut region =
            self.inner.register(addr as u64, options.iova.unwrap_or(own), length as u64, access)?;
        region.is_held = options.in_place;
        // SAFETY: by the caller's promise.
        unsafe { region.hold() };
        Ok(region)
    }

    /// A region without memory, for local keys only: it sends zeros, and bytes received into it are
    /// discarded. Any address will do.
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
            is_held: false,
            parts: Vec::new(),
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
        // The program may have installed handlers of its own since.
        highwire_shmem::guard::install();
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
            is_held: false,
            parts: Vec::new(),
            keeps: None,
        };
        in_place::note(self.device.number(), key.0, attr.addr as usize..(attr.addr + attr.length) as usize);
        region.publish();
        Ok(region)
    }

    /// Takes a key out of every lane, with the windows that are bound to its region.
    fn revoke(&self, key: LocalKey) {
        for lane in &self.device.lanes {
            lane.dispose(|engine| engine.revoke_region(key));
        }
    }

    /// Opens the region, or the part of it that peers can map, to those peers.
    fn publish(&self, key: LocalKey, attr: &RegionAttr, parts: &[HeldPart]) -> bool {
        let Some(local) = self.device.directly_reached() else { return false };
        let in_pool = self.device.arenas.pool.locate(attr.addr as *const u8, attr.length as usize);
        // Only one part of a region can be published: the longest.
        let reached = parts.iter().filter_map(|part| Some((part, part.segment?)));
        let best = reached.max_by_key(|(part, _)| part.range.len());
        let place = match (in_pool, best) {
            (Some((segment, offset)), _) => Some((segment, offset as u64, 0, 0)),
            (None, Some((part, segment))) => {
                let before = u32::try_from(part.range.start as u64 - attr.addr);
                let behind = u32::try_from(attr.addr + attr.length - part.range.end as u64);
                before.ok().zip(behind.ok()).map(|(before, behind)| (segment, part.offset, before, behind))
            }
            (None, None) => None,
        };
        let Some((segment, offset, before, behind)) = place else { return false };
        let entry = PublishedRegion {
            pd: self.pd.0,
            access: shm_access(attr.access),
            iova: attr.iova,
            length: attr.length,
            segment,
            offset,
            before,
            behind,
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
            // Refused only while an object is in the domain, but every object keeps the domain alive.
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

    /// Whether it has no bytes.
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

    /// The address and key by which a peer reaches the bytes from `offset` on.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { va: self.addr + offset, rkey: self.rkey() }
    }
}

impl MemoryRegion {
    /// Withdraws the keys, if no window is bound to the region.
    ///
    /// # Errors
    /// [`RegisterError::InUse`], with the region.
    #[allow(clippy::result_large_err, reason = "an application that is refused keeps its region")]
    pub fn deregister(self) -> Result<(), (MemoryRegion, RegisterError)> {
        let is_bound =
            |region: &MemoryRegion| {
                region.pd.device.lanes.iter().any(|lane| {
                    lane.control(|engine| engine.rnic.regions().has_windows(LocalKey(region.key)))
                })
            };
        if is_bound(&self) { Err((self, RegisterError::InUse)) } else { Ok(()) }
    }

    /// Changes the region's memory, domain or rights; its keys stay the same. Requests that name it meanwhile
    /// may see the old or the new attributes.
    ///
    /// # Safety
    /// As for [`ProtectionDomain::register`], for the memory named here.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] while windows are bound to it, or why the new attributes are impossible. The
    /// region is unchanged then.
    pub unsafe fn reregister(&mut self, change: &MemoryChange<'_>) -> Result<(), RegisterError> {
        if change.pd.is_some_and(|pd| !Arc::ptr_eq(&pd.inner.device, &self.pd.device)) {
            return Err(RegisterError::NoSuchPd);
        }
        let memory = change.memory.map(|(addr, length, iova)| (addr as u64, length as u64, iova));
        let table_change =
            RegionChange { pd: change.pd.map(|pd| pd.inner.pd), memory, access: change.access };
        self.withdraw();
        let key = LocalKey(self.key);
        let mut places = Vec::new();
        for lane in &self.pd.device.lanes {
            let changed = lane.control(|engine| {
                let before = engine.region_addr(key);
                engine.rnic.regions_mut().reregister(key, &table_change).map(|()| before)
            });
            match changed {
                Ok(before) => places.push((lane, before)),
                Err(error) => {
                    for (lane, before) in places {
                        let back = RegionChange {
                            pd: Some(self.pd.pd),
                            memory: before.map(|addr| (addr, self.attr.length, self.attr.iova)),
                            access: Some(self.attr.access),
                        };
                        let _ = lane.control(|engine| engine.rnic.regions_mut().reregister(key, &back));
                    }
                    self.publish();
                    return Err(error);
                }
            }
        }
        if memory.is_some() {
            for (lane, before) in places {
                lane.control(|engine| engine.forget_view(before));
            }
        }
        if let Some((addr, length, iova)) = memory {
            self.attr = RegionAttr { addr, length, iova, ..self.attr };
            (self.addr, self.length) = (iova, length);
            self.keeps = None;
            self.let_go();
            in_place::note(self.pd.device.number(), self.key, addr as usize..(addr + length) as usize);
        }
        self.attr.access = change.access.unwrap_or(self.attr.access);
        if let Some(pd) = change.pd {
            self.pd = Arc::clone(&pd.inner);
        }
        self.publish();
        if memory.is_some() {
            // SAFETY: by the caller's promise.
            unsafe { self.hold() };
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.is_published = self.pd.publish(LocalKey(self.key), &self.attr, &self.parts);
    }

    /// Takes hold of the memory, if that is wanted, and opens what neighbours can map to them.
    ///
    /// # Safety
    /// As for [`ProtectionDomain::register_with`], with `in_place`.
    unsafe fn hold(&mut self) {
        let device = &self.pd.device;
        let (addr, length) = (self.attr.addr as usize, self.attr.length as usize);
        // The device's own memory goes with the device alone.
        if !self.is_held || length == 0 || device.arenas.pool.locate(addr as *const u8, length).is_some() {
            return;
        }
        let range = addr..addr + length;
        // SAFETY: by contract; a range that wraps would not have been registered.
        self.parts = unsafe {
            in_place::acquire(device.number(), &device.arenas.pool, &range, &|act| device.quietly(act))
        };
        self.show_through_view();
        self.publish();
    }

    /// Packets reach held memory through the library's mapping, as neighbours do, and not through the program's.
    fn show_through_view(&self) {
        if self.parts.is_empty() {
            return;
        }
        let first_page = self.attr.addr & !(in_place::PAGE_BYTES as u64 - 1);
        let part = |part: &HeldPart| ViewPart {
            start: part.range.start as u64 - first_page,
            length: part.range.len() as u64,
            mapping: Arc::clone(&part.mapping),
            offset: part.offset,
        };
        let view = View { first_page, parts: self.parts.iter().map(part).collect() };
        for lane in &self.pd.device.lanes {
            lane.control(|engine| engine.show_through(LocalKey(self.key), &self.attr, &view));
        }
    }

    /// Gives back what is held.
    fn let_go(&mut self) {
        for part in self.parts.drain(..) {
            in_place::release(part, &|act| self.pd.device.quietly(act));
        }
    }

    /// Closes the region to peers that reach it without packets. A peer may be copying right now, and this
    /// waits for it. If the peer takes longer than the patience, the memory that it has mapped is never used
    /// for anything else: moved memory goes back to private pages, and the device's own memory is not
    /// allocated again.
    fn withdraw(&mut self) {
        if let Some(local) = self.pd.device.local.as_ref().filter(|_| self.is_published)
            && local.withdraw_region(self.key, NEIGHBOUR_PATIENCE).is_err()
        {
            self.pd.device.arenas.pool.retire(self.attr.addr as *const u8);
        }
        self.is_published = false;
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.pd.device.is_inherited() {
            // The parent's peers still reach it; the child's memory became its own when it was forked.
            return;
        }
        self.withdraw();
        self.pd.revoke(LocalKey(self.key));
        in_place::forget(self.pd.device.number(), self.key);
        self.let_go();
    }
}
