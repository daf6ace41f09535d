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
use crate::table::{Table, Usage};

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

    /// The rows of the regions of which this node is primary; and the keys of the table of a region that is fullest, of all copies here, in percent of what it takes.
    pub fn usage(&self) -> (Usage, u64) {
        let (mut all, mut fullest) = (Usage::default(), 0);
        for (region, number, rows) in self.store.tables.iter() {
            let usage = rows.usage();
            if self.configuration.primary(region) == self.id {
                all += usage;
            }
            fullest = fullest.max(usage.live * 100 / self.settings.rows_max(number).max(1) as u64);
        }
        (all, fullest)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::codec::encode;
    use crate::configuration::Configuration;
    use crate::message::Packet;
    use crate::node::Event;
    use crate::record::Write;
    use crate::settings::{Settings, TableKind};
    use crate::table::Mode;
    use crate::worker::AbortReason;

    const TABLE: TableId = TableId(0);
    const REGION: RegionId = RegionId(0);

    fn settings(f: usize) -> Settings {
        Settings {
            f,
            tables: vec![TableKind::Ordered { keys_per_run: 1000 }],
            tombstones_max: 1,
            workers: 2,
            ..Settings::of_tests()
        }
    }

    fn alone() -> Node {
        Node::new(NodeId(0), 1, Configuration::first(&[NodeId(0)], &[1], 1, 0), settings(0), 1)
    }

    fn run(node: &mut Node, worker: u16, key: Key, mode: Mode) {
        node.begin(worker).expect("open");
        node.add_to_write_set(worker, TABLE, key, mode).expect("in time");
        node.execute(1, worker).expect("in time");
        if mode == Mode::Insert {
            node.set_value(worker, TABLE, key, b"value").expect("locked");
        }
        node.commit(1, worker).expect("in time");
        assert!(matches!(
            (node.poll_event(), node.poll_event()),
            (Some(Event::Executed { result: Ok(()), .. }), Some(Event::Committed { .. }))
        ));
    }

    fn rows(node: &Node) -> &Table {
        node.store().table(REGION, TABLE).expect("its region")
    }

    #[test]
    fn tombstones_are_bounded_and_versions_go_on() {
        let mut node = alone();
        for round in 0..50 {
            for key in 0..4 {
                run(&mut node, 0, key, Mode::Insert);
                run(&mut node, 0, key, Mode::Delete);
                assert!(rows(&node).usage().tombstones <= 1, "round {round}");
            }
        }
        assert_eq!(rows(&node).usage().live, 0);
        assert!(!node.is_reclaiming() && node.store().locks() == 0);
        assert!(rows(&node).row(0).version >= 100);
    }

    /// The range has the same rows before and after, but not in between.
    #[test]
    fn a_range_in_which_a_key_came_and_went_and_was_reclaimed_has_changed() {
        for defect in [None, Some(crate::defect::Defect::RangesIgnoreTheFloor)] {
            let mut node = alone();
            node.defect = defect;
            node.begin(1).expect("open");
            node.add_range(1, TABLE, 0, 50).expect("a range");
            node.execute(1, 1).expect("in time");
            assert!(matches!(node.poll_event(), Some(Event::Executed { result: Ok(()), .. })));
            for key in [3, 4] {
                run(&mut node, 0, key, Mode::Insert);
                run(&mut node, 0, key, Mode::Delete);
            }
            assert_eq!(rows(&node).usage(), Default::default(), "both are gone");
            node.commit(1, 1).expect("in time");
            let event = node.poll_event();
            let has_changed = matches!(event, Some(Event::Aborted { reason: AbortReason::Changed, .. }));
            assert_eq!(has_changed, defect.is_none(), "{event:?}");
        }
    }

    /// The first of two members, primary of the one region, with four tombstones; the other member has `synced` or not.
    fn of_two(synced: bool) -> Node {
        let ids = [NodeId(0), NodeId(1)];
        let mut first = Configuration::first(&ids, &[1, 2], 1, 1);
        first.regions[0].sort_by_key(|replica| replica.node);
        first.regions[0][1].synced = synced;
        let mut node = Node::new(NodeId(0), 1, first, settings(1), 1);
        let txid = Txid { node: NodeId(0), worker: 0, sequence: 1 };
        for key in 0..4 {
            node.apply(txid, &Write { table: TABLE, key, read: key + 5, value: None });
        }
        node
    }

    fn sent(node: &mut Node) -> Vec<Request> {
        std::iter::from_fn(|| node.poll_request())
            .map(|outgoing| Packet::parse(&outgoing.bytes).expect("a packet").request)
            .filter(|request| matches!(request, Request::Reclaim { .. }))
            .collect()
    }

    #[test]
    fn nothing_is_reclaimed_while_a_replica_is_filled_or_locks_of_a_lower_floor_are_held() {
        let mut node = of_two(false);
        node.reclaim();
        assert!(sent(&mut node).is_empty() && !node.is_reclaiming(), "a page may be on its way");
        node.configuration.regions[0][1].synced = true;
        let other = Txid { node: NodeId(1), worker: 0, sequence: 9 };
        rows(&node).lock(70, other, Mode::Insert);
        node.reclaim();
        assert!(sent(&mut node).is_empty() && node.is_reclaiming());
        // A lock at the new floor does not matter.
        rows(&node).lock(71, other, Mode::Insert);
        rows(&node).unlock(70, other);
        // The tombstone that is locked meanwhile stays.
        rows(&node).lock(2, other, Mode::Insert);
        node.reclaim();
        let removed = vec![(0, 6), (1, 7), (3, 9)];
        let request = Request::Reclaim { region: REGION, table: TABLE, floor: 9, rows: removed };
        assert_eq!(sent(&mut node), [request]);
        assert_eq!(rows(&node).usage().tombstones, 4, "the other copy comes first");
        assert!(!rows(&node).is_reclaimed(50, 9));
        node.on_reclaimed();
        assert_eq!(rows(&node).usage().tombstones, 1);
        assert!(rows(&node).is_reclaimed(50, 9) && !node.is_reclaiming());
    }

    #[test]
    fn a_backup_removes_exactly_what_it_is_told_to() {
        let ids = [NodeId(0), NodeId(1)];
        let mut first = Configuration::first(&ids, &[1, 2], 1, 1);
        first.regions[0].sort_by_key(|replica| replica.node);
        let mut node = Node::new(NodeId(1), 2, first, settings(1), 1);
        let txid = Txid { node: NodeId(0), worker: 0, sequence: 1 };
        for key in 0..3 {
            node.apply(txid, &Write { table: TABLE, key, read: key + 5, value: None });
        }
        let request = Request::Reclaim { region: REGION, table: TABLE, floor: 8, rows: vec![(0, 6), (1, 6)] };
        let packet = Packet { configuration: 1, from: NodeId(0), request };
        assert!(node.handle_request(2, NodeId(0), &encode(&packet)).is_some());
        assert_eq!(rows(&node).usage().tombstones, 2);
        assert_eq!(node.floors(), [Floor { region: REGION, table: TABLE, version: 8 }]);
    }
}
