//! Settings that are the same on all nodes of a cluster, and never change.

use crate::configuration::{Agreed, Configuration};
use crate::id::{Key, RegionId, TableId, mix};
use crate::table::{HashTable, LONG_VALUE_BYTES_MAX, OrderedTable, Table, VALUE_BYTES_MAX};

/// The kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Point access; keys spread over regions by their hash.
    Hash,
    /// The same, for a table whose size is known: at most so many keys in one region, instead of `rows_max`.
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

/// It changes when rows are found at other places than before: nodes and disks of both are no cluster.
const PLACES: u64 = 2;

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
    /// A primary removes rows of deleted keys when one table of one region has more of them, or more than a quarter of its keys.
    pub tombstones_max: usize,
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
    /// The numbers that all members of a cluster share.
    pub fn agreed(&self) -> Agreed {
        let kind = |table: &TableKind| match *table {
            TableKind::Hash => 1,
            TableKind::Sized { .. } => 2,
            TableKind::Ordered { keys_per_run } => mix(keys_per_run).max(3),
        };
        let first = mix(PLACES) ^ self.scan_rows_max as u64;
        let schema = self.tables.iter().fold(first, |sum, table| mix(sum ^ kind(table)));
        Agreed {
            f: self.f as u16,
            workers: self.workers,
            rows_max: self.rows_max as u64,
            lease_ns: self.lease_ns,
            drift_ppm_max: self.drift_ppm_max,
            schema,
        }
    }

    /// Whether a node with these settings can be a member of a cluster that has agreed on these numbers. The others, it takes from there.
    pub(crate) fn suits(&self, agreed: &Agreed) -> bool {
        let own = self.agreed();
        (own.f, own.workers, own.schema) == (agreed.f, agreed.workers, agreed.schema)
            && (1..=1 << 60).contains(&agreed.lease_ns)
            && agreed.drift_ppm_max < 1_000_000
    }

    /// Takes the numbers that the members have agreed on. Times that are multiples of a lease change with it.
    pub(crate) fn heed(&mut self, agreed: &Agreed) {
        if self.lease_ns != agreed.lease_ns {
            let times = (self.stuck_ns / self.lease_ns.max(1)).max(1);
            self.stuck_ns = agreed.lease_ns.saturating_mul(times);
        }
        self.lease_ns = agreed.lease_ns;
        self.drift_ppm_max = agreed.drift_ppm_max;
        self.rows_max = agreed.rows_max as usize;
    }

    pub(crate) fn table(&self, table: TableId) -> Option<Table> {
        Some(match self.tables.get(usize::from(table.0))? {
            TableKind::Hash => Table::Hash(Box::new(HashTable::new(self.rows_max))),
            TableKind::Sized { rows_max } => Table::Hash(Box::new(HashTable::new(*rows_max))),
            TableKind::Ordered { .. } => Table::Ordered(OrderedTable::new(self.rows_max)),
        })
    }

    /// How many rows of deleted keys a table of a region keeps.
    pub(crate) fn tombstones_max(&self, table: TableId) -> usize {
        self.tombstones_max.min(self.rows_max(table) / 4)
    }

    /// How many keys a table of a region takes.
    pub(crate) fn rows_max(&self, table: TableId) -> usize {
        match self.tables.get(usize::from(table.0)) {
            Some(TableKind::Sized { rows_max }) => *rows_max,
            _ => self.rows_max,
        }
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
    /// `before_ns`: the longest that may have been granted.
    pub(crate) fn lease_wait_ns(&self, before_ns: u64) -> u64 {
        let scaled = u128::from(self.lease_ns.max(before_ns)) * u128::from(1_000_000 + self.drift_ppm_max);
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
            tombstones_max: 4096,
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The waiting node's clock may be the fastest one that is allowed, and the holder's the slowest.
    #[test]
    fn a_lease_has_expired_for_the_slowest_clock_when_the_fastest_has_waited() {
        for lease_ns in [1, 999, 4_000_000, 300_000_000, 60_000_000_000] {
            for drift_ppm_max in [0, 1, 1000, 50_000, 500_000] {
                for before_ns in [0, lease_ns / 2, lease_ns, 3 * lease_ns] {
                    let settings = Settings { lease_ns, drift_ppm_max, ..Settings::of_tests() };
                    let wait = u128::from(settings.lease_wait_ns(before_ns));
                    let longest = u128::from(lease_ns.max(before_ns));
                    let (slow, fast) =
                        (u128::from(1_000_000 - drift_ppm_max), u128::from(1_000_000 + drift_ppm_max));
                    // In true time the wait is wait / fast, of which the holder's clock shows a part of slow.
                    assert!(wait * slow >= longest * fast, "{lease_ns} {drift_ppm_max} {before_ns}");
                    assert!((wait - 1) * slow <= longest * fast, "longer than needed");
                }
            }
        }
    }

    #[test]
    fn the_numbers_of_the_cluster_take_the_place_of_a_nodes_own() {
        let mut settings = Settings::of_tests();
        let agreed = Agreed { lease_ns: 3 * settings.lease_ns, rows_max: 7, ..settings.agreed() };
        assert!(settings.suits(&agreed));
        let stuck_ns = settings.stuck_ns;
        settings.heed(&agreed);
        assert_eq!((settings.agreed(), settings.stuck_ns), (agreed, 3 * stuck_ns));
        assert_eq!(settings.heartbeat_ns() * 5, agreed.lease_ns);
        for unsuitable in [
            Agreed { f: 2, ..agreed },
            Agreed { workers: 2, ..agreed },
            Agreed { schema: 1, ..agreed },
            Agreed { lease_ns: 0, ..agreed },
            Agreed { drift_ppm_max: 1_000_000, ..agreed },
        ] {
            assert!(!settings.suits(&unsuitable), "{unsuitable:?}");
            assert!(agreed.difference(&unsuitable).is_some());
        }
        assert_eq!(
            agreed.difference(&Agreed { lease_ns: 5, ..agreed }),
            Some(("lease_ns", agreed.lease_ns, 5))
        );
        assert_eq!(agreed.difference(&agreed), None);
    }
}
