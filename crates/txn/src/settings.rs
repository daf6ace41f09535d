//! Settings that are the same on all nodes of a cluster, and never change.

use crate::configuration::Configuration;
use crate::id::{Key, RegionId, TableId};
use crate::table::{HashTable, LONG_VALUE_BYTES_MAX, OrderedTable, Table, VALUE_BYTES_MAX};

/// The kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Point access; keys spread over regions by their hash.
    Hash,
    /// The same, for a table whose size is known: at most so many keys in one region, instead of [`Settings::rows_max`].
    Sized {
        /// At least 1.
        rows_max: usize,
    },
    /// Ranges; runs of this many keys share a region.
    Ordered {
        /// At least 1.
        keys_per_run: u64,
    },
}

/// A cluster's constants. Times are of the node's own clock.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many nodes may fail at once. Everything has f + 1 copies.
    pub f: usize,
    /// The schema.
    pub tables: Vec<TableKind>,
    /// Keys in one table of one region.
    pub rows_max: usize,
    /// Rows that one range read returns from one run of keys.
    pub scan_rows_max: usize,
    /// Transactions that a node coordinates at a time.
    pub workers: u16,
    /// The length of a lease.
    pub lease_ns: u64,
    /// Clocks run at rates that differ from true time by at most this, in millionths. Strict serialisability
    /// rests on it.
    pub drift_ppm_max: u64,
    /// How long a new configuration may take to open before another member tries.
    pub stuck_ns: u64,
    /// Rows that a new replica asks for at a time.
    pub page_rows: usize,
    /// Its pause between two pages, which leaves time for transactions.
    pub page_pause_ns: u64,
    /// A message with records of a recovery, or with rows for a new replica, is not made longer when it has so many bytes.
    pub part_bytes: usize,
    /// The pause lasts at least so many times as long as the page before it took: nodes that are busy are asked for less.
    pub page_pause_times: u64,
}

impl Settings {
    pub(crate) fn table(&self, table: TableId) -> Option<Table> {
        Some(match self.tables.get(usize::from(table.0))? {
            TableKind::Hash => Table::Hash(Box::new(HashTable::new(self.rows_max))),
            TableKind::Sized { rows_max } => Table::Hash(Box::new(HashTable::new(*rows_max))),
            TableKind::Ordered { .. } => Table::Ordered(OrderedTable::new(self.rows_max)),
        })
    }

    /// The longest value that a table takes.
    pub fn value_bytes_max(&self, table: TableId) -> usize {
        match self.tables.get(usize::from(table.0)) {
            Some(TableKind::Ordered { .. }) => LONG_VALUE_BYTES_MAX,
            _ => VALUE_BYTES_MAX,
        }
    }

    /// The region that holds a key.
    pub fn region_of(&self, configuration: &Configuration, table: TableId, key: Key) -> RegionId {
        match self.tables[usize::from(table.0)] {
            TableKind::Hash | TableKind::Sized { .. } => configuration.region_of(table, key),
            TableKind::Ordered { keys_per_run } => {
                RegionId((key / keys_per_run % configuration.regions.len() as u64) as u16)
            }
        }
    }

    /// A range in pieces that lie in one region each.
    pub(crate) fn pieces(&self, table: TableId, low: Key, high: Key) -> Vec<(Key, Key)> {
        let TableKind::Ordered { keys_per_run } = self.tables[usize::from(table.0)] else {
            return Vec::new();
        };
        let mut pieces = Vec::new();
        let mut from = low;
        while from <= high {
            let last = (from / keys_per_run * keys_per_run).saturating_add(keys_per_run - 1).min(high);
            pieces.push((from, last));
            let Some(next) = last.checked_add(1) else { break };
            from = next;
        }
        pieces
    }

    /// Between two heartbeats.
    pub(crate) fn heartbeat_ns(&self) -> u64 {
        self.lease_ns / 5
    }

    /// Silence after which a member is suspected.
    pub(crate) fn suspect_ns(&self) -> u64 {
        self.lease_ns * 2
    }

    /// After this much of its own time a node knows that every lease granted before has expired for its holder, however the two clocks run.
    pub(crate) fn lease_wait_ns(&self) -> u64 {
        let scaled = u128::from(self.lease_ns) * u128::from(1_000_000 + self.drift_ppm_max);
        (scaled / u128::from(1_000_000 - self.drift_ppm_max)) as u64 + 1
    }
}

#[cfg(all(test, not(loom)))]
impl Settings {
    /// One small hash table, two copies of everything.
    pub(crate) fn of_tests() -> Settings {
        Settings {
            f: 1,
            tables: vec![TableKind::Hash],
            rows_max: 100,
            scan_rows_max: 10,
            workers: 1,
            lease_ns: 4_000_000,
            drift_ppm_max: 1000,
            stuck_ns: 40_000_000,
            page_rows: 10,
            page_pause_ns: 1000,
            part_bytes: 4 << 20,
            page_pause_times: 0,
        }
    }
}
