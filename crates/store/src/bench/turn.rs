//! A turn: how long a node's workers play, how fast, and the results.

use super::forecast::{Map, Requests};
use super::{Benchmark, worker};
use crate::engine::Store;
use crate::error::StoreError;
use hdrhistogram::Histogram;
use highwire_stdx::Rng;
use highwire_txn::workloads::Workload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A node's task in a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The benchmark for which the cluster was populated; parameters that do not concern the population may
    /// differ.
    pub benchmark: Benchmark,
    /// Decides, together with the node's number, every transaction and its time.
    pub seed: u64,
    /// Transactions that the node coordinates at a time; at most as many as its settings allow.
    pub workers: u16,
    /// For how long transactions begin.
    pub length_ns: u64,
    /// How many begin at most.
    pub transactions: u64,
    /// Transactions per second of this node, in an open loop. `None`: a closed one.
    pub rate: Option<f64>,
    /// Objects: none of a transaction's keys has a replica at its coordinator. There must be nodes beyond a region's replicas.
    pub elsewhere: bool,
}

/// One kind of transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Transactions that began, each counted once, however often it was tried.
    pub begun: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that did not find a key, or found one that they wanted to insert.
    pub refusals: u64,
    /// Attempts that met another transaction, and were made again.
    pub conflicts: u64,
}

impl Tally {
    /// Adds another's to this.
    pub fn add(&mut self, other: &Tally) {
        self.begun += other.begun;
        self.commits += other.commits;
        self.refusals += other.refusals;
        self.conflicts += other.conflicts;
    }
}

/// A node's results in a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnReport {
    /// By kind.
    pub kinds: BTreeMap<String, Tally>,
    /// From the beginning until its last transaction had ended.
    pub elapsed_ns: u64,
    /// Transactions that had begun, or should have, and had not ended when no more began.
    pub behind: u64,
    /// Transactions that should have begun and never did, because the node was too far behind.
    pub never: u64,
    /// Requests to other nodes.
    pub requests: Requests,
    /// The number of requests forecast for them.
    pub forecast: Requests,
    /// The requests that the committed transactions would have taken with all keys elsewhere.
    pub of_paper: u64,
    /// By how much the committed transactions changed the sum of all balances.
    pub money: i64,
    /// Attempts that a new configuration ended.
    pub interrupted: u64,
    /// Transactions that were given up after many attempts.
    pub given_up: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Nanoseconds from the time when a transaction should begin until it ended for good, and how many took so long.
    pub latencies: Vec<(u64, u64)>,
    /// Why the turn is void.
    pub failure: Option<String>,
}

impl TurnReport {
    /// All kinds together.
    pub fn total(&self) -> Tally {
        let mut sum = Tally::default();
        self.kinds.values().for_each(|kind| sum.add(kind));
        sum
    }
}

/// The state that the workers of a turn share.
pub(super) struct Play {
    pub(super) workload: Box<dyn Workload + Send>,
    rng: Rng,
    turn: Turn,
    pub(super) began_ns: u64,
    /// When the next transaction of an open loop is to begin, in nanoseconds after the beginning.
    next_ns: f64,
    begun: u64,
    pub(super) latencies: Histogram<u64>,
    pub(super) report: TurnReport,
}

/// A transaction that is to begin.
pub(super) struct Arrival {
    pub(super) at_ns: u64,
    /// The same seed gives the same transaction.
    pub(super) seed: u64,
}

impl Play {
    pub(super) fn new(turn: &Turn, node: u16) -> Result<Play, StoreError> {
        // Up to an hour: with bounds of its own choice, a histogram that saturates holds nothing beyond 2 ns.
        let latencies = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        Ok(Play {
            workload: turn.benchmark.workload(),
            rng: Rng::new(turn.seed).fork(u64::from(node)),
            turn: turn.clone(),
            began_ns: 0,
            next_ns: 0.0,
            begun: 0,
            latencies: latencies.map_err(|error| StoreError::invalid(format!("{error:?}")))?,
            report: TurnReport::default(),
        })
    }

    /// The next transaction, and when it is to begin. `None`: no more.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Arrival> {
        let end_ns = self.began_ns + self.turn.length_ns;
        // Late processes get as long again; a transaction that has not begun by then never will.
        let is_hopeless = now_ns > end_ns + self.turn.length_ns;
        while self.begun < self.turn.transactions {
            let at_ns = match self.turn.rate {
                None => now_ns,
                Some(rate) => {
                    self.next_ns += -(1.0 - self.rng.unit()).ln() / rate * 1e9;
                    self.began_ns + self.next_ns as u64
                }
            };
            if at_ns >= end_ns {
                // Later transactions would be later still.
                self.begun = self.turn.transactions;
                break;
            }
            self.begun += 1;
            // Also drawn for transactions that never begin: the load offered must not depend on which process
            // is late.
            let seed = self.rng.next_u64();
            if !is_hopeless {
                return Some(Arrival { at_ns, seed });
            }
            self.report.never += 1;
        }
        None
    }

    /// A transaction ended, at `now_ns`; it should have begun at `at_ns`.
    pub(super) fn ended(&mut self, at_ns: u64, now_ns: u64) {
        self.latencies.saturating_record(now_ns.saturating_sub(at_ns).max(1));
        self.report.behind += u64::from(now_ns > self.began_ns + self.turn.length_ns);
        self.report.elapsed_ns = self.report.elapsed_ns.max(now_ns - self.began_ns);
    }
}

pub(super) type Shared = Arc<Mutex<Play>>;

pub(super) fn lock(play: &Shared) -> MutexGuard<'_, Play> {
    play.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Lets the node's own workers play a turn, and waits until they have.
    ///
    /// # Errors
    /// The node has not started, or has ended.
    pub fn play(&self, turn: &Turn) -> Result<TurnReport, StoreError> {
        let play = Arc::new(Mutex::new(Play::new(turn, self.introduction.node)?));
        let shared = Arc::clone(&play);
        let before = self.run(|local| async move {
            lock(&shared).began_ns = local.shared.clock.now_ns();
            local.shared.node.borrow().counters()
        })?;
        let workers: Vec<_> = (0..turn.workers)
            .map(|number| {
                let (play, elsewhere) = (Arc::clone(&play), turn.elsewhere);
                self.start(move |local| async move {
                    let map = {
                        let node = local.shared.node.borrow();
                        let (node, configuration) = (node.id(), node.configuration().clone());
                        Map { node, configuration, f: local.shared.f as u64 }
                    };
                    worker::work(&local, &play, &map, elsewhere, u64::from(number)).await;
                })
            })
            .collect::<Result<_, _>>()?;
        for worker in workers {
            worker.recv().map_err(|_| StoreError::Unknown("the node has ended".into()))?;
        }
        let after = self.run(|local| async move { local.shared.node.borrow().counters() })?;
        let mut play = lock(&play);
        let mut report = std::mem::take(&mut play.report);
        report.requests = Requests::since(&after, &before);
        let recorded = play.latencies.iter_recorded();
        report.latencies = recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
        Ok(report)
    }
}
