//! How the rows of deleted keys go: a primary takes them from all copies of its region, some at a time, while transactions go on.
//!
//! A tombstone is there so that an old version of its key is known to be old. Four things could bring one back:
//!
//! - **A record in a log slot.** Rows that went have versions up to the table's floor. Recovery tells all members the highest floor that
//!   one of them has, and a record's write that is not above it is ignored where the key has no row.
//! - **A key that is inserted again.** Its version begins above the floor. Locks that were given at a lower floor must have ended before
//!   the first copy reclaims, or recovery would take their records for old ones. So the floor is raised first, at the primary alone.
//! - **A page for a new replica** that was read before the deletion. While a replica of the region is incomplete, nothing is reclaimed.
//! - **A write that is late.** A transaction ends when all copies have its writes, and rows that go are locked.
//!
//! A snapshot keeps the old values of rows by their keys, whether the rows are there or not. A journal has an entry for what was
//! reclaimed. If the configuration changes in between, all copies remove what one of them may have removed: all tombstones up to the
//! highest floor, when recovery has made the copies equal and a new configuration opens.

use crate::defect::planted;
use crate::id::{Key, NodeId, RegionId, TableId, Txid, Version};
use crate::journal::Entry;
use crate::message::{Request, Response};
use crate::table::Table;

use super::{Node, Purpose};

/// Rows that go with one message.
const ROWS_MAX: usize = 256;
/// Rounds that may end one after the other before the node does its other work.
const ROUNDS_MAX: usize = 16;

/// What a primary is about to remove.
#[derive(Debug)]
pub(super) struct Reclaim {
    region: RegionId,
    table: TableId,
    floor: Version,
    rows: Vec<(Key, Version)>,
    /// Backups that have not removed them yet; `None`: locks of a lower floor are still held.
    missing: Option<usize>,
}

/// The floor of a table in a region, as recovery spreads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) region: RegionId,
    pub(crate) table: TableId,
    pub(crate) version: Version,
}

/// Where this node looks for tombstones next.
#[derive(Debug, Default)]
pub(super) struct Reclaiming {
    under_way: Option<Reclaim>,
    /// The place in a table behind the last tombstones, and in which table.
    cursor: Option<(RegionId, TableId, u64)>,
}

impl Node {
    /// Whether rows of deleted keys are being removed.
    pub fn is_reclaiming(&self) -> bool {
        self.reclaiming.under_way.is_some()
    }

    /// Begins to remove tombstones of a table, if it has too many of them, or goes on.
    pub(super) fn reclaim_in(&mut self, region: RegionId, table: TableId) {
        if !self.is_reclaiming() && self.has_too_many_tombstones(region, table) {
            self.begin_reclaiming(region, table);
        }
        self.go_on_reclaiming();
    }

    /// Looks at all tables. Without backups a round ends at once, and there may be many.
    pub(super) fn reclaim(&mut self) {
        self.go_on_reclaiming();
        for _ in 0..ROUNDS_MAX {
            if self.is_reclaiming() {
                return;
            }
            let Some((region, table)) = self.table_to_reclaim() else { return };
            self.begin_reclaiming(region, table);
            self.go_on_reclaiming();
        }
    }

    fn table_to_reclaim(&self) -> Option<(RegionId, TableId)> {
        let places = self.store.tables.iter().map(|(region, table, _)| (region, table));
        places.into_iter().find(|&(region, table)| self.has_too_many_tombstones(region, table))
    }

    fn has_too_many_tombstones(&self, region: RegionId, table: TableId) -> bool {
        let count = self.store.table(region, table).map_or(0, |rows| rows.usage().tombstones);
        count > self.settings.tombstones_max(table) as u64
            && self.is_open()
            && self.configuration.primary(region) == self.id
            && (self.is_replicated(region) || planted!(self, ReclaimsWhileAReplicaIsFilled))
    }

    fn is_replicated(&self, region: RegionId) -> bool {
        self.configuration.regions[usize::from(region.0)].iter().all(|replica| replica.synced)
    }

    fn begin_reclaiming(&mut self, region: RegionId, table: TableId) {
        let Some(tombstones) = self.store.table(region, table) else { return };
        let from = match self.reclaiming.cursor {
            Some((of, number, cursor)) if (of, number) == (region, table) => cursor,
            _ => 0,
        };
        let (rows, next) = tombstones.tombstones(from, ROWS_MAX);
        self.reclaiming.cursor = next.map(|cursor| (region, table, cursor));
        let Some(highest) = rows.iter().map(|row| row.1).max() else { return };
        let floor = highest.max(tombstones.floors().absent);
        if !planted!(self, ReclaimKeepsTheFloor) {
            tombstones.raise(floor);
        }
        self.reclaiming.under_way = Some(Reclaim { region, table, floor, rows, missing: None });
    }

    /// Removes what was to be removed, if no lock of a lower floor is left.
    pub(super) fn go_on_reclaiming(&mut self) {
        let Some(Reclaim { region, table, floor, missing: None, .. }) = self.reclaiming.under_way else {
            return;
        };
        let backups = self.configuration.backups(region).collect::<Vec<NodeId>>();
        let Some(rows) = self.store.table(region, table) else { return };
        if !rows.is_drained(floor) && !planted!(self, ReclaimsBesideOldLocks) {
            return;
        }
        let Some(reclaim) = &mut self.reclaiming.under_way else { return };
        let owner = Txid { node: self.id, worker: RECLAIMER, sequence: self.sequence };
        reclaim.rows.retain(|&(key, version)| rows.seize(key, version, owner));
        reclaim.missing = Some(backups.len());
        let removed = reclaim.rows.clone();
        if !removed.is_empty() {
            let request = Request::Reclaim { region, table, floor, rows: removed };
            self.send_all(&backups, request, Purpose::Reclaim);
        } else {
            self.reclaiming.under_way = None;
            return;
        }
        if backups.is_empty() {
            self.end_reclaiming();
        }
    }

    pub(super) fn on_reclaimed(&mut self) {
        let Some(missing) = self.reclaiming.under_way.as_mut().and_then(|reclaim| reclaim.missing.as_mut())
        else {
            return;
        };
        *missing = missing.saturating_sub(1);
        if *missing == 0 {
            self.end_reclaiming();
            self.reclaim();
        }
    }

    /// All backups have removed the rows.
    fn end_reclaiming(&mut self) {
        let Some(Reclaim { region, table, floor, rows, .. }) = self.reclaiming.under_way.take() else {
            return;
        };
        self.remove_tombstones(region, table, floor, &rows);
    }

    fn remove_tombstones(
        &mut self,
        region: RegionId,
        table: TableId,
        floor: Version,
        rows: &[(Key, Version)],
    ) {
        let Some(tombstones) = self.store.table(region, table) else { return };
        let floor = if planted!(self, ReclaimKeepsTheFloor) { 0 } else { floor };
        tombstones.reclaim(rows, floor);
        if !planted!(self, ReclaimIsNotJournalled) {
            self.note(|| Entry::Reclaimed { region, table, floor, rows: rows.to_vec() });
        }
    }

    /// A backup's part. Rows that are locked here, because this node was primary once, are as free as others: recovery has released all locks.
    pub(super) fn answer_reclaim(
        &mut self,
        from: NodeId,
        region: RegionId,
        table: TableId,
        floor: Version,
        rows: &[(Key, Version)],
    ) -> Option<Response> {
        let is_backup = self.configuration.replica(region, self.id).is_some();
        let is_sound = is_backup && floor < u64::MAX >> 1 && self.configuration.primary(region) == from;
        is_sound.then_some(())?;
        self.remove_tombstones(region, table, floor, rows);
        Some(Response::Done {})
    }

    pub(super) fn forget_reclaiming(&mut self) {
        self.reclaiming = Reclaiming::default();
    }

    /// The floors of this node's tables, those that are 0 left out.
    pub(super) fn floors(&self) -> Vec<Floor> {
        let floor =
            |(region, table, rows): (_, _, &Table)| Floor { region, table, version: rows.floors().reclaimed };
        self.store.tables.iter().map(floor).filter(|floor| floor.version > 0).collect()
    }

    /// Takes the floors up to which other copies may have removed tombstones. This node's tombstones stay until all records have been applied:
    /// one of them may be of a key that a record inserts again, at a version that is below the floor.
    pub(super) fn raise_floors(&mut self, floors: &[Floor]) {
        let mut raised = Vec::new();
        for &floor in floors.iter().filter(|floor| floor.version < u64::MAX >> 1) {
            let table = self.store.table(floor.region, floor.table);
            if table.is_some_and(|rows| rows.set_reclaimed(floor.version)) {
                raised.push(floor);
            }
        }
        if !raised.is_empty() {
            self.note(|| Entry::Raised { floors: raised });
        }
    }
}

/// The owner of locks on rows that go. No worker has this number.
const RECLAIMER: u16 = u16::MAX - 1;
