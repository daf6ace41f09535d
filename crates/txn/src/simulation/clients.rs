//! Clients: one for each worker, with a mix of transactions that conflict on few keys.
//!
//! Table 0 holds lists to which elements are appended; table 1 accounts among which money moves; table 2 and the ordered table 3 flags that
//! come and go. Every value carries a tag that is unique, so that one is never mistaken for another.

use highwire_stdx::Rng;

use crate::check::{Observation, Outcome, Transaction};
use crate::id::{Key, TableId, Txid, Version};
use crate::node::Node;
use crate::table::Mode;
use crate::worker::{Phase, Worker};

pub(super) const LISTS: TableId = TableId(0);
pub(super) const ACCOUNTS: TableId = TableId(1);
pub(super) const FLAGS: TableId = TableId(2);
pub(super) const ORDERED: TableId = TableId(3);

pub(super) const LIST_KEYS: u64 = 10;
pub(super) const ACCOUNT_KEYS: u64 = 8;
pub(super) const FLAG_KEYS: u64 = 12;
pub(super) const ORDERED_KEYS: u64 = 16;
/// Longer lists are left alone.
const LIST_BYTES_MAX: usize = 2000;
/// In each account at first.
pub(super) const BALANCE: i64 = 1000;

/// What a transaction is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Read(TableId, Key),
    ReadMany(Vec<(TableId, Key)>),
    Append(Vec<Key>),
    Transfer {
        from: Key,
        to: Key,
        amount: i64,
    },
    Audit,
    /// Inserts the first key if absent, deletes it if present, but only after a look at the others.
    Toggle {
        table: TableId,
        key: Key,
        also: Vec<Key>,
    },
    Scan(Key, Key),
    /// Inserts into a range or deletes from it, as its number of rows demands.
    Balance {
        low: Key,
        high: Key,
    },
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) rng: Rng,
    pub(super) job: Option<Job>,
    pub(super) step: u8,
    pub(super) invoked_ns: u64,
    pub(super) committed: u64,
    /// Reads single keys of its own node and nothing else, so that it never waits for another node, not even
    /// when its own is cut off: if leases do not stop it, it reads old values.
    pub(super) is_local: bool,
    /// The lists as first read, to which the client appends.
    drafts: Vec<Vec<u8>>,
}

/// What a client does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Execute,
    Commit,
    Abort,
}

impl Client {
    pub(super) fn new(rng: Rng, is_local: bool) -> Client {
        Client { rng, job: None, step: 0, invoked_ns: 0, committed: 0, is_local, drafts: Vec::new() }
    }

    fn draw(&mut self) -> Job {
        let rng = &mut self.rng;
        let some = |rng: &mut Rng, keys: u64| -> Vec<Key> {
            let mut chosen: Vec<Key> = (0..rng.between(1, 3)).map(|_| rng.below(keys)).collect();
            chosen.sort_unstable();
            chosen.dedup();
            chosen
        };
        match rng.below(20) {
            0 | 1 => Job::Read(LISTS, rng.below(LIST_KEYS)),
            2 => Job::Read(FLAGS, rng.below(FLAG_KEYS)),
            3 | 4 => {
                let flags = some(rng, FLAG_KEYS).into_iter().map(|key| (FLAGS, key));
                Job::ReadMany(some(rng, LIST_KEYS).into_iter().map(|key| (LISTS, key)).chain(flags).collect())
            }
            5..=8 => Job::Append(some(rng, LIST_KEYS)),
            9..=12 => {
                let from = rng.below(ACCOUNT_KEYS);
                let to = (from + rng.between(1, ACCOUNT_KEYS - 1)) % ACCOUNT_KEYS;
                Job::Transfer { from, to, amount: rng.between(1, 50) as i64 }
            }
            13 => Job::Audit,
            14 | 15 => Job::Toggle { table: FLAGS, key: rng.below(FLAG_KEYS), also: some(rng, FLAG_KEYS) },
            16 => Job::Toggle { table: ORDERED, key: rng.below(ORDERED_KEYS), also: Vec::new() },
            17 | 18 => {
                let low = rng.below(ORDERED_KEYS);
                Job::Balance { low, high: (low + 5).min(ORDERED_KEYS - 1) }
            }
            _ => {
                let low = rng.below(ORDERED_KEYS);
                Job::Scan(low, rng.between(low, ORDERED_KEYS - 1))
            }
        }
    }

    fn draw_local(&mut self, node: &Node) -> Job {
        for _ in 0..20 {
            let (table, keys) =
                *self.rng.pick(&[(LISTS, LIST_KEYS), (FLAGS, FLAG_KEYS), (ACCOUNTS, ACCOUNT_KEYS)]);
            let key = self.rng.below(keys);
            if node.configuration().primary(node.configuration().region_of(table, key)) == node.id() {
                return Job::Read(table, key);
            }
        }
        // This node is primary of no region.
        Job::Read(LISTS, 0)
    }

    /// Begins a transaction that `node` has opened for `worker`.
    pub(super) fn begin(&mut self, node: &mut Node, worker: u16, now_ns: u64) {
        let job = if self.is_local { self.draw_local(node) } else { self.draw() };
        self.invoked_ns = now_ns;
        self.step = 0;
        let added = match &job {
            Job::Read(table, key) => node.add_to_read_set(worker, *table, *key),
            Job::ReadMany(keys) => {
                keys.iter().try_for_each(|&(table, key)| node.add_to_read_set(worker, table, key))
            }
            Job::Append(keys) => keys.iter().try_for_each(|&key| node.add_to_read_set(worker, LISTS, key)),
            Job::Transfer { from, to, .. } => [from, to]
                .iter()
                .try_for_each(|&&key| node.add_to_write_set(worker, ACCOUNTS, key, Mode::Update)),
            Job::Audit => (0..ACCOUNT_KEYS).try_for_each(|key| node.add_to_read_set(worker, ACCOUNTS, key)),
            Job::Toggle { table, key, also } => std::iter::once(key)
                .chain(also)
                .try_for_each(|&key| node.add_to_read_set(worker, *table, key)),
            Job::Scan(low, high) | Job::Balance { low, high } => node.add_range(worker, ORDERED, *low, *high),
        };
        added.expect("the node has just begun it");
        self.job = Some(job);
    }

    /// The key that it reads, if it reads one of its own node.
    pub(super) fn reads_at_home(&self) -> Option<(TableId, Key)> {
        match self.job {
            Some(Job::Read(table, key)) if self.is_local => Some((table, key)),
            _ => None,
        }
    }

    /// Goes on after an execution that went well.
    pub(super) fn go_on(&mut self, node: &mut Node, worker: u16) -> Next {
        self.step += 1;
        let seen = node.worker(worker);
        let tag = tag(seen);
        let is_present = |table, key| value(seen, table, key).is_some();
        match (self.job.clone().expect("it has begun"), self.step) {
            (Job::Append(keys), 1) => {
                self.drafts.clear();
                for key in keys {
                    let list = value(node.worker(worker), LISTS, key);
                    if list.as_ref().is_some_and(|list| list.len() > LIST_BYTES_MAX) {
                        return Next::Abort;
                    }
                    let mode = if list.is_some() { Mode::Update } else { Mode::Insert };
                    self.drafts.push(list.unwrap_or_default());
                    node.add_to_write_set(worker, LISTS, key, mode).expect("in time");
                }
                Next::Execute
            }
            (Job::Append(keys), _) => {
                for (key, mut list) in keys.into_iter().zip(self.drafts.drain(..)) {
                    list.extend_from_slice(&tag);
                    node.set_value(worker, LISTS, key, &list).expect("it is locked");
                }
                Next::Commit
            }
            (Job::Transfer { from, to, amount }, _) => {
                let balances = [from, to].map(|key| balance(value(seen, ACCOUNTS, key)));
                if balances[0] < amount {
                    return Next::Abort;
                }
                for (key, balance) in [(from, balances[0] - amount), (to, balances[1] + amount)] {
                    node.set_value(worker, ACCOUNTS, key, &account(balance, tag)).expect("it is locked");
                }
                Next::Commit
            }
            (Job::Toggle { table, key, also }, 1) => {
                let others = also.iter().filter(|&&other| other != key && is_present(table, other)).count();
                if others == 2 {
                    return Next::Commit;
                }
                let mode = if is_present(table, key) { Mode::Delete } else { Mode::Insert };
                node.add_to_write_set(worker, table, key, mode).expect("in time");
                Next::Execute
            }
            (Job::Balance { low, high }, 1) => {
                let present: Vec<Key> =
                    rows(seen).filter(|row| row.value.is_some()).map(|row| row.key).collect();
                let absent: Vec<Key> = (low..=high).filter(|key| !present.contains(key)).collect();
                let (choices, mode) =
                    if present.len() < 3 { (absent, Mode::Insert) } else { (present, Mode::Delete) };
                if choices.is_empty() {
                    return Next::Commit;
                }
                let key = *self.rng.pick(&choices);
                node.add_to_write_set(worker, ORDERED, key, mode).expect("in time");
                Next::Execute
            }
            (Job::Toggle { .. } | Job::Balance { .. }, _) => {
                let written = seen.items().iter().filter(|item| item.mode == Some(Mode::Insert));
                let written: Vec<(TableId, Key)> = written.map(|item| (item.table, item.key)).collect();
                for (table, key) in written {
                    node.set_value(worker, table, key, &tag).expect("it is locked");
                }
                if self.rng.chance(0.1) { Next::Abort } else { Next::Commit }
            }
            _ => Next::Commit,
        }
    }
}

fn tag(worker: &Worker) -> [u8; 8] {
    let txid = worker.txid();
    (txid.sequence << 24 | u64::from(txid.node.0) << 12 | u64::from(txid.worker)).to_le_bytes()
}

fn value(worker: &Worker, table: TableId, key: Key) -> Option<Vec<u8>> {
    let item = worker.items().iter().find(|item| (item.table, item.key) == (table, key))?;
    item.value.clone()
}

fn rows(worker: &Worker) -> impl Iterator<Item = &crate::table::RangeRow> {
    worker.ranges().iter().filter_map(|range| range.rows.as_ref()).flatten()
}

pub(super) fn account(balance: i64, tag: [u8; 8]) -> Vec<u8> {
    [balance.to_le_bytes(), tag].concat()
}

pub(super) fn balance(value: Option<Vec<u8>>) -> i64 {
    let bytes = value.unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

/// Adds to the history what a transaction saw and wrote.
pub(super) fn record(
    worker: &Worker,
    invoked_ns: u64,
    completed_ns: Option<u64>,
    outcome: Outcome,
) -> Transaction {
    let mut reads: Vec<Observation> = Vec::new();
    for item in worker.items() {
        if let Some(version) = item.seen {
            reads.push(Observation { table: item.table, key: item.key, version, value: item.value.clone() });
        }
    }
    for range in worker.ranges() {
        let Some(rows) = &range.rows else { continue };
        for key in range.low..=range.high {
            let row = rows.iter().find(|row| row.key == key);
            let (version, value) = row.map_or((range.floor, None), |row| (row.version, row.value.clone()));
            reads.push(Observation { table: range.table, key, version, value });
        }
    }
    let writes = worker.record().writes;
    let effect = |write: crate::record::Write| Observation {
        table: write.table,
        key: write.key,
        version: write.version(),
        value: write.value,
    };
    Transaction {
        txid: worker.txid(),
        invoked_ns,
        completed_ns,
        outcome,
        reads,
        writes: writes.into_iter().map(effect).collect(),
    }
}

/// What the history has of a read at once.
pub(super) fn home_read(
    txid: Txid,
    now_ns: u64,
    table: TableId,
    key: Key,
    version: Version,
    value: Option<Vec<u8>>,
) -> Transaction {
    Transaction {
        txid,
        invoked_ns: now_ns,
        completed_ns: Some(now_ns),
        outcome: Outcome::Committed,
        reads: vec![Observation { table, key, version, value }],
        writes: Vec::new(),
    }
}

/// How a transaction stands when its process ends. One that has just ended may have committed before its client was told.
pub(super) fn outcome_of(worker: &Worker) -> Outcome {
    match worker.phase() {
        Phase::Building | Phase::Executing | Phase::Validating | Phase::Aborting => Outcome::Aborted,
        _ => Outcome::Unknown,
    }
}
