//! How a new replica gets its data: page by page from the primary, with pauses that leave time for
//! transactions, and grow with the time that a page takes.
//!
//! Coordinators send it all new writes from the moment its configuration opens, so a write that a page misses
//! arrives by itself, and a page never puts an old version over a newer one.

use std::collections::VecDeque;

use crate::defect::planted;
use crate::id::{RegionId, TableId, Txid};
use crate::journal;
use crate::message::{Request, Response};
use crate::record::Write;
use crate::table::{Entry, Table};

use super::{Node, Purpose};

#[derive(Debug, Default)]
pub(super) struct Replication {
    queue: VecDeque<(RegionId, TableId)>,
    cursor: u64,
    is_asked: bool,
    asked_ns: u64,
    next_ns: u64,
}

impl Replication {
    pub(super) fn wake(&self) -> Option<u64> {
        (!self.is_asked && !self.queue.is_empty()).then_some(self.next_ns)
    }
}

impl Node {
    /// Begins anew. Rows that were copied in an earlier configuration stay; a page that brings them again
    /// finds them not newer.
    pub(super) fn start_replication(&mut self) {
        self.replication = Replication::default();
        for region in (0..self.configuration.regions.len()).map(|region| RegionId(region as u16)) {
            let replica = self.configuration.replica(region, self.id);
            if replica.is_some_and(|replica| !replica.synced) {
                let tables = (0..self.settings.tables.len()).map(|table| (region, TableId(table as u8)));
                self.replication.queue.extend(tables);
            }
        }
        self.replicate();
    }

    pub(super) fn replicate(&mut self) {
        let Some(&(region, table)) = self.replication.queue.front() else { return };
        if !self.is_open || self.replication.is_asked || self.now_ns < self.replication.next_ns {
            return;
        }
        self.replication.is_asked = true;
        self.replication.asked_ns = self.now_ns;
        let cursor = self.replication.cursor;
        let primary = self.configuration.primary(region);
        self.send(primary, Request::Fetch { region, table, cursor }, Purpose::Fetch);
    }

    pub(super) fn on_page(&mut self, response: Response) {
        let Response::Page { entries, mut next } = response else { return };
        let Some(&(region, table)) = self.replication.queue.front() else { return };
        let nobody = Txid { node: self.id, worker: u16::MAX, sequence: 0 };
        for Entry { key, version, value } in entries {
            let newest = |rows: &Table| rows.row(key).version + 1;
            let version = match self.store.table(region, table).map(newest) {
                Some(newest) if planted!(self, PagesOverwriteNewerRows) => version.max(newest),
                _ => version,
            };
            let write = Write { table, key, read: version.wrapping_sub(1), value };
            if self.check_write(&write).is_some() && self.store.apply(nobody, &write, region) {
                self.note(|| journal::Entry::Wrote { write });
            }
        }
        if planted!(self, SyncedTooEarly) {
            next = None;
        }
        self.replication.is_asked = false;
        let took_ns = self.now_ns.saturating_sub(self.replication.asked_ns);
        let pause_ns =
            self.settings.page_pause_ns.max(took_ns.saturating_mul(self.settings.page_pause_times));
        self.replication.next_ns = self.now_ns + pause_ns;
        self.replication.cursor = next.unwrap_or(0);
        if next.is_none() {
            self.replication.queue.pop_front();
            if self.replication.queue.iter().all(|left| left.0 != region) {
                self.send(self.configuration.manager, Request::Synced { region }, Purpose::Synced);
            }
        }
    }
}
