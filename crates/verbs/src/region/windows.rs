//! Memory windows: keys to part of a region, which its owner grants and revokes (IBTA §10.6.7.2).
//!
//! A window of type 1 serves every QP of its domain and may be bound again while it is bound. One of type 2 serves the QP
//! that bound it (2B), and must be invalidated first, by its owner or by the peer.

use super::{AccessError, Kind, LocalKey, Pd, Region, Regions, RegisterError, RemoteKey};
use crate::access::Access;
use highwire_wire::Qpn;

/// The two kinds of memory windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum WindowKind {
    /// For every QP of the domain.
    One,
    /// For the QP that binds it.
    Two,
}

/// A request to bind a memory window.
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
    /// Its permissions.
    pub access: Access,
}

/// A memory window, by the key it was allocated with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryWindow {
    /// Its first key.
    pub rkey: RemoteKey,
}

impl Regions {
    /// Allocates a memory window of type 2, unbound.
    pub fn allocate_window(&mut self, pd: Pd) -> MemoryWindow {
        self.allocate_window_of(WindowKind::Two, pd)
    }

    /// Allocates a memory window, unbound.
    pub fn allocate_window_of(&mut self, kind: WindowKind, pd: Pd) -> MemoryWindow {
        let key = self.draw_key();
        self.allocate_window_as(key, kind, pd).expect("the key was not in use");
        MemoryWindow { rkey: RemoteKey(key) }
    }

    /// Allocates a window under a key that another lane's table drew.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] when the key is taken.
    pub fn allocate_window_as(&mut self, key: u32, kind: WindowKind, pd: Pd) -> Result<(), RegisterError> {
        if self.map.contains(key >> 8) {
            return Err(RegisterError::InUse);
        }
        let kind = Kind::FreeWindow(kind);
        let free = Region { key, pd, iova: 0, length: 0, addr: 0, access: Access::NONE, kind };
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
            Some(Kind::FreeWindow(_)) => {}
            _ => return Err(RegisterError::NoSuchKey),
        }
        self.map.remove(index);
        Ok(())
    }

    /// Binds a window through QP `qpn` (IBTA §10.6.7.2.3). A window of type 1 may be bound already, and is
    /// unbound first; bound to zero bytes, it is free again.
    ///
    /// # Errors
    /// A window of type 2 is bound already or to be bound to zero bytes, a key does not fit, the domains
    /// differ, or the region does not permit it.
    pub fn bind(&mut self, pd: Pd, qpn: Qpn, bind: &WindowBind) -> Result<(), AccessError> {
        let index = bind.window.0 >> 8;
        let window = *self.map.get(index).filter(|w| w.key == bind.window.0).ok_or(AccessError::BadKey)?;
        let kind = match window.kind {
            Kind::FreeWindow(kind) => kind,
            Kind::BoundWindow { holder: None, .. } => WindowKind::One,
            _ => return Err(AccessError::BadKey),
        };
        if bind.new_key.0 >> 8 != index {
            return Err(AccessError::BadKey);
        }
        if kind == WindowKind::Two && bind.length == 0 {
            // IBTA o10-37.2.40: a window of type 2 is invalidated, not bound to zero bytes.
            return Err(AccessError::Bounds);
        }
        if kind == WindowKind::One && bind.length == 0 {
            self.unbind(index);
            if let Some(window) = self.map.get_mut(index) {
                window.key = bind.new_key.0;
            }
            return Ok(());
        }
        let region = *self.region(bind.region).ok_or(AccessError::BadKey)?;
        let Kind::Region { .. } = region.kind else { return Err(AccessError::BadKey) };
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
            kind: Kind::BoundWindow {
                region: region.key >> 8,
                holder: (kind == WindowKind::Two).then_some(qpn),
            },
        };
        self.unbind(index);
        self.map.insert(index, bound);
        self.count_windows(region.key >> 8, 1);
        Ok(())
    }

    /// Invalidates a bound window through QP `qpn`, for LOCAL_INV and SEND with invalidate.
    ///
    /// # Errors
    /// When the key is not that of a window bound through this QP and domain.
    pub fn invalidate(&mut self, pd: Pd, qpn: Qpn, key: RemoteKey) -> Result<(), AccessError> {
        let entry = self.map.get(key.0 >> 8).filter(|w| w.key == key.0).ok_or(AccessError::BadKey)?;
        match entry.kind {
            Kind::BoundWindow { holder: Some(bound), .. } if bound == qpn && entry.pd == pd => {
                self.unbind(key.0 >> 8);
                Ok(())
            }
            Kind::BoundWindow { holder: Some(_), .. } => Err(AccessError::WrongDomain),
            // The owner binds a window of type 1 anew, and deregisters a region.
            _ => Err(AccessError::BadKey),
        }
    }

    /// Unbinds a window from the region that it is bound to.
    fn unbind(&mut self, index: u32) {
        let Some(window) = self.map.get_mut(index) else { return };
        let Kind::BoundWindow { region, holder } = window.kind else { return };
        window.kind = Kind::FreeWindow(if holder.is_some() { WindowKind::Two } else { WindowKind::One });
        self.generation += 1;
        self.count_windows(region, -1);
    }

    /// Frees every window that is bound to a region.
    pub(super) fn unbind_all(&mut self, region: u32) {
        let is_bound =
            |entry: &Region| matches!(entry.kind, Kind::BoundWindow { region: bound, .. } if bound == region);
        if matches!(self.map.get(region), Some(Region { kind: Kind::Region { windows: 1.. }, .. })) {
            let bound: Vec<u32> = self
                .map
                .iter()
                .filter(|(_, entry)| is_bound(entry))
                .map(|(_, entry)| entry.key >> 8)
                .collect();
            bound.into_iter().for_each(|window| self.unbind(window));
        }
    }

    fn count_windows(&mut self, region: u32, change: i32) {
        if let Some(Region { kind: Kind::Region { windows }, .. }) = self.map.get_mut(region) {
            *windows = windows.wrapping_add_signed(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::RegionAttr;
    use highwire_stdx::Rng;

    const PD: Pd = Pd(1);
    const QPN: Qpn = Qpn::new(7);

    fn table() -> (Regions, LocalKey) {
        let mut regions = Regions::new(Rng::new(1));
        let access = Access::ALL | Access::WINDOW_BIND;
        let attr = RegionAttr { addr: 0x1000, length: 0x100, iova: 0x5000, access };
        let key = regions.register(PD, attr).expect("registers");
        (regions, key)
    }

    /// A domain is a border: each of the three may be the one that lies beyond it.
    #[test]
    fn window_region_and_queue_pair_are_of_one_domain() {
        const OTHER: Pd = Pd(2);
        let attr = RegionAttr {
            addr: 0x1000,
            length: 0x100,
            iova: 0x5000,
            access: Access::ALL | Access::WINDOW_BIND,
        };
        for kind in [WindowKind::One, WindowKind::Two] {
            for [of_window, of_region, of_qp] in
                [[PD, PD, PD], [OTHER, PD, PD], [PD, OTHER, PD], [PD, PD, OTHER]]
            {
                let mut regions = Regions::new(Rng::new(1));
                let region = regions.register(of_region, attr).expect("registers");
                let window = regions.allocate_window_of(kind, of_window).rkey;
                let access = Access::REMOTE_WRITE;
                let bind = WindowBind { window, new_key: window, region, va: 0x5020, length: 0x10, access };
                let is_one = [of_window, of_region, of_qp] == [PD; 3];
                let expected = if is_one { Ok(()) } else { Err(AccessError::WrongDomain) };
                assert_eq!(
                    regions.bind(of_qp, QPN, &bind),
                    expected,
                    "{kind:?} {of_window:?} {of_region:?} {of_qp:?}"
                );
                if !is_one {
                    continue;
                }
                let write = |pd| regions.check_remote(pd, QPN, window, 0x5020, 8, access);
                assert_eq!((write(PD), write(OTHER)), (Ok(0x1020), Err(AccessError::WrongDomain)));
                if kind == WindowKind::Two {
                    assert_eq!(regions.invalidate(OTHER, QPN, window), Err(AccessError::WrongDomain));
                    assert_eq!(regions.invalidate(PD, QPN, window), Ok(()));
                }
            }
        }
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
        assert_eq!(regions.bind(PD, QPN, &WindowBind { length: 0, ..bind }), Err(AccessError::Bounds));
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
    fn a_window_of_type_one_moves_while_it_is_bound_and_serves_the_whole_domain() {
        let (mut regions, key) = table();
        let mut window = regions.allocate_window_of(WindowKind::One, PD).rkey;
        for (va, length) in [(0x5020, 0x10), (0x5080, 0x20), (0x5000, 0)] {
            let new_key = RemoteKey(window.0 & !0xFF | window.0.wrapping_add(1) & 0xFF);
            let access = Access::REMOTE_WRITE;
            let bind = WindowBind { window, new_key, region: key, va, length, access };
            assert_eq!(regions.bind(PD, QPN, &bind), Ok(()));
            let check = |key, qpn| regions.check_remote(PD, qpn, key, va, 8, Access::REMOTE_WRITE);
            assert_eq!(check(window, QPN), Err(AccessError::BadKey));
            let expected = if length > 0 { Ok(va - 0x4000) } else { Err(AccessError::BadKey) };
            assert_eq!((check(new_key, QPN), check(new_key, Qpn::new(8))), (expected, expected));
            assert_eq!(regions.invalidate(PD, QPN, new_key), Err(AccessError::BadKey));
            let refused = regions.deregister(key).err();
            assert_eq!(refused, (length > 0).then_some(RegisterError::InUse));
            window = new_key;
            if length > 0 {
                continue;
            }
            assert!(regions.free_window(MemoryWindow { rkey: window }).is_ok());
        }
    }
}
