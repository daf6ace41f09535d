//! The tables of one region on one node, shared by all threads of the node.
//!
//! A row is a key, an eight-byte header (lock bit and 63-bit version), the transaction that holds the lock, and a value or none. A deleted
//! key keeps its row: versions of a key never go back, so that a record that is replayed late is recognised as old. A lock on a key
//! that was never written makes a row of version 0, which vanishes with the lock.

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

    /// How many rows an ordered table has, those of deleted keys included; 0 for a hash table, which does not count them.
    pub fn rows(&self) -> u64 {
        match self {
            Table::Hash(_) => 0,
            Table::Ordered(table) => table.rows(),
        }
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
