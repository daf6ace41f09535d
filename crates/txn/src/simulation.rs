//! A cluster in one thread: nodes, clients, network, clocks, configuration service and faults, all from one seed.
//!
//! The nodes are the ones that run for real. What is simulated is their world: messages are lost, repeated, delayed and overtaken, links fail
//! in one direction, machines pause, crash between any two messages and come back with their memory or without, disks tear what was not synced, lose it or are full,
//! clocks run at different rates, and the configuration service is slow, silent, or makes a change without
//! answering. Then the faults end, and the cluster must make progress, settle, and have kept its promise.

mod clients;
mod disk;
mod faults;
mod machine;
mod network;
mod verdict;
mod world;

use crate::check::{History, Verdict};
use crate::settings::{Settings, TableKind};

use world::World;

/// A run's parameters. Everything follows from the seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Machines, 3 to 7.
    pub nodes: u16,
    /// Failures that it must survive at once, 1 or 2.
    pub f: usize,
    /// Workers of each node, with a client each; the last one reads its own node's keys only.
    pub workers: u16,
    /// Time with faults.
    pub faulty_ns: u64,
    /// Probability that a message is lost.
    pub loss: f64,
    /// Probability that it comes twice.
    pub duplication: f64,
    /// Probability that it comes late.
    pub delay: f64,
    /// The mean time between two greater faults; 0: none.
    pub fault_every_ns: u64,
    /// The greatest deviation of a clock's rate.
    pub drift_ppm: u64,
    /// Nodes have disks: a node that comes back has what its disk has kept, and no memory survives.
    pub has_disks: bool,
    /// A log that has grown by so much is followed by a checkpoint.
    pub checkpoint_bytes: u64,
    #[cfg(all(test, not(loom)))]
    pub(crate) defect: Option<crate::defect::Defect>,
    /// A node that breaks a rule fails the run, before the history can show what comes of it.
    #[cfg(all(test, not(loom)))]
    pub(crate) checks_rules: bool,
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Transactions that committed, as far as clients know.
    pub committed: usize,
    /// Transactions that aborted.
    pub aborted: usize,
    /// Transactions whose outcome clients do not know.
    pub unknown: usize,
    /// Messages that arrived.
    pub messages: u64,
    /// Crashes, with memory lost or kept.
    pub crashes: usize,
    /// Pauses, partitions and faults of the service.
    pub disturbances: usize,
    /// Disks that were full when something was to be written.
    pub full_disks: usize,
    /// The last configuration's number: how often membership changed.
    pub configurations: u32,
    /// What was checked.
    pub verdict: Verdict,
    /// A hash of everything that happened.
    pub fingerprint: u64,
}

/// A broken promise, and how to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "seed {}: {}\nrepeat it with: highwire store check --seed {}",
            self.seed, self.what, self.seed
        )
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn from_seed(seed: u64) -> Plan {
        let mut rng = highwire_stdx::Rng::new(seed ^ 0x7EA5_0FF5);
        let nodes = rng.between(3, 7) as u16;
        let f = if nodes >= 4 { rng.between(1, 2) as usize } else { 1 };
        let harsh = rng.unit();
        let mut disks = highwire_stdx::Rng::new(seed ^ 0xD15C_0000);
        Plan {
            seed,
            nodes,
            f,
            workers: rng.between(2, 3) as u16,
            faulty_ns: 250_000_000,
            loss: 0.10 * harsh * rng.unit(),
            duplication: 0.05 * harsh,
            delay: 0.05 * rng.unit(),
            fault_every_ns: *rng.pick(&[0, 8_000_000, 15_000_000, 30_000_000]),
            drift_ppm: 50_000,
            has_disks: disks.chance(0.4),
            checkpoint_bytes: *disks.pick(&[3_000, 30_000]),
            #[cfg(all(test, not(loom)))]
            defect: None,
            #[cfg(all(test, not(loom)))]
            checks_rules: true,
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            f: self.f,
            tables: vec![
                TableKind::Hash,
                TableKind::Hash,
                TableKind::Hash,
                TableKind::Ordered { keys_per_run: 4 },
            ],
            rows_max: 128,
            scan_rows_max: 64,
            workers: self.workers,
            lease_ns: 4_000_000,
            drift_ppm_max: self.drift_ppm,
            stuck_ns: 40_000_000,
            page_rows: 4,
            page_pause_ns: 100_000,
            // In one seed of five, nearly each record of a recovery goes by itself.
            part_bytes: if self.seed % 5 == 1 { 150 } else { 4 << 20 },
            page_pause_times: 0,
            // In half of the seeds. In the others no table ever has so many.
            tombstones_max: if self.reclaims() { (self.seed % 3) as usize } else { usize::MAX },
        }
    }

    fn reclaims(&self) -> bool {
        self.seed % 3 == 1 || self.seed % 4 == 3
    }

    /// Runs it.
    pub fn run(&self) -> Result<Report, Failure> {
        self.run_recorded().0
    }

    /// Runs it, and also returns the history that its clients saw, for other checkers than ours.
    pub fn run_recorded(&self) -> (Result<Report, Failure>, History) {
        let mut world = World::new(self);
        world.run_with_faults();
        let result = world.heal().and_then(|()| world.finish());
        world.end_history();
        (result.map_err(|what| Failure { seed: self.seed, what }), world.history)
    }
}

#[cfg(all(test, not(loom)))]
mod defects;
#[cfg(all(test, not(loom)))]
mod tests;
