//! How many requests a transaction should take: FaSST's arithmetic, for a cluster in which some keys are at home.
//!
//! Of r keys of which w are written, with f backups: r to read and lock, r − w to validate, f to log, w·f to backups and w to primaries (FaSST
//! §5.1). A request of a node to itself is a call and is not counted, here as in the node's counters.

use highwire_txn::workloads::{Access, Step};
use highwire_txn::{Configuration, Counters, Key, NodeId, RegionId, TableId, Worker};
use serde::{Deserialize, Serialize};

/// Requests between nodes, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Reads and locks.
    pub execute: u64,
    /// Versions compared.
    pub validate: u64,
    /// Records logged elsewhere.
    pub log: u64,
    /// Writes to backups.
    pub commit_backup: u64,
    /// Writes to primaries.
    pub commit_primary: u64,
    /// Locks given back.
    pub unlock: u64,
}

impl Requests {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.execute + self.validate + self.log + self.commit_backup + self.commit_primary + self.unlock
    }

    /// Each kind with its name.
    pub fn kinds(&self) -> [(&'static str, u64); 6] {
        [
            ("execute", self.execute),
            ("validate", self.validate),
            ("log", self.log),
            ("commit backup", self.commit_backup),
            ("commit primary", self.commit_primary),
            ("unlock", self.unlock),
        ]
    }

    /// Adds another's to these.
    pub fn add(&mut self, other: &Requests) {
        self.execute += other.execute;
        self.validate += other.validate;
        self.log += other.log;
        self.commit_backup += other.commit_backup;
        self.commit_primary += other.commit_primary;
        self.unlock += other.unlock;
    }

    pub(super) fn since(now: &Counters, then: &Counters) -> Requests {
        Requests {
            execute: now.execute - then.execute,
            validate: now.validate - then.validate,
            log: now.log - then.log,
            commit_backup: now.commit_backup - then.commit_backup,
            commit_primary: now.commit_primary - then.commit_primary,
            unlock: now.unlock - then.unlock,
        }
    }
}

/// Where keys are, as a coordinator sees it.
pub(super) struct Map {
    pub(super) node: NodeId,
    pub(super) configuration: Configuration,
    pub(super) f: u64,
}

impl Map {
    /// All tables of benchmarks are spread by hash.
    fn region(&self, table: TableId, key: Key) -> RegionId {
        self.configuration.region_of(table, key)
    }

    fn is_remote(&self, table: TableId, key: Key) -> bool {
        self.configuration.primary(self.region(table, key)) != self.node
    }

    fn backups(&self, table: TableId, key: Key) -> u64 {
        let backups = self.configuration.backups(self.region(table, key));
        backups.filter(|&backup| backup != self.node).count() as u64
    }

    /// Whether a key has no replica at this node.
    pub(super) fn is_elsewhere(&self, table: TableId, key: Key) -> bool {
        self.configuration.replica(self.region(table, key), self.node).is_none()
    }
}

/// The state of one attempt at a transaction.
#[derive(Default)]
pub(super) struct Forecast {
    pub(super) requests: Requests,
    accesses: Vec<Access>,
    is_committing: bool,
}

impl Forecast {
    /// Begins anew, for another attempt.
    pub(super) fn reset(&mut self) {
        self.requests = Requests::default();
        self.accesses.clear();
        self.is_committing = false;
    }

    /// Counts the requests of the next step.
    pub(super) fn step(&mut self, step: &Step, map: &Map, worker: &Worker) {
        match step {
            Step::Execute(accesses) => {
                self.requests.execute += remote(accesses.iter(), map);
                self.accesses.extend_from_slice(accesses);
            }
            Step::Commit(_) => {
                self.is_committing = true;
                // One key that is only read was read at one instant.
                if self.accesses.len() > 1 || self.writes().count() > 0 {
                    let reads = self.accesses.iter().filter(|access| access.mode.is_none());
                    self.requests.validate += remote(reads, map);
                }
            }
            Step::Abort => self.abort(map, worker),
        }
    }

    /// The transaction is given up: its locks are released.
    pub(super) fn abort(&mut self, map: &Map, worker: &Worker) {
        let locked = worker.items().iter().filter(|item| item.mode.is_some() && item.seen.is_some());
        self.requests.unlock += locked.filter(|item| map.is_remote(item.table, item.key)).count() as u64;
    }

    /// The transaction was refused after it had been asked to commit.
    pub(super) fn aborted(&mut self, map: &Map) {
        if self.is_committing {
            self.requests.unlock += remote(self.writes(), map);
        }
    }

    pub(super) fn committed(&mut self, map: &Map) {
        if self.writes().count() == 0 {
            return;
        }
        let backups: u64 = self.writes().map(|access| map.backups(access.table, access.key)).sum();
        self.requests.commit_primary += remote(self.writes(), map);
        self.requests.commit_backup += backups;
        self.requests.log += map.f;
    }

    /// The number of requests if no key is at home: the paper's formula.
    pub(super) fn of_paper(&self, f: u64) -> u64 {
        let (r, w) = (self.accesses.len() as u64, self.writes().count() as u64);
        match (r, w) {
            (1, 0) => 1,
            (r, 0) => r + r,
            (r, w) => r + (r - w) + f + w * f + w,
        }
    }

    fn writes(&self) -> impl Iterator<Item = &Access> {
        self.accesses.iter().filter(|access| access.mode.is_some())
    }
}

fn remote<'a>(accesses: impl Iterator<Item = &'a Access>, map: &Map) -> u64 {
    accesses.filter(|access| map.is_remote(access.table, access.key)).count() as u64
}
