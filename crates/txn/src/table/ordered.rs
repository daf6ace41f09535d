//! A table with ranges. FaSST plans one and has none.
//!
//! A range read returns the version of every row in the range, deleted ones included; validation reads the range again and compares. An
//! insert between the two shows up as a row that was not there, or as a lock, so there are no phantoms; and since validation is a
//! procedure call and not a READ of memory, no structure versions are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::id::{Key, Txid, Version};

use super::{Entry, Floors, Lock, Mode, Row, Usage, refusal, room};

/// An ordered table. All methods may be called by all threads; a range is read at one instant.
pub struct OrderedTable {
    contents: RwLock<Contents>,
    rows_max: usize,
}

#[derive(Default)]
struct Contents {
    rows: BTreeMap<Key, Row>,
    /// Keys of deleted rows.
    tombstones: BTreeSet<Key>,
    /// Keys of rows that were never written: a lock has made them, and they go with it.
    fresh: BTreeSet<Key>,
    floors: Floors,
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
        OrderedTable { contents: RwLock::default(), rows_max }
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
        let contents = self.read();
        for (&key, row) in contents.rows.range(low..=high) {
            if row.owner.is_some_and(|owner| owner != me) {
                return Err(ScanError::Locked);
            }
            if contents.is_fresh(key, row) {
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
        let contents = self.read();
        contents.rows.get(&key).cloned().unwrap_or_else(|| contents.floors.absent())
    }

    pub(super) fn lock(&self, key: Key, owner: Txid, mode: Mode) -> Lock {
        let mut contents = self.write();
        let usage = contents.usage();
        let there = contents.rows.get(&key);
        if there.is_some_and(|row| row.owner.is_some_and(|holder| holder != owner)) {
            return Lock::Held;
        }
        if let Some(refused) = refusal(mode, there.is_some_and(|row| row.value.is_some())) {
            return refused;
        }
        let (is_there, is_mine) = (there.is_some(), there.is_some_and(|row| row.owner == Some(owner)));
        if mode == Mode::Insert
            && !is_mine
            && let Some(refused) = room(usage, self.rows_max, is_there)
        {
            return refused;
        }
        let absent = contents.floors.absent();
        if !is_there {
            contents.fresh.insert(key);
        }
        let row = contents.rows.entry(key).or_insert(absent);
        row.owner = Some(owner);
        Lock::Granted(row.clone())
    }

    pub(super) fn unlock(&self, key: Key, owner: Txid) -> bool {
        let mut contents = self.write();
        let Some(row) = contents.rows.get_mut(&key).filter(|row| row.owner == Some(owner)) else {
            return false;
        };
        row.owner = None;
        if contents.fresh.remove(&key) {
            contents.rows.remove(&key);
        }
        true
    }

    pub(super) fn apply(&self, key: Key, version: Version, value: Option<&[u8]>, owner: Txid) -> bool {
        let mut contents = self.write();
        let stored = contents.rows.get(&key).map_or(0, |row| row.version);
        let newer = version > stored;
        if newer {
            let row = contents.rows.entry(key).or_default();
            row.version = version;
            row.value = value.map(<[u8]>::to_vec);
            contents.fresh.remove(&key);
            match value {
                Some(_) => contents.tombstones.remove(&key),
                None => contents.tombstones.insert(key),
            };
        }
        if let Some(row) = contents.rows.get_mut(&key).filter(|row| row.owner == Some(owner)) {
            row.owner = None;
            if contents.fresh.remove(&key) {
                contents.rows.remove(&key);
            }
        }
        newer
    }

    pub(super) fn release_locks(&self) {
        let mut contents = self.write();
        for key in std::mem::take(&mut contents.fresh) {
            contents.rows.remove(&key);
        }
        contents.rows.values_mut().for_each(|row| row.owner = None);
    }

    pub(super) fn page(&self, cursor: u64, at_least: usize, bytes_max: usize) -> (Vec<Entry>, Option<u64>) {
        let contents = self.read();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (&key, row) in contents.rows.range(cursor..).filter(|(key, row)| !contents.is_fresh(**key, row)) {
            if entries.len() >= at_least.max(1) || bytes >= bytes_max.max(1) {
                return (entries, Some(key));
            }
            bytes += row.value.as_ref().map_or(0, Vec::len);
            entries.push(Entry { key, version: row.version, value: row.value.clone() });
        }
        (entries, None)
    }

    pub(super) fn version(&self, key: Key) -> (Version, bool) {
        let contents = self.read();
        let row = contents.rows.get(&key);
        row.map_or((contents.floors.absent, false), |row| (row.version, row.owner.is_some()))
    }

    pub(super) fn usage(&self) -> Usage {
        self.read().usage()
    }

    pub(crate) fn floors(&self) -> Floors {
        self.read().floors
    }

    /// Deleted rows from `cursor` on that are not locked, at most so many; and where to go on.
    pub(super) fn tombstones(&self, cursor: u64, most: usize) -> (Vec<(Key, Version)>, Option<u64>) {
        let contents = self.read();
        let mut found = Vec::new();
        for &key in contents.tombstones.range(cursor..) {
            if found.len() >= most {
                return (found, Some(key));
            }
            let row = contents.rows.get(&key).filter(|row| row.owner.is_none());
            found.extend(row.map(|row| (key, row.version)));
        }
        (found, None)
    }

    pub(super) fn raise(&self, floor: Version) {
        let floors = &mut self.write().floors;
        floors.absent = floors.absent.max(floor);
    }

    pub(super) fn is_drained(&self, floor: Version) -> bool {
        let contents = self.read();
        contents.fresh.iter().all(|key| contents.rows.get(key).is_none_or(|row| row.version >= floor))
    }

    pub(super) fn reclaim(&self, rows: &[(Key, Version)], floor: Version) {
        let mut contents = self.write();
        contents.floors.reclaimed(floor);
        for (key, version) in rows {
            let is_it = |row: &Row| row.version == *version && row.value.is_none();
            if contents.tombstones.contains(key) && contents.rows.get(key).is_some_and(is_it) {
                contents.rows.remove(key);
                contents.tombstones.remove(key);
            }
        }
    }

    pub(super) fn set_reclaimed(&self, floor: Version) -> bool {
        let floors = &mut self.write().floors;
        let was_lower = floors.reclaimed < floor;
        floors.reclaimed(floor);
        was_lower
    }

    pub(super) fn drop_reclaimed(&self) {
        let Contents { rows, tombstones, floors, .. } = &mut *self.write();
        tombstones.retain(|key| {
            let goes = rows.get(key).is_some_and(|row| row.version <= floors.reclaimed);
            if goes {
                rows.remove(key);
            }
            !goes
        });
    }

    pub(super) fn set_owner(&self, key: Key, owner: Txid) -> bool {
        let mut contents = self.write();
        let row = contents.rows.get_mut(&key).filter(|row| row.owner.is_none());
        row.map(|row| row.owner = Some(owner)).is_some()
    }

    pub(super) fn has_row(&self, key: Key) -> bool {
        let contents = self.read();
        contents.rows.contains_key(&key) && !contents.fresh.contains(&key)
    }

    pub(super) fn locks(&self) -> usize {
        self.read().rows.values().filter(|row| row.owner.is_some()).count()
    }

    // A thread that panicked cannot have left a row half written: each is replaced as a whole.
    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    /// Whether only a lock has made this row. Such a row is locked and has no value, so most rows need no search.
    fn is_fresh(&self, key: Key, row: &Row) -> bool {
        row.owner.is_some() && row.value.is_none() && self.fresh.contains(&key)
    }

    fn usage(&self) -> Usage {
        let (all, tombstones) = (self.rows.len(), self.tombstones.len());
        Usage { live: (all - tombstones) as u64, tombstones: tombstones as u64 }
    }
}
