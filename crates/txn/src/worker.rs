//! One transaction at its coordinator: what it reads and writes, and how far it has come.

use std::collections::BTreeMap;

use crate::id::{Key, TableId, Txid, Version};
use crate::record::{Record, Write};
use crate::table::{Mode, RangeRow};

/// A transaction's phases (FaSST §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No transaction.
    Idle,
    /// The application adds keys and sets values.
    Building,
    /// Reads and locks are under way.
    Executing,
    /// Versions are being compared.
    Validating,
    /// The record is on its way to the log replicas. From here on it can only commit.
    Logging,
    /// Backups are being written.
    CommitBackup,
    /// Primaries are being written.
    CommitPrimary,
    /// Locks are being given back.
    Aborting,
    /// A new configuration came after the record was written: recovery commits it.
    InDoubt,
}

/// Why a transaction did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortReason {
    /// A key was locked by another transaction.
    Locked,
    /// A key changed after it was read.
    Changed,
    /// An insert found its key.
    Exists,
    /// An update or deletion did not find its key.
    Missing,
    /// The table takes no more keys.
    Full,
    /// A range has more rows than one read may return.
    TooLong,
    /// The application gave up.
    Asked,
    /// The configuration changed before the record was written.
    Reconfigured,
}

/// A key of the read set or the write set.
#[derive(Clone, Debug)]
pub struct Item {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Key,
    /// `None`: it is only read.
    pub mode: Option<Mode>,
    /// The version that was read; `None` before.
    pub seen: Option<Version>,
    /// The value that was read; `None`: absent.
    pub value: Option<Vec<u8>>,
    /// The value to be written.
    pub new: Vec<u8>,
    pub(crate) asked: bool,
    pub(crate) locked: bool,
    /// The lock's answer need not bring the old value.
    pub(crate) is_blind: bool,
}

/// A part of a range that lies in one region.
#[derive(Clone, Debug)]
pub struct RangeItem {
    /// The table.
    pub table: TableId,
    /// First key.
    pub low: Key,
    /// Last key.
    pub high: Key,
    /// What was read, deleted rows included. `None` before.
    pub rows: Option<Vec<RangeRow>>,
    /// The version of keys in it that have no row.
    pub(crate) floor: Version,
    pub(crate) asked: bool,
}

/// So many items are searched one after the other; of more, the worker keeps an index.
const FEW_ITEMS: usize = 32;

/// A worker of a node, and its transaction.
#[derive(Debug)]
pub struct Worker {
    pub(crate) phase: Phase,
    pub(crate) txid: Txid,
    pub(crate) items: Vec<Item>,
    /// Places of items, once there are many.
    index: BTreeMap<(TableId, Key), usize>,
    pub(crate) ranges: Vec<RangeItem>,
    /// What the record says, from then on until the primaries are asked.
    pub(crate) writes: Vec<Write>,
    pub(crate) waiting: usize,
    pub(crate) failure: Option<AbortReason>,
    pub(crate) doomed: bool,
}

impl Worker {
    pub(crate) fn new(txid: Txid) -> Worker {
        Worker {
            phase: Phase::Idle,
            txid,
            items: Vec::new(),
            index: BTreeMap::new(),
            ranges: Vec::new(),
            writes: Vec::new(),
            waiting: 0,
            failure: None,
            doomed: false,
        }
    }

    /// Begins another transaction, which uses the memory of the last one's sets.
    pub(crate) fn begin(&mut self, txid: Txid) {
        (self.phase, self.txid, self.waiting) = (Phase::Building, txid, 0);
        (self.failure, self.doomed) = (None, false);
        self.items.clear();
        self.index.clear();
        self.ranges.clear();
    }

    /// How far it has come.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The transaction, or the last one.
    pub fn txid(&self) -> Txid {
        self.txid
    }

    /// Keys of both sets.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Ranges, in pieces.
    pub fn ranges(&self) -> &[RangeItem] {
        &self.ranges
    }

    /// A key of either set.
    pub fn item(&self, table: TableId, key: Key) -> Option<&Item> {
        self.items.get(self.place(table, key)?)
    }

    pub(crate) fn item_mut(&mut self, table: TableId, key: Key) -> Option<&mut Item> {
        let place = self.place(table, key)?;
        self.items.get_mut(place)
    }

    fn place(&self, table: TableId, key: Key) -> Option<usize> {
        if self.items.len() > FEW_ITEMS {
            return self.index.get(&(table, key)).copied();
        }
        self.items.iter().position(|item| (item.table, item.key) == (table, key))
    }

    pub(crate) fn add(&mut self, item: Item) {
        self.items.push(item);
        if self.items.len() > FEW_ITEMS {
            let from = if self.index.is_empty() { 0 } else { self.items.len() - 1 };
            let places = self.items[from..].iter().zip(from..);
            self.index.extend(places.map(|(item, place)| ((item.table, item.key), place)));
        }
    }

    /// Whether the record has been written at some node, or could have been.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.phase, Phase::Logging | Phase::CommitBackup | Phase::CommitPrimary | Phase::InDoubt)
    }

    /// Whether a commit that writes is under way.
    pub(crate) fn is_changing_rows(&self) -> bool {
        self.is_decided() || self.phase == Phase::Validating && !self.is_read_only()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.items.iter().all(|item| item.mode.is_none())
    }

    pub(crate) fn fail(&mut self, reason: AbortReason) {
        self.failure.get_or_insert(reason);
    }

    pub(crate) fn record(&self) -> Record {
        let write = |item: &Item| {
            let value = match item.mode? {
                Mode::Delete => None,
                Mode::Insert | Mode::Update => Some(item.new.clone()),
            };
            Some(Write { table: item.table, key: item.key, read: item.seen?, value })
        };
        Record { txid: self.txid, writes: self.items.iter().filter_map(write).collect() }
    }
}
