//! Registered memory: protection domains, regions, windows, and the check that every access passes.
//!
//! A key is 24 random bits that name the entry and 8 bits that vary: a peer cannot guess one, and the owner of a
//! type 2 memory window may change the low byte with every bind (IBTA §10.6.7.2).
//!
//! Invariant: a window is valid only while its region is registered.

mod denial;
mod windows;

pub use denial::{Denial, DenialCause};
pub use windows::{MemoryWindow, WindowBind, WindowKind};

use crate::access::Access;
use highwire_stdx::{IdMap, Rng};
use highwire_wire::Qpn;

/// A protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Pd(pub u32);

/// The key to memory of this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct LocalKey(pub u32);

/// The key to memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct RemoteKey(pub u32);

/// The address of every null region. Applications have no memory there: it is the kernel's half.
pub const NULL_ADDR: u64 = 1 << 63;

/// The attributes of a new region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionAttr {
    /// The driver's address of the memory.
    pub addr: u64,
    /// How many bytes.
    pub length: u64,
    /// The address by which keys refer to the first byte; the same as `addr` unless asked otherwise.
    pub iova: u64,
    /// Its permissions.
    pub access: Access,
}

/// An entry of the table: a region, or a window bound to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The whole key, its varying byte included.
    pub key: u32,
    /// The protection domain.
    pub pd: Pd,
    /// The first address that keys refer to.
    pub iova: u64,
    /// How many bytes.
    pub length: u64,
    /// The driver's address of `iova`.
    pub addr: u64,
    /// Its permissions.
    pub access: Access,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Region {
        windows: u32,
    },
    /// No memory at all: reads give zeros, and data written is lost.
    Null,
    /// Allocated but not bound: no access.
    FreeWindow(WindowKind),
    /// Bound, and usable through the one QP that bound it (type 2B), or through every QP of the domain (type 1).
    BoundWindow {
        region: u32,
        holder: Option<Qpn>,
    },
}

/// The changes to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionChange {
    /// It moves to this protection domain.
    pub pd: Option<Pd>,
    /// It stands for this memory: the driver's address, the length in bytes, and the first address that keys
    /// refer to.
    pub memory: Option<(u64, u64, u64)>,
    /// It has these permissions.
    pub access: Option<Access>,
}

/// Why an access was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum AccessError {
    /// No such key, or one that is invalid now.
    BadKey,
    /// The key belongs to another protection domain, or to another QP.
    WrongDomain,
    /// Bytes outside the region.
    Bounds,
    /// The permission is missing.
    Denied,
}

/// Why an object was not made or freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// The range wraps around the address space.
    BadRange,
    /// Remote write or atomic access without local write (IBTA §10.6.3.1), or unknown bits.
    BadAccess,
    /// There is no such protection domain.
    NoSuchPd,
    /// There is no such key.
    NoSuchKey,
    /// Something still refers to the object.
    InUse,
}

impl std::fmt::Display for RegisterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RegisterError::BadRange => "the range wraps around the address space",
            RegisterError::BadAccess => "remote write and atomic access need local write access",
            RegisterError::NoSuchPd => "there is no such protection domain",
            RegisterError::NoSuchKey => "there is no such key",
            RegisterError::InUse => "it is still in use",
        })
    }
}

impl std::error::Error for RegisterError {}

/// The table of regions and windows.
#[derive(Clone, Debug)]
pub struct Regions {
    map: IdMap<Region>,
    rng: Rng,
    generation: u64,
}

impl Regions {
    /// An empty table that draws its keys from `rng`.
    pub fn new(rng: Rng) -> Regions {
        Regions { map: IdMap::new(0), rng, generation: 1 }
    }

    /// Whether an attacker who knows earlier keys cannot guess the next one.
    pub fn draws_secretly(&self) -> bool {
        self.rng.is_secret()
    }

    /// Changes whenever a key may have become invalid, so that a checked access can be remembered.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// A key that is not in use: random, and never zero, which applications take for "none".
    pub fn draw_key(&mut self) -> u32 {
        loop {
            let key = self.rng.next_u32();
            if key >> 8 != 0 && !self.map.contains(key >> 8) {
                return key;
            }
        }
    }

    /// Registers memory and returns its key, local and remote in one.
    ///
    /// # Errors
    /// [`RegisterError::BadRange`] and [`RegisterError::BadAccess`].
    pub fn register(&mut self, pd: Pd, attr: RegionAttr) -> Result<LocalKey, RegisterError> {
        let key = self.draw_key();
        self.register_as(key, pd, attr)?;
        Ok(LocalKey(key))
    }

    /// Registers memory under a key that [`Regions::draw_key`] of another lane's table gave.
    ///
    /// # Errors
    /// As [`Regions::register`]; [`RegisterError::InUse`] when the key is taken.
    pub fn register_as(&mut self, key: u32, pd: Pd, attr: RegionAttr) -> Result<(), RegisterError> {
        attr.check()?;
        if self.map.contains(key >> 8) {
            return Err(RegisterError::InUse);
        }
        let RegionAttr { addr, length, iova, access } = attr;
        self.map.insert(
            key >> 8,
            Region { key, pd, iova, length, addr, access, kind: Kind::Region { windows: 0 } },
        );
        Ok(())
    }

    /// A region without memory, for local keys only: data that is sent from it is zero, and data received
    /// into it is lost. Every address is valid.
    pub fn register_null(&mut self, pd: Pd) -> LocalKey {
        let key = self.draw_key();
        self.register_null_as(key, pd).expect("the key was not in use");
        LocalKey(key)
    }

    /// A region without memory under a key that another lane's table drew.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] when the key is taken.
    pub fn register_null_as(&mut self, key: u32, pd: Pd) -> Result<(), RegisterError> {
        if self.map.contains(key >> 8) {
            return Err(RegisterError::InUse);
        }
        let (access, kind) = (Access::LOCAL_WRITE, Kind::Null);
        self.map.insert(key >> 8, Region { key, pd, iova: 0, length: u64::MAX, addr: 0, access, kind });
        Ok(())
    }

    /// Changes a region, which keeps its key (IBTA §11.2.8.5).
    ///
    /// # Errors
    /// As [`Regions::register`]; [`RegisterError::NoSuchKey`]; [`RegisterError::InUse`] while windows are
    /// bound to it. Then the region is unchanged.
    pub fn reregister(&mut self, key: LocalKey, change: &RegionChange) -> Result<(), RegisterError> {
        let region = self.map.get_mut(key.0 >> 8).filter(|region| region.key == key.0);
        let region = region.ok_or(RegisterError::NoSuchKey)?;
        match region.kind {
            Kind::Region { windows: 0 } => {}
            Kind::Region { .. } => return Err(RegisterError::InUse),
            _ => return Err(RegisterError::NoSuchKey),
        }
        let (addr, length, iova) = change.memory.unwrap_or((region.addr, region.length, region.iova));
        let access = change.access.unwrap_or(region.access);
        RegionAttr { addr, length, iova, access }.check()?;
        *region = Region { pd: change.pd.unwrap_or(region.pd), iova, length, addr, access, ..*region };
        self.generation += 1;
        Ok(())
    }

    /// Forgets a region.
    ///
    /// # Errors
    /// [`RegisterError::NoSuchKey`]; [`RegisterError::InUse`] while windows are bound to it.
    pub fn deregister(&mut self, key: LocalKey) -> Result<Region, RegisterError> {
        match self.map.get(key.0 >> 8) {
            Some(Region { kind: Kind::Region { windows: 0 } | Kind::Null, .. }) => {}
            Some(Region { kind: Kind::Region { .. }, .. }) => return Err(RegisterError::InUse),
            _ => return Err(RegisterError::NoSuchKey),
        }
        self.generation += 1;
        self.map.remove(key.0 >> 8).ok_or(RegisterError::NoSuchKey)
    }

    /// Forgets a region even if windows are bound to it; those are free again.
    pub fn revoke(&mut self, key: LocalKey) {
        let index = key.0 >> 8;
        self.unbind_all(index);
        let _ = self.deregister(key);
    }

    /// Whether windows are bound to a region.
    pub fn has_windows(&self, key: LocalKey) -> bool {
        self.region(key).is_some_and(|region| matches!(region.kind, Kind::Region { windows: 1.. }))
    }

    /// The region of `key`.
    pub fn region(&self, key: LocalKey) -> Option<&Region> {
        self.map.get(key.0 >> 8).filter(|r| r.key == key.0)
    }

    /// Whether any key belongs to `pd`.
    pub fn uses(&self, pd: Pd) -> bool {
        self.map.iter().any(|(_, r)| r.pd == pd)
    }

    /// Checks a local access and returns the driver's address.
    ///
    /// # Errors
    /// Why it is refused.
    #[inline]
    pub fn check_local(
        &self,
        pd: Pd,
        key: LocalKey,
        addr: u64,
        length: u32,
        write: bool,
    ) -> Result<u64, AccessError> {
        let region = self.map.get(key.0 >> 8).ok_or(AccessError::BadKey)?;
        if region.key != key.0 || !matches!(region.kind, Kind::Region { .. } | Kind::Null) {
            return Err(AccessError::BadKey);
        }
        if region.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        if region.kind == Kind::Null {
            return Ok(NULL_ADDR);
        }
        if write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(AccessError::Denied);
        }
        region.translate(addr, length)
    }

    /// Checks a peer's access through QP `qpn` and returns the driver's address.
    ///
    /// # Errors
    /// Why it is refused.
    #[inline]
    pub fn check_remote(
        &self,
        pd: Pd,
        qpn: Qpn,
        key: RemoteKey,
        va: u64,
        length: u32,
        needed: Access,
    ) -> Result<u64, AccessError> {
        let region = self.map.get(key.0 >> 8).ok_or(AccessError::BadKey)?;
        if region.key != key.0 {
            return Err(AccessError::BadKey);
        }
        match region.kind {
            Kind::Region { .. } => {}
            Kind::FreeWindow(_) | Kind::Null => return Err(AccessError::BadKey),
            Kind::BoundWindow { holder: Some(bound), .. } if bound != qpn => {
                return Err(AccessError::WrongDomain);
            }
            Kind::BoundWindow { .. } => {}
        }
        if region.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        if !region.access.contains(needed) {
            return Err(AccessError::Denied);
        }
        region.translate(va, length)
    }
}

impl RegionAttr {
    fn check(&self) -> Result<(), RegisterError> {
        let end = |start: u64| start.checked_add(self.length);
        if end(self.addr).is_none_or(|end| end > NULL_ADDR) || end(self.iova).is_none() {
            return Err(RegisterError::BadRange);
        }
        let needs_local = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if self.access.intersects(needs_local) && !self.access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::BadAccess);
        }
        Ok(())
    }
}

impl Region {
    #[inline]
    fn translate(&self, va: u64, length: u32) -> Result<u64, AccessError> {
        let offset = va.checked_sub(self.iova).ok_or(AccessError::Bounds)?;
        if offset > self.length || u64::from(length) > self.length - offset {
            return Err(AccessError::Bounds);
        }
        Ok(self.addr + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: Pd = Pd(1);
    const QPN: Qpn = Qpn::new(7);

    fn table() -> (Regions, LocalKey) {
        let mut regions = Regions::new(Rng::new(1));
        let access = Access::ALL | Access::WINDOW_BIND;
        let attr = RegionAttr { addr: 0x1000, length: 0x100, iova: 0x5000, access };
        let key = regions.register(PD, attr).expect("registers");
        (regions, key)
    }

    #[test]
    fn an_access_passes_only_inside_with_the_right_key_domain_and_permission() {
        let (regions, key) = table();
        let check = |pd, key: u32, va, length, needed, expected| {
            assert_eq!(regions.check_remote(pd, QPN, RemoteKey(key), va, length, needed), expected);
        };
        check(PD, key.0, 0x5010, 0x10, Access::REMOTE_READ, Ok(0x1010));
        check(PD, key.0, 0x5100, 0, Access::REMOTE_READ, Ok(0x1100));
        check(PD, key.0, 0x5100, 1, Access::REMOTE_READ, Err(AccessError::Bounds));
        check(PD, key.0, 0x4fff, 1, Access::REMOTE_READ, Err(AccessError::Bounds));
        check(PD, key.0, u64::MAX, 2, Access::REMOTE_READ, Err(AccessError::Bounds));
        check(PD, key.0 ^ 1, 0x5010, 1, Access::REMOTE_READ, Err(AccessError::BadKey));
        check(PD, !key.0, 0x5010, 1, Access::REMOTE_READ, Err(AccessError::BadKey));
        check(Pd(2), key.0, 0x5010, 1, Access::REMOTE_READ, Err(AccessError::WrongDomain));
        check(PD, key.0, 0x5010, 1, Access::WINDOW_BIND | Access::ZERO_BASED, Err(AccessError::Denied));
    }

    #[test]
    fn a_region_changes_and_keeps_its_key() {
        let (mut regions, key) = table();
        let generation = regions.generation();
        let change =
            RegionChange { memory: Some((0x2000, 0x80, 0)), pd: Some(Pd(2)), ..RegionChange::default() };
        assert_eq!(regions.reregister(key, &change), Ok(()));
        assert_ne!(regions.generation(), generation, "what was checked before must be checked again");
        assert_eq!(regions.check_local(Pd(2), key, 0x7f, 1, true), Ok(0x207f));
        assert_eq!(
            regions.check_local(Pd(2), key, 0x7f, 2, true),
            Err(AccessError::Bounds),
            "it is shorter now"
        );
        let changed = regions.region(key).copied().expect("it is there");
        assert_eq!((changed.addr, changed.length, changed.iova, changed.pd), (0x2000, 0x80, 0, Pd(2)));
        assert_eq!(changed.access, Access::ALL | Access::WINDOW_BIND);
        assert_eq!(regions.check_local(PD, key, 0, 1, true), Err(AccessError::WrongDomain));
        let change = RegionChange { access: Some(Access::REMOTE_WRITE), ..RegionChange::default() };
        assert_eq!(regions.reregister(key, &change), Err(RegisterError::BadAccess));
        assert_eq!(regions.check_local(Pd(2), key, 0, 1, true), Ok(0x2000), "it is as it was");
        assert_eq!(regions.reregister(LocalKey(!key.0), &change), Err(RegisterError::NoSuchKey));
        let change = RegionChange { access: Some(Access::REMOTE_READ), ..RegionChange::default() };
        assert_eq!(regions.reregister(key, &change), Ok(()));
        assert_eq!(regions.check_local(Pd(2), key, 0, 1, true), Err(AccessError::Denied));
        assert_eq!(regions.check_local(Pd(2), key, 0x7f, 1, false), Ok(0x207f), "the rest is as it was");
    }

    #[test]
    fn a_null_region_is_local_and_has_every_address() {
        let mut regions = Regions::new(Rng::new(1));
        let key = regions.register_null(PD);
        for addr in [0, 1, u64::MAX] {
            assert_eq!(regions.check_local(PD, key, addr, u32::MAX, true), Ok(NULL_ADDR));
        }
        let remote = regions.check_remote(PD, QPN, RemoteKey(key.0), 0, 1, Access::NONE);
        assert_eq!(remote, Err(AccessError::BadKey));
        assert!(regions.deregister(key).is_ok());
    }

    #[test]
    fn a_range_that_wraps_and_an_access_that_contradicts_itself_are_refused() {
        let mut regions = Regions::new(Rng::new(1));
        let attr = RegionAttr { addr: u64::MAX - 4, length: 8, iova: 0, access: Access::ALL };
        assert_eq!(regions.register(PD, attr), Err(RegisterError::BadRange));
        let attr = RegionAttr { addr: 0, length: 8, iova: 0, access: Access::REMOTE_WRITE };
        assert_eq!(regions.register(PD, attr), Err(RegisterError::BadAccess));
    }
}
