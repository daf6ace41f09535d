//! Memory windows: keys to part of a region that a queue pair gives out and takes back without a call to the system.

use crate::region::{MemoryRegion, PdInner, ProtectionDomain};
use highwire_verbs::{Access, MemoryWindow as Window, Operation, RemoteKey, WindowBind, WindowKind};
use std::sync::Arc;

/// A memory window. It opens part of a region once a queue pair has carried out what [`bind`](Self::bind) describes: one of type
/// 2 for that queue pair's peer alone, until it is invalidated; one of type 1 for every queue pair of the domain in the
/// same lane, until it is bound anew. Dropping it frees it.
pub struct MemoryWindow {
    pd: Arc<PdInner>,
    rkey: RemoteKey,
    kind: WindowKind,
}

impl ProtectionDomain {
    /// An unbound window of type 2.
    pub fn memory_window(&self) -> MemoryWindow {
        self.memory_window_of(WindowKind::Two)
    }

    /// An unbound window.
    pub fn memory_window_of(&self, kind: WindowKind) -> MemoryWindow {
        let lanes = &self.inner.device.lanes;
        let pd = self.inner.pd;
        loop {
            let first = lanes.first().expect("a device has at least one lane");
            let window = first.control(|engine| engine.rnic.regions_mut().allocate_window_of(kind, pd));
            let key = window.rkey;
            // Lanes draw keys of their own, so a key may be taken in another one: then draw again.
            let taken = lanes[1..].iter().position(|lane| {
                lane.control(|engine| engine.rnic.regions_mut().allocate_window_as(key.0, kind, pd)).is_err()
            });
            let Some(taken) = taken else {
                return MemoryWindow { pd: Arc::clone(&self.inner), rkey: key, kind };
            };
            for lane in &lanes[..=taken] {
                let _ = lane.control(|engine| engine.rnic.regions_mut().free_window(window));
            }
        }
    }
}

impl MemoryWindow {
    /// The window's first key. Its upper 24 bits name the window; the owner may change the low byte with
    /// every bind.
    pub fn rkey(&self) -> RemoteKey {
        self.rkey
    }

    /// Its type.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// The request that binds the window to `length` bytes of `region` from `offset` on, under `new_key`. `current` is the
    /// window's key until then.
    pub fn bind(
        &self,
        current: RemoteKey,
        new_key: RemoteKey,
        region: &MemoryRegion,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Operation {
        let va = region.addr().wrapping_add(offset);
        Operation::BindWindow(WindowBind {
            window: current,
            new_key,
            region: region.lkey(),
            va,
            length,
            access,
        })
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        for lane in &self.pd.device.lanes {
            lane.dispose(|engine| engine.rnic.regions_mut().free_window(Window { rkey: self.rkey }));
        }
    }
}
