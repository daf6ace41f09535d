//! A workload on a cluster in one thread: what commits, what aborts and why, and how many requests it takes. Messages arrive in an order that the
//! seed decides and none is lost; there is no time in it, so it says nothing about speed.

use std::collections::BTreeMap;

use highwire_stdx::Rng;

use super::{Procedure, Put, Step, Workload};
use crate::configuration::Configuration;
use crate::id::{Key, NodeId, TableId, Txid};
use crate::node::{Counters, Event, Node, Outgoing};
use crate::record::Write;
use crate::settings::Settings;
use crate::worker::AbortReason;

/// The cluster, and how much it shall do.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Everything follows from it.
    pub seed: u64,
    /// Machines.
    pub nodes: u16,
    /// Copies beyond the first.
    pub f: usize,
    /// Transactions that a node coordinates at a time.
    pub workers: u16,
    /// Transactions at a time in the whole cluster, at most.
    pub window: usize,
    /// Transactions in all.
    pub transactions: u64,
}

/// One kind of transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub attempts: u64,
    /// Those that committed.
    pub commits: u64,
    /// Those that met another transaction.
    pub conflicts: u64,
    /// Those that did not find what they looked for, or found what they wanted to insert.
    pub refusals: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By kind.
    pub kinds: BTreeMap<&'static str, Tally>,
    /// Requests between nodes; those of a node to itself are calls.
    pub requests: Counters,
    /// The change of the sum of all balances, as the committed transactions declared it.
    pub money: i64,
}

impl Outcome {
    /// All kinds together.
    pub fn total(&self) -> Tally {
        self.kinds.values().fold(Tally::default(), |sum, kind| Tally {
            attempts: sum.attempts + kind.attempts,
            commits: sum.commits + kind.commits,
            conflicts: sum.conflicts + kind.conflicts,
            refusals: sum.refusals + kind.refusals,
        })
    }

    /// Requests between nodes for each transaction that committed.
    pub fn requests_per_commit(&self) -> f64 {
        let Counters {
            execute,
            validate,
            log,
            commit_backup,
            commit_primary,
            unlock,
            fenced: _,
            reads_at_home: _,
        } = self.requests;
        let sum = execute + validate + log + commit_backup + commit_primary + unlock;
        sum as f64 / self.total().commits.max(1) as f64
    }
}

enum Message {
    Request { from: NodeId, request: Outgoing },
    Response { to: NodeId, ticket: u64, bytes: Vec<u8> },
}

/// Nodes, messages between them, and transactions under way.
pub struct Cluster {
    bench: Bench,
    settings: Settings,
    rng: Rng,
    now_ns: u64,
    nodes: Vec<Node>,
    messages: Vec<Message>,
    running: BTreeMap<(NodeId, u16), Box<dyn Procedure>>,
    outcome: Outcome,
}

impl Bench {
    /// Runs it.
    pub fn run(&self, workload: &mut dyn Workload) -> Outcome {
        let mut cluster = Cluster::new(self, workload);
        cluster.run(workload);
        cluster.outcome
    }
}

impl Cluster {
    /// A cluster that holds the workload's population.
    pub fn new(bench: &Bench, workload: &dyn Workload) -> Cluster {
        let ids: Vec<NodeId> = (0..bench.nodes).map(NodeId).collect();
        let boots: Vec<u64> = (1..).take(ids.len()).collect();
        let regions = usize::from(bench.nodes) * 4;
        let rows = workload.rows().count();
        let settings = Settings {
            f: bench.f,
            tables: workload.tables(),
            // Keys spread unevenly.
            rows_max: rows * 2 / regions + 1000,
            scan_rows_max: 100,
            workers: bench.workers,
            lease_ns: 1 << 60,
            drift_ppm_max: 0,
            stuck_ns: 1 << 61,
            page_rows: 64,
            page_pause_ns: 0,
            part_bytes: 4 << 20,
            page_pause_times: 0,
            tombstones_max: 4096,
        };
        let first = Configuration::first(&ids, &boots, regions, bench.f);
        let mut nodes: Vec<Node> = ids
            .iter()
            .zip(boots)
            .map(|(&id, boot)| Node::new(id, boot, first.clone(), settings.clone(), 1))
            .collect();
        for row in workload.rows() {
            nodes.iter_mut().for_each(|node| node.populate(row.clone()));
        }
        let (rng, messages, running) = (Rng::new(bench.seed), Vec::new(), BTreeMap::new());
        let mut cluster = Cluster {
            bench: bench.clone(),
            settings,
            rng,
            now_ns: 1,
            nodes,
            messages,
            running,
            outcome: Outcome::default(),
        };
        cluster.now_ns += 1;
        cluster.nodes.iter_mut().for_each(|node| node.handle_timeout(2));
        (0..cluster.nodes.len()).for_each(|place| cluster.drain(place));
        while cluster.deliver() {}
        cluster
    }

    /// Runs as many transactions as were ordered, to their ends.
    pub fn run(&mut self, workload: &mut dyn Workload) {
        let mut started = 0;
        loop {
            while started < self.bench.transactions && self.running.len() < self.bench.window {
                let Some((node, worker)) = self.idle() else { break };
                let settings = &self.settings;
                let configuration = self.nodes[usize::from(node.0)].configuration();
                let is_elsewhere = |table: TableId, key: Key| {
                    configuration.replica(settings.region_of(configuration, table, key), node).is_none()
                };
                let procedure = workload.draw(&mut self.rng, &is_elsewhere);
                started += 1;
                self.outcome.kinds.entry(procedure.name()).or_default().attempts += 1;
                self.running.insert((node, worker), procedure);
                self.nodes[usize::from(node.0)].begin(worker).expect("it is idle, and the cluster open");
                self.step(node, worker);
                self.drain(usize::from(node.0));
            }
            if !self.deliver() {
                break;
            }
        }
        assert!(self.running.is_empty(), "transactions wait and no message is under way");
        self.outcome.requests = Counters::default();
        for counters in self.nodes.iter().map(Node::counters) {
            let sum = &mut self.outcome.requests;
            sum.execute += counters.execute;
            sum.validate += counters.validate;
            sum.log += counters.log;
            sum.commit_backup += counters.commit_backup;
            sum.commit_primary += counters.commit_primary;
            sum.unlock += counters.unlock;
        }
    }

    /// What it did so far.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The value of every key of some tables, as primaries have it.
    pub fn values(&self, wanted: &[TableId]) -> Vec<(TableId, Key, Vec<u8>)> {
        let mut values = Vec::new();
        for node in &self.nodes {
            for (region, table, rows) in node.store().tables.iter() {
                if wanted.contains(&table) && node.configuration().primary(region) == node.id() {
                    let entries = rows.page(0, usize::MAX, usize::MAX).0.into_iter();
                    values.extend(entries.filter_map(|entry| Some((table, entry.key, entry.value?))));
                }
            }
        }
        values
    }

    fn idle(&mut self) -> Option<(NodeId, u16)> {
        let workers = u64::from(self.bench.workers);
        let all = u64::from(self.bench.nodes) * workers;
        let first = self.rng.below(all);
        (0..all)
            .map(|step| (first + step) % all)
            .map(|place| (NodeId((place / workers) as u16), (place % workers) as u16))
            .find(|place| !self.running.contains_key(place))
    }

    /// Delivers any of the messages that are under way.
    fn deliver(&mut self) -> bool {
        if self.messages.is_empty() {
            return false;
        }
        self.now_ns += 1;
        let choice = self.rng.below(self.messages.len() as u64) as usize;
        let place = match self.messages.swap_remove(choice) {
            Message::Request { from, request } => {
                let place = usize::from(request.to.0);
                let reply = self.nodes[place].handle_request(self.now_ns, from, &request.bytes);
                let bytes = reply.expect("nodes that are open answer").bytes;
                self.messages.push(Message::Response { to: from, ticket: request.ticket, bytes });
                place
            }
            Message::Response { to, ticket, bytes } => {
                self.nodes[usize::from(to.0)].handle_response(self.now_ns, ticket, &bytes);
                usize::from(to.0)
            }
        };
        self.drain(place);
        true
    }

    fn drain(&mut self, place: usize) {
        let from = self.nodes[place].id();
        loop {
            if let Some(request) = self.nodes[place].poll_request() {
                self.messages.push(Message::Request { from, request });
            } else if let Some(event) = self.nodes[place].poll_event() {
                self.on_event(from, event);
            } else {
                return;
            }
        }
    }

    fn on_event(&mut self, node: NodeId, event: Event) {
        let (worker, commits, conflicts) = match event {
            Event::Executed { worker, result: Ok(()) } => return self.step(node, worker),
            Event::Executed { worker, result: Err(_) } => {
                self.nodes[usize::from(node.0)].abort(self.now_ns, worker).expect("its turn");
                return;
            }
            Event::Committed { worker, .. } => (worker, 1, 0),
            Event::Aborted { worker, reason, .. } => {
                (worker, 0, u64::from(matches!(reason, AbortReason::Locked | AbortReason::Changed)))
            }
            Event::Unknown { .. } => unreachable!("nobody is removed"),
        };
        let procedure = self.running.remove(&(node, worker)).expect("it was begun");
        let kind = self.outcome.kinds.entry(procedure.name()).or_default();
        kind.commits += commits;
        kind.conflicts += conflicts;
        kind.refusals += 1 - commits - conflicts;
        self.outcome.money += procedure.money() * commits as i64;
    }

    fn step(&mut self, at: NodeId, worker: u16) {
        let node = &mut self.nodes[usize::from(at.0)];
        let procedure = self.running.get_mut(&(at, worker)).expect("it was begun");
        let step = procedure.step(node.worker(worker));
        node.carry_out(self.now_ns, worker, &step).expect("its turn, and keys that it locked");
    }
}

/// The owner of the writes that load a population; no node of a cluster has this number.
const LOADER: Txid = Txid { node: NodeId(u16::MAX), worker: 0, sequence: 0 };

impl Node {
    /// Gives this node's copy of a key its first value, before the first transaction. Does nothing if the
    /// node has no copy: every node is given the same rows.
    pub fn populate(&mut self, row: Put) {
        self.apply(LOADER, &Write { table: row.table, key: row.key, read: 0, value: Some(row.value) });
    }

    /// Carries out what a procedure wants next.
    pub fn carry_out(
        &mut self,
        now_ns: u64,
        worker: u16,
        step: &Step,
    ) -> Result<(), crate::TransactionError> {
        match step {
            Step::Execute(accesses) => {
                for access in accesses {
                    match access.mode {
                        None => self.add_to_read_set(worker, access.table, access.key)?,
                        Some(mode) => self.add_to_write_set(worker, access.table, access.key, mode)?,
                    }
                }
                self.execute(now_ns, worker)
            }
            Step::Commit(puts) => {
                for put in puts {
                    self.set_value(worker, put.table, put.key, &put.value)?;
                }
                self.commit(now_ns, worker)
            }
            Step::Abort => self.abort(now_ns, worker),
        }
    }
}
