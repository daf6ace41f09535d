//! Regions whose memory was moved: the table then names places in views, one for each region.

use super::Engine;
use crate::memory::{VIEW_BYTES_MAX, View};
use highwire_verbs::{LocalKey, RegionAttr, RegionChange};

impl Engine {
    /// From now on the region is reached through the view. If that fails, it is reached as before.
    pub(crate) fn show_through(&mut self, key: LocalKey, attr: &RegionAttr, view: &View) {
        let into = attr.addr - view.first_page;
        if into + attr.length > VIEW_BYTES_MAX {
            return;
        }
        let Some(base) = self.memory.add_view(view.clone()) else { return };
        let change =
            RegionChange { memory: Some((base + into, attr.length, attr.iova)), ..Default::default() };
        if self.rnic.regions_mut().reregister(key, &change).is_err() {
            self.memory.remove_view(base);
        }
    }

    /// Takes a region out of the table, with the windows that are bound to it and the view that shows it.
    pub(crate) fn revoke_region(&mut self, key: LocalKey) {
        let addr = self.region_addr(key);
        self.rnic.regions_mut().revoke(key);
        self.forget_view(addr);
    }

    /// Where a region lies for the engine.
    pub(crate) fn region_addr(&self, key: LocalKey) -> Option<u64> {
        self.rnic.regions().region(key).map(|region| region.addr)
    }

    /// Withdraws a view's place: nothing is reached by this address any more, if it lies in a view.
    pub(crate) fn forget_view(&mut self, addr: Option<u64>) {
        addr.into_iter().for_each(|addr| self.memory.remove_view(addr));
    }
}
