//! A table with ranges. FaSST plans one and has none.
//!
//! A range read returns the version of every row in the range, deleted ones included; validation reads the range again and compares. An
//! insert between the two shows up as a row that was not there, or as a lock, so there are no phantoms; and since validation is a
//! procedure call and not a READ of memory, no structure versions are needed.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::id::{Key, Txid, Version};

use super::{Entry, Lock, Mode, Row, refusal};

/// An ordered table. All methods may be called by all threads; a range is read at one instant.
pub struct OrderedTable {
    rows: RwLock<BTreeMap<Key, Row>>,
    rows_max: usize,
}

/// A row as a range read saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRow {
    /// The key.
    pub key: Key,
    /// Its version.
    pub version: Version,
    /// `None`: deleted.
    pub value: Option<Vec<u8>>,
}

/// The bytes of values that one range read returns at most, or a single row.
const SCAN_BYTES_MAX: usize = 8 << 20;

/// Why a range could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// A row of it is locked, perhaps one that is about to be inserted.
    Locked,
    /// It has more rows than the caller takes, or longer ones than one message does.
    TooLong,
}

impl OrderedTable {
    /// A table for at most `rows_max` keys.
    pub fn new(rows_max: usize) -> OrderedTable {
        OrderedTable { rows: RwLock::new(BTreeMap::new()), rows_max }
    }

    /// Takes at most so many keys from now on.
    pub(crate) fn limit(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
    }

    /// All rows from `low` to `high`, both included, as the transaction `me` may see them: not if others hold locks there.
    pub fn scan(&self, low: Key, high: Key, rows_max: usize, me: Txid) -> Result<Vec<RangeRow>, ScanError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        if low > high {
            return Ok(found);
        }
        for (&key, row) in self.read().range(low..=high) {
            if row.owner.is_some_and(|owner| owner != me) {
                return Err(ScanError::Locked);
            }
            if row.version == 0 {
                continue;
            }
            bytes += row.value.as_ref().map_or(0, Vec::len);
            if found.len() == rows_max || bytes > SCAN_BYTES_MAX {
                return Err(ScanError::TooLong);
            }
            found.push(RangeRow { key, version: row.version, value: row.value.clone() });
        }
        Ok(found)
    }

    pub(super) fn row(&self, key: Key) -> Row {
        self.read().get(&key).cloned().unwrap_or_default()
    }

    pub(super) fn lock(&self, key: Key, owner: Txid, mode: Mode) -> Lock {
        let mut rows = self.write();
        let full = rows.len() >= self.rows_max;
        let there = rows.get(&key);
        if there.is_some_and(|row| row.owner.is_some_and(|holder| holder != owner)) {
            return Lock::Held;
        }
        if let Some(refused) = refusal(mode, there.is_some_and(|row| row.value.is_some())) {
            return refused;
        }
        if there.is_none() && full {
            return Lock::Full;
        }
        let row = rows.entry(key).or_default();
        row.owner = Some(owner);
        Lock::Granted(row.clone())
    }

    pub(super) fn unlock(&self, key: Key, owner: Txid) -> bool {
        let mut rows = self.write();
        let Some(row) = rows.get_mut(&key).filter(|row| row.owner == Some(owner)) else { return false };
        row.owner = None;
        if row.version == 0 {
            rows.remove(&key);
        }
        true
    }

    pub(super) fn apply(&self, key: Key, version: Version, value: Option<&[u8]>, owner: Txid) -> bool {
        let mut rows = self.write();
        let stored = rows.get(&key).map_or(0, |row| row.version);
        let newer = version > stored;
        if newer {
            let row = rows.entry(key).or_default();
            row.version = version;
            row.value = value.map(<[u8]>::to_vec);
        }
        if let Some(row) = rows.get_mut(&key).filter(|row| row.owner == Some(owner)) {
            row.owner = None;
            if row.version == 0 {
                rows.remove(&key);
            }
        }
        newer
    }

    pub(super) fn release_locks(&self) {
        self.write().retain(|_, row| {
            row.owner = None;
            row.version > 0
        });
    }

    pub(super) fn page(&self, cursor: u64, at_least: usize, bytes_max: usize) -> (Vec<Entry>, Option<u64>) {
        let rows = self.read();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (&key, row) in rows.range(cursor..).filter(|(_, row)| row.version > 0) {
            if entries.len() >= at_least.max(1) || bytes >= bytes_max.max(1) {
                return (entries, Some(key));
            }
            bytes += row.value.as_ref().map_or(0, Vec::len);
            entries.push(Entry { key, version: row.version, value: row.value.clone() });
        }
        (entries, None)
    }

    pub(super) fn version(&self, key: Key) -> (Version, bool) {
        self.read().get(&key).map_or((0, false), |row| (row.version, row.owner.is_some()))
    }

    pub(super) fn rows(&self) -> u64 {
        self.read().len() as u64
    }

    pub(super) fn locks(&self) -> usize {
        self.read().values().filter(|row| row.owner.is_some()).count()
    }

    // A thread that panicked cannot have left a row half written: each is replaced as a whole.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Key, Row>> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Key, Row>> {
        self.rows.write().unwrap_or_else(PoisonError::into_inner)
    }
}
