//! A snapshot: the rows of the regions of which this node is primary, as they were at one moment, read page by page while
//! transactions go on.
//!
//! A write to a row that no page has had yet keeps the row's old value first, once (copy on write). So a snapshot costs memory for the
//! rows that change while it is read, and no more. It belongs to one configuration: in the next one other nodes may be
//! primaries, and the snapshot is lost. There may be several at a time, each with a name and a bound of its own.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeInclusive};

use super::Node;
use crate::id::{Key, RegionId, TableId};
use crate::record::Write;

/// A row that is kept costs about this much besides its value.
const KEPT_ROW_BYTES: usize = 64;

/// What a snapshot is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOf {
    /// The table of the pages.
    pub table: TableId,
    /// A table with further parts of the pages' rows, which are asked for by their keys. They lie in the same regions.
    pub beside: Option<TableId>,
    /// The keys, of both tables.
    pub keys: RangeInclusive<Key>,
    /// Old values of rows that change take at most this much memory.
    pub kept_bytes_max: usize,
}

#[derive(Debug)]
pub(super) struct Snapshot {
    of: SnapshotOf,
    /// The region of the last page, and those that come.
    regions: VecDeque<RegionId>,
    /// In the first of them, rows before this one have been read; `None`: all of them.
    cursor: Option<Key>,
    /// Values at the snapshot's moment of rows that have changed since and are still needed.
    kept: BTreeMap<(RegionId, TableId, Key), Option<Vec<u8>>>,
    kept_bytes: usize,
}

/// Why a snapshot cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// There is none: it was not begun, or the configuration has changed since.
    Gone,
    /// Rows changed faster than they were read, and their old values took too much memory.
    TooLong,
}

/// A page of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPage {
    /// Keys with their values; absent keys are not among them.
    pub rows: Vec<(Key, Vec<u8>)>,
    /// No page follows.
    pub is_last: bool,
}

impl Node {
    /// Begins a snapshot. It takes the place of one of this name that there may be. Returns the number of regions in it, and of their rows.
    ///
    /// Rows that are locked are in it as they were committed last. It is the caller's part that no commit is under way anywhere at this
    /// moment if snapshots of several nodes shall fit together ([`Node::is_committing`]).
    pub fn begin_snapshot(&mut self, name: u64, of: SnapshotOf) -> Option<(usize, u64)> {
        self.end_snapshot(name);
        if !self.is_open() {
            return None;
        }
        let regions: VecDeque<RegionId> = (0..self.configuration.regions.len())
            .map(|region| RegionId(region as u16))
            .filter(|&region| self.configuration.primary(region) == self.id)
            .collect();
        let rows =
            |&region: &RegionId| self.store.table(region, of.table).map_or(0, |rows| rows.usage().live);
        let rows = regions.iter().map(rows).sum();
        let count = regions.len();
        let (cursor, kept, kept_bytes) = (Some(*of.keys.start()), BTreeMap::new(), 0);
        self.snapshots.insert(name, Ok(Snapshot { of, regions, cursor, kept, kept_bytes }));
        Some((count, rows))
    }

    /// The snapshot's next page, of about this many rows.
    pub fn snapshot_page(&mut self, name: u64, rows_about: usize) -> Result<SnapshotPage, SnapshotError> {
        let snapshot = match self.snapshots.get_mut(&name) {
            Some(Ok(snapshot)) => snapshot,
            Some(Err(error)) => return Err(*error),
            None => return Err(SnapshotError::Gone),
        };
        if snapshot.cursor.is_none() {
            snapshot.end_region();
        }
        let Some((&region, cursor)) = snapshot.regions.front().zip(snapshot.cursor) else {
            return Ok(SnapshotPage { rows: Vec::new(), is_last: true });
        };
        let (entries, next) = match self.store.table(region, snapshot.of.table) {
            Some(table) => table.page(cursor, rows_about, self.settings.part_bytes),
            None => (Vec::new(), None),
        };
        let next = next.filter(|next| snapshot.of.keys.contains(next));
        // A row that has changed is there as it was, also if it has been deleted and reclaimed meanwhile.
        let mut rows: BTreeMap<Key, Option<Vec<u8>>> = entries
            .into_iter()
            .map(|entry| (entry.key, entry.value))
            .filter(|row| snapshot.of.keys.contains(&row.0))
            .collect();
        let kept = snapshot.take_kept(region, cursor, next);
        rows.extend(kept);
        let rows = rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        snapshot.cursor = next;
        Ok(SnapshotPage { rows, is_last: next.is_none() && snapshot.regions.len() == 1 })
    }

    /// A row of the table beside, as it was when the snapshot began, for a row of the last page.
    pub fn snapshot_row(&self, name: u64, table: TableId, key: Key) -> Option<Vec<u8>> {
        let Some(Ok(snapshot)) = self.snapshots.get(&name) else { return None };
        let region = self.settings.region_of(&self.configuration, table, key);
        match snapshot.kept.get(&(region, table, key)) {
            Some(kept) => kept.clone(),
            None => self.store.table(region, table)?.row(key).value,
        }
    }

    /// Forgets a snapshot.
    pub fn end_snapshot(&mut self, name: u64) {
        self.snapshots.remove(&name);
    }

    /// Whether a transaction of this node that writes is between the begin of its commit and its end.
    pub fn is_committing(&self) -> bool {
        self.workers.iter().any(|worker| worker.is_changing_rows())
    }

    /// A row is about to be written: keeps its value for the snapshots that still need it.
    pub(super) fn keep_for_snapshots(&mut self, region: RegionId, write: &Write) {
        for snapshot in self.snapshots.values_mut() {
            let Ok(taken) = snapshot else { continue };
            if !taken.needs(region, write) {
                continue;
            }
            let Some(table) = self.store.table(region, write.table) else { return };
            let value = table.row(write.key).value;
            taken.kept_bytes += size(value.as_deref());
            taken.kept.insert((region, write.table, write.key), value);
            if taken.kept_bytes > taken.of.kept_bytes_max {
                *snapshot = Err(SnapshotError::TooLong);
            }
        }
    }
}

impl Snapshot {
    /// Whether no page has had the row that is about to be written, and its value is not kept yet.
    fn needs(&self, region: RegionId, write: &Write) -> bool {
        let is_first = self.regions.front() == Some(&region);
        let is_read = is_first && self.cursor.is_none_or(|cursor| write.key < cursor);
        let is_in = self.of.keys.contains(&write.key) && self.regions.contains(&region);
        let is_needed = match write.table == self.of.table {
            true => !is_read && is_in,
            false => self.of.beside == Some(write.table) && is_in,
        };
        is_needed && !self.kept.contains_key(&(region, write.table, write.key))
    }

    /// What is kept of the pages' table for the rows from one key on and before another.
    fn take_kept(&mut self, region: RegionId, from: Key, to: Option<Key>) -> Vec<(Key, Option<Vec<u8>>)> {
        let place = |key| (region, self.of.table, key);
        let range = (
            Bound::Included(place(from)),
            to.map_or(Bound::Included(place(Key::MAX)), |to| Bound::Excluded(place(to))),
        );
        let places: Vec<_> = self.kept.range(range).map(|(&place, _)| place).collect();
        let kept: Vec<_> = places.into_iter().filter_map(|place| self.kept.remove_entry(&place)).collect();
        self.kept_bytes -= kept.iter().map(|(_, value)| size(value.as_deref())).sum::<usize>();
        kept.into_iter().map(|((.., key), value)| (key, value)).collect()
    }

    /// All pages of a region have been read.
    fn end_region(&mut self) {
        let Some(region) = self.regions.pop_front() else { return };
        self.cursor = Some(*self.of.keys.start());
        let bytes = &mut self.kept_bytes;
        self.kept.retain(|&(of, ..), value| {
            if of == region {
                *bytes -= size(value.as_deref());
            }
            of != region
        });
    }
}

fn size(value: Option<&[u8]>) -> usize {
    KEPT_ROW_BYTES + value.map_or(0, <[u8]>::len)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::id::{NodeId, Txid};
    use crate::settings::{Settings, TableKind};
    use highwire_stdx::Rng;

    const TABLE: TableId = TableId(0);
    const KEYS: u64 = 400;
    const NAME: u64 = 7;
    const KEPT: usize = 1 << 20;

    fn of(kept_bytes_max: usize) -> SnapshotOf {
        SnapshotOf { table: TABLE, beside: None, keys: 0..=Key::MAX, kept_bytes_max }
    }

    fn node() -> Node {
        let settings = Settings {
            f: 0,
            tables: vec![TableKind::Ordered { keys_per_run: 16 }],
            rows_max: 1000,
            scan_rows_max: 100,
            workers: 1,
            lease_ns: 1_000_000,
            drift_ppm_max: 1000,
            stuck_ns: 10_000_000,
            page_rows: 10,
            page_pause_ns: 0,
            part_bytes: 1 << 20,
            page_pause_times: 0,
            tombstones_max: 4096,
        };
        let first = Configuration::first(&[NodeId(0)], &[1], 4, 0);
        Node::new(NodeId(0), 1, first, settings, 1)
    }

    fn write(node: &mut Node, model: &mut BTreeMap<Key, Vec<u8>>, key: Key, value: Option<Vec<u8>>) {
        let region = node.settings.region_of(&node.configuration, TABLE, key);
        let read = node.store.table(region, TABLE).expect("its region").row(key).version;
        let txid = Txid { node: NodeId(0), worker: 0, sequence: 1 };
        node.apply(txid, &Write { table: TABLE, key, read, value: value.clone() });
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }

    fn change(node: &mut Node, model: &mut BTreeMap<Key, Vec<u8>>, rng: &mut Rng) {
        let key = rng.below(KEYS);
        let value = rng.chance(0.7).then(|| rng.next_u64().to_le_bytes().to_vec());
        write(node, model, key, value);
    }

    #[test]
    fn a_snapshot_is_what_was_there_when_it_began_whatever_is_written_between_its_pages() {
        for seed in 0..50 {
            let (mut node, mut model, mut rng) = (node(), BTreeMap::new(), Rng::new(seed));
            for _ in 0..300 {
                change(&mut node, &mut model, &mut rng);
            }
            let then = model.clone();
            let (regions, rows) = node.begin_snapshot(NAME, of(KEPT)).expect("it serves");
            assert_eq!(regions, 4);
            assert!(rows >= then.len() as u64);
            let mut found = BTreeMap::new();
            loop {
                for _ in 0..rng.below(30) {
                    change(&mut node, &mut model, &mut rng);
                }
                node.settings.tombstones_max = 3;
                node.reclaim();
                let page = node.snapshot_page(NAME, 1 + rng.below(20) as usize).expect("a page");
                for (key, value) in page.rows {
                    assert!(found.insert(key, value).is_none(), "key {key} came twice");
                }
                if page.is_last {
                    break;
                }
            }
            assert_eq!(found, then, "seed {seed}");
            assert_ne!(model, then);
            let kept = node.store.tables.values().map(|rows| rows.usage().tombstones).max();
            assert!(kept <= Some(3), "deleted rows are reclaimed meanwhile: {kept:?}");
            let Some(Ok(snapshot)) = node.snapshots.get(&NAME) else { panic!("it is there") };
            assert_eq!((snapshot.kept.len(), snapshot.kept_bytes), (0, 0), "old values stay behind");
        }
    }

    #[test]
    fn snapshots_of_parts_are_apart_and_one_that_keeps_too_much_ends_alone() {
        let (mut node, mut model, mut rng) = (node(), BTreeMap::new(), Rng::new(5));
        let part = |keys| SnapshotOf { keys, ..of(KEPT) };
        for key in 0..KEYS {
            write(&mut node, &mut model, key, Some(vec![1; 8]));
        }
        node.begin_snapshot(1, part(40..=47)).expect("it serves");
        node.begin_snapshot(2, of(20 * (KEPT_ROW_BYTES + 8))).expect("it serves");
        node.begin_snapshot(3, part(48..=KEYS)).expect("it serves");
        for key in 30..50 {
            write(&mut node, &mut model, key, Some(vec![2; 8]));
        }
        let kept = |node: &Node, name| match node.snapshots.get(&name) {
            Some(Ok(snapshot)) => Ok(snapshot.kept.len()),
            Some(Err(error)) => Err(*error),
            None => Err(SnapshotError::Gone),
        };
        assert_eq!([1, 2, 3].map(|name| kept(&node, name)), [Ok(8), Ok(20), Ok(2)]);
        // The same rows again cost nothing; one more is one too many for the second.
        write(&mut node, &mut model, 30, None);
        assert_eq!(kept(&node, 2), Ok(20));
        write(&mut node, &mut model, 50, None);
        assert_eq!([1, 2, 3].map(|name| kept(&node, name)), [Ok(8), Err(SnapshotError::TooLong), Ok(3)]);
        assert_eq!(node.snapshot_page(2, 10), Err(SnapshotError::TooLong));
        node.end_snapshot(3);
        assert_eq!(node.snapshot_page(3, 10), Err(SnapshotError::Gone));
        let mut found = BTreeMap::new();
        loop {
            let page = node.snapshot_page(1, 1 + rng.below(5) as usize).expect("a page");
            found.extend(page.rows);
            if page.is_last {
                break;
            }
        }
        assert_eq!(found, (40..=47).map(|key| (key, vec![1; 8])).collect());
    }

    #[test]
    fn there_is_no_snapshot_before_it_begins_nor_in_the_next_configuration() {
        let mut node = node();
        assert_eq!(node.snapshot_page(NAME, 1), Err(SnapshotError::Gone));
        node.begin_snapshot(NAME, of(KEPT)).expect("it serves");
        assert!(node.snapshot_page(NAME, 1).is_ok());
        let members = node.configuration.members.clone();
        let next = node.configuration.successor(NodeId(0), members, &[], 0).expect("the same members");
        node.adopt(next);
        assert_eq!(node.snapshot_page(NAME, 1), Err(SnapshotError::Gone));
        assert_eq!(node.begin_snapshot(NAME, of(KEPT)), None, "recovery is not over");
    }
}
