//! Registered memory: protection domains, regions, windows, and the check that every access passes.
//!
//! A key is 24 random bits that name the entry and 8 bits that vary: a peer cannot guess one, and the owner of a
//! type 2 memory window may change the low byte with every bind (IBTA §10.6.7.2).
//!
//! Invariant: a window is valid only while its region is registered.

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

/// What a region is registered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionAttr {
    /// Where the memory lies for the driver.
    pub addr: u64,
    /// How many bytes.
    pub length: u64,
    /// The address by which keys refer to the first byte; the same as `addr` unless asked otherwise.
    pub iova: u64,
    /// What is permitted.
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
    /// Where `iova` lies for the driver.
    pub addr: u64,
    /// What is permitted.
    pub access: Access,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Region {
        windows: u32,
    },
    /// Allocated but not bound: no access.
    FreeWindow,
    /// Bound through a QP, and usable through that QP alone (type 2B).
    BoundWindow {
        region: u32,
        qpn: Qpn,
    },
}

/// A request to bind a type 2 memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowBind {
    /// The window's current key.
    pub window: RemoteKey,
    /// Its key from now on: the same but for the low byte.
    pub new_key: RemoteKey,
    /// The region.
    pub region: LocalKey,
    /// The first address, in the region's terms.
    pub va: u64,
    /// How many bytes.
    pub length: u64,
    /// What is permitted.
    pub access: Access,
}

/// A memory window, by the key it was allocated with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryWindow {
    /// Its first key.
    pub rkey: RemoteKey,
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
    /// Something still refers to it.
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

    /// Registers memory and gives its key, local and remote in one.
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
        let ends = [attr.addr.checked_add(attr.length), attr.iova.checked_add(attr.length)];
        if ends.contains(&None) {
            return Err(RegisterError::BadRange);
        }
        let needs_local = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if attr.access.intersects(needs_local) && !attr.access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::BadAccess);
        }
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

    /// Forgets a region.
    ///
    /// # Errors
    /// [`RegisterError::NoSuchKey`]; [`RegisterError::InUse`] while windows are bound to it.
    pub fn deregister(&mut self, key: LocalKey) -> Result<Region, RegisterError> {
        match self.map.get(key.0 >> 8) {
            Some(Region { kind: Kind::Region { windows: 0 }, .. }) => {}
            Some(Region { kind: Kind::Region { .. }, .. }) => return Err(RegisterError::InUse),
            _ => return Err(RegisterError::NoSuchKey),
        }
        self.generation += 1;
        self.map.remove(key.0 >> 8).ok_or(RegisterError::NoSuchKey)
    }

    /// The region of `key`.
    pub fn region(&self, key: LocalKey) -> Option<&Region> {
        self.map.get(key.0 >> 8).filter(|r| r.key == key.0)
    }

    /// Whether any key belongs to `pd`.
    pub fn uses(&self, pd: Pd) -> bool {
        self.map.iter().any(|(_, r)| r.pd == pd)
    }

    /// Checks a local access and gives the driver's address.
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
        if region.key != key.0 || !matches!(region.kind, Kind::Region { .. }) {
            return Err(AccessError::BadKey);
        }
        if region.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        if write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(AccessError::Denied);
        }
        region.translate(addr, length)
    }

    /// Checks a peer's access through QP `qpn` and gives the driver's address.
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
            Kind::FreeWindow => return Err(AccessError::BadKey),
            Kind::BoundWindow { qpn: bound, .. } if bound != qpn => return Err(AccessError::WrongDomain),
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

    /// Allocates a type 2 memory window, unbound.
    pub fn allocate_window(&mut self, pd: Pd) -> MemoryWindow {
        let key = self.draw_key();
        self.allocate_window_as(key, pd).expect("the key was not in use");
        MemoryWindow { rkey: RemoteKey(key) }
    }

    /// Allocates a window under a key that another lane's table drew.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] when the key is taken.
    pub fn allocate_window_as(&mut self, key: u32, pd: Pd) -> Result<(), RegisterError> {
        if self.map.contains(key >> 8) {
            return Err(RegisterError::InUse);
        }
        let free =
            Region { key, pd, iova: 0, length: 0, addr: 0, access: Access::NONE, kind: Kind::FreeWindow };
        self.map.insert(key >> 8, free);
        Ok(())
    }

    /// Frees a window, bound or not.
    ///
    /// # Errors
    /// [`RegisterError::NoSuchKey`].
    pub fn free_window(&mut self, window: MemoryWindow) -> Result<(), RegisterError> {
        let index = window.rkey.0 >> 8;
        match self.map.get(index).map(|r| r.kind) {
            Some(Kind::BoundWindow { .. }) => self.unbind(index),
            Some(Kind::FreeWindow) => {}
            _ => return Err(RegisterError::NoSuchKey),
        }
        self.map.remove(index);
        Ok(())
    }

    /// Binds a type 2 window through QP `qpn` (IBTA §10.6.7.2.3).
    ///
    /// # Errors
    /// When the window is bound already, a key does not fit, the domains differ, or the region does not permit it.
    pub fn bind(&mut self, pd: Pd, qpn: Qpn, bind: &WindowBind) -> Result<(), AccessError> {
        let index = bind.window.0 >> 8;
        let window = *self.map.get(index).filter(|w| w.key == bind.window.0).ok_or(AccessError::BadKey)?;
        if window.kind != Kind::FreeWindow || bind.new_key.0 >> 8 != index {
            return Err(AccessError::BadKey);
        }
        let region = *self.region(bind.region).ok_or(AccessError::BadKey)?;
        let Kind::Region { windows } = region.kind else { return Err(AccessError::BadKey) };
        if region.pd != pd || window.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if !region.access.contains(Access::WINDOW_BIND)
            || bind.access.intersects(writes) && !region.access.contains(Access::LOCAL_WRITE)
        {
            return Err(AccessError::Denied);
        }
        let inside = bind
            .va
            .checked_sub(region.iova)
            .filter(|o| o.checked_add(bind.length).is_some_and(|end| end <= region.length));
        let offset = inside.ok_or(AccessError::Bounds)?;
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        let bound = Region {
            key: bind.new_key.0,
            pd,
            iova: if zero_based { 0 } else { bind.va },
            length: bind.length,
            addr: region.addr + offset,
            access: bind.access,
            kind: Kind::BoundWindow { region: region.key >> 8, qpn },
        };
        self.map.insert(index, bound);
        self.set_windows(region.key >> 8, windows + 1);
        Ok(())
    }

    /// Invalidates a bound window through QP `qpn`, for LOCAL_INV and SEND with invalidate.
    ///
    /// # Errors
    /// When the key is not that of a window bound through this QP and domain.
    pub fn invalidate(&mut self, pd: Pd, qpn: Qpn, key: RemoteKey) -> Result<(), AccessError> {
        let entry = self.map.get(key.0 >> 8).filter(|w| w.key == key.0).ok_or(AccessError::BadKey)?;
        match entry.kind {
            Kind::BoundWindow { qpn: bound, .. } if bound == qpn && entry.pd == pd => {
                self.unbind(key.0 >> 8);
                Ok(())
            }
            Kind::BoundWindow { .. } => Err(AccessError::WrongDomain),
            Kind::Region { .. } | Kind::FreeWindow => Err(AccessError::BadKey),
        }
    }

    fn unbind(&mut self, index: u32) {
        self.generation += 1;
        let Some(window) = self.map.get_mut(index) else { return };
        let Kind::BoundWindow { region, .. } = window.kind else { return };
        window.kind = Kind::FreeWindow;
        if let Some(Region { kind: Kind::Region { windows }, .. }) = self.map.get(region).copied() {
            self.set_windows(region, windows - 1);
        }
    }

    fn set_windows(&mut self, region: u32, windows: u32) {
        if let Some(entry) = self.map.get_mut(region) {
            entry.kind = Kind::Region { windows };
        }
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
    fn a_window_lives_from_bind_to_invalidate_through_its_own_qp() {
        let (mut regions, key) = table();
        let window = regions.allocate_window(PD);
        let new_key = RemoteKey(window.rkey.0 & !0xFF | (window.rkey.0 + 1) & 0xFF);
        let bind = WindowBind {
            window: window.rkey,
            new_key,
            region: key,
            va: 0x5020,
            length: 0x10,
            access: Access::REMOTE_WRITE,
        };
        let write =
            |regions: &Regions, qpn| regions.check_remote(PD, qpn, new_key, 0x5020, 8, Access::REMOTE_WRITE);
        assert_eq!(write(&regions, QPN), Err(AccessError::BadKey));
        assert_eq!(regions.bind(PD, QPN, &bind), Ok(()));
        assert_eq!(write(&regions, QPN), Ok(0x1020));
        assert_eq!(write(&regions, Qpn::new(8)), Err(AccessError::WrongDomain));
        assert_eq!(regions.deregister(key), Err(RegisterError::InUse));
        assert_eq!(regions.bind(PD, QPN, &bind), Err(AccessError::BadKey));
        assert_eq!(regions.invalidate(PD, Qpn::new(8), new_key), Err(AccessError::WrongDomain));
        assert_eq!(regions.invalidate(PD, QPN, new_key), Ok(()));
        assert_eq!(write(&regions, QPN), Err(AccessError::BadKey));
        assert!(regions.deregister(key).is_ok());
        assert!(regions.free_window(MemoryWindow { rkey: new_key }).is_ok());
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
