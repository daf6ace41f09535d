//! The tables of one region on one node, shared by all threads of the node.
//!
//! A row is a key, an eight-byte header (lock bit and 63-bit version), the transaction that holds the lock, and a value or none. Versions of
//! a key never go back, so that a record that is replayed late is recognised as old. So a deleted key keeps its row, a **tombstone**, until
//! the table's floor is at least as high as its version: a key without a row has the version of the floor ([`Floors`]). A lock on such
//! a key makes a *fresh* row, which vanishes with the lock.

mod free_list;
mod hash;
mod ordered;
mod pool;
mod seqlock;

pub use hash::HashTable;
pub use ordered::{OrderedTable, RangeRow, ScanError};

use crate::id::{Key, Txid, Version};

/// The longest value of a hash table: it fits into one datagram (FaSST §5.2).
pub const VALUE_BYTES_MAX: usize = 4060;
/// The longest value of an ordered table. The carrier must cut it into datagrams.
pub const LONG_VALUE_BYTES_MAX: usize = (1 << 20) + 4096;

/// The kind of change for which a transaction locks a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The key must be absent.
    Insert,
    /// The key must be present.
    Update,
    /// The key must be present.
    Delete,
}

/// A key as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Committed writes so far, deletions included.
    pub version: Version,
    /// Which transaction holds the lock.
    pub owner: Option<Txid>,
    /// `None`: the key is absent.
    pub value: Option<Vec<u8>>,
}

/// The result of an attempt to lock a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The lock is the caller's; this is the row under it.
    Granted(Row),
    /// Another transaction holds it.
    Held,
    /// An insert found the key.
    Exists,
    /// An update or a deletion did not find the key.
    Missing,
    /// No room for another key.
    Full,
}

/// One row as it travels to another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Its version.
    pub version: Version,
    /// `None`: deleted.
    pub value: Option<Vec<u8>>,
}

/// The versions of keys that have no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    /// What such a key's version is, for reads and locks. It is raised at a primary before it reclaims tombstones.
    pub absent: Version,
    /// Tombstones up to this version may have been reclaimed, at this replica or at another. A write of a record that is not above it, to a key
    /// without a row, was made and deleted long ago.
    pub reclaimed: Version,
}

impl Floors {
    fn absent(self) -> Row {
        Row { version: self.absent, ..Row::default() }
    }

    fn reclaimed(&mut self, floor: Version) {
        self.reclaimed = self.reclaimed.max(floor);
        self.absent = self.absent.max(floor);
    }
}

/// How many rows a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Keys that are there, or locked to be inserted.
    pub live: u64,
    /// Keys that were deleted and keep their rows for some time.
    pub tombstones: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.live += other.live;
        self.tombstones += other.tombstones;
    }
}

/// Whether a key must not be inserted: the table is full of keys, or of as many tombstones as keys, which are about to be reclaimed.
fn room(usage: Usage, rows_max: usize, has_row: bool) -> Option<Lock> {
    let rows_max = rows_max as u64;
    if usage.live >= rows_max {
        return Some(Lock::Full);
    }
    (!has_row && usage.live + usage.tombstones >= rows_max.saturating_mul(2)).then_some(Lock::Held)
}

/// Either kind of table.
pub enum Table {
    /// Point access.
    Hash(Box<HashTable>),
    /// Point access and ranges.
    Ordered(OrderedTable),
}

macro_rules! either {
    ($self:ident, $table:ident => $call:expr) => {
        match $self {
            Table::Hash($table) => $call,
            Table::Ordered($table) => $call,
        }
    };
}

impl Table {
    /// Brings a key's bucket into the processor's cache. A tree's path is found only step by step: nothing.
    pub(crate) fn touch(&self, key: Key) {
        if let Table::Hash(table) = self {
            table.touch(key);
        }
    }

    /// A key's row; the empty row for a key that was never written.
    pub fn row(&self, key: Key) -> Row {
        either!(self, table => table.row(key))
    }

    /// Locks a key for `owner`. Granted again to the owner that has it.
    pub fn lock(&self, key: Key, owner: Txid, mode: Mode) -> Lock {
        either!(self, table => table.lock(key, owner, mode))
    }

    /// Releases a lock, if it is `owner`'s. The version stays: nothing was written.
    pub fn unlock(&self, key: Key, owner: Txid) -> bool {
        either!(self, table => table.unlock(key, owner))
    }

    /// Writes a version unless the row has it or a later one already, and releases `owner`'s lock. Says whether it wrote.
    pub fn apply(&self, key: Key, version: Version, value: Option<&[u8]>, owner: Txid) -> bool {
        either!(self, table => table.apply(key, version, value, owner))
    }

    /// Releases every lock: how recovery ends.
    pub fn release_locks(&self) {
        either!(self, table => table.release_locks());
    }

    /// Rows from `cursor` on, at least `at_least` of them if there are so many, and where to go on. Locked rows appear as committed last.
    /// An ordered table's page ends sooner when its values have `bytes_max` bytes.
    pub fn page(&self, cursor: u64, at_least: usize, bytes_max: usize) -> (Vec<Entry>, Option<u64>) {
        match self {
            Table::Hash(table) => table.page(cursor, at_least),
            Table::Ordered(table) => table.page(cursor, at_least, bytes_max),
        }
    }

    /// A key's version, and whether the key is locked.
    pub fn version(&self, key: Key) -> (Version, bool) {
        match self {
            Table::Hash(table) => {
                let row = table.row(key);
                (row.version, row.owner.is_some())
            }
            Table::Ordered(table) => table.version(key),
        }
    }

    /// How many rows it has.
    pub fn usage(&self) -> Usage {
        either!(self, table => table.usage())
    }

    /// The versions of keys without a row.
    pub fn floors(&self) -> Floors {
        either!(self, table => table.floors())
    }

    /// Deleted rows from `cursor` on that are not locked, about so many; and where to go on.
    pub(crate) fn tombstones(&self, cursor: u64, most: usize) -> (Vec<(Key, Version)>, Option<u64>) {
        either!(self, table => table.tombstones(cursor, most))
    }

    /// Raises the version of keys without a row.
    pub(crate) fn raise(&self, floor: Version) {
        either!(self, table => table.raise(floor));
    }

    /// Whether every lock on a key without a row was given at this floor or a higher one.
    pub(crate) fn is_drained(&self, floor: Version) -> bool {
        either!(self, table => table.is_drained(floor))
    }

    /// Locks a tombstone of this version, unless it has changed or is locked.
    pub(crate) fn seize(&self, key: Key, version: Version, owner: Txid) -> bool {
        let row = self.row(key);
        let is_it = row.version == version && row.owner.is_none() && row.value.is_none();
        is_it && self.has_row(key) && either!(self, table => table.set_owner(key, owner))
    }

    /// Removes tombstones of exactly these versions, with their locks.
    pub(crate) fn reclaim(&self, rows: &[(Key, Version)], floor: Version) {
        either!(self, table => table.reclaim(rows, floor));
    }

    /// Takes a floor that another replica has reclaimed up to. Says whether this one's was lower.
    pub(crate) fn set_reclaimed(&self, floor: Version) -> bool {
        either!(self, table => table.set_reclaimed(floor))
    }

    /// Removes all tombstones up to the floor.
    pub(crate) fn drop_reclaimed(&self) {
        either!(self, table => table.drop_reclaimed());
    }

    /// Whether a write of a record is that of a row that was deleted and reclaimed since.
    pub(crate) fn is_reclaimed(&self, key: Key, version: Version) -> bool {
        version <= self.floors().reclaimed && !self.has_row(key)
    }

    /// Whether the key has a row that was written.
    fn has_row(&self, key: Key) -> bool {
        either!(self, table => table.has_row(key))
    }

    /// The memory that a hash table has taken; nodes of a tree are not counted.
    pub fn bytes(&self) -> usize {
        match self {
            Table::Hash(table) => table.bytes(),
            Table::Ordered(_) => 0,
        }
    }

    /// How many locks are held.
    pub fn locks(&self) -> usize {
        either!(self, table => table.locks())
    }
}

/// Whether `mode` finds the key as it wants it.
fn refusal(mode: Mode, present: bool) -> Option<Lock> {
    match (mode, present) {
        (Mode::Insert, true) => Some(Lock::Exists),
        (Mode::Update | Mode::Delete, false) => Some(Lock::Missing),
        _ => None,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
