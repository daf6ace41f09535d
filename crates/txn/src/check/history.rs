//! What happened, as its clients saw it.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{Key, TableId, Txid, Version};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its client was told that it committed.
    Committed,
    /// Its client was told that it aborted, or it can have had no effect.
    Aborted,
    /// Its client was not told the outcome.
    Unknown,
}

/// A key as a transaction saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Key,
    /// The version.
    pub version: Version,
    /// The value; `None`: absent.
    pub value: Option<Vec<u8>>,
}

/// A write.
pub type Effect = Observation;

/// One transaction, from its client's first word to the last answer.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its name.
    pub txid: Txid,
    /// True time at which it began.
    pub invoked_ns: u64,
    /// True time at which its client learnt the outcome.
    pub completed_ns: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Everything it saw, keys that it wrote included.
    pub reads: Vec<Observation>,
    /// Everything it wrote, or would have written.
    pub writes: Vec<Effect>,
}

/// All transactions, in any order, and what is special about tables.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All of them.
    pub transactions: Vec<Transaction>,
    /// Tables whose values are lists of unique eight-byte elements, to which transactions only append.
    pub lists: BTreeSet<TableId>,
}

impl History {
    /// The same, in which a transaction that saw a key absent names the deletion that it saw. The store gives a key whose deleted row it has
    /// reclaimed a higher version than the deletion's. What it saw is the last deletion up to that version, if there is one.
    pub(super) fn with_deletions_named(&self) -> History {
        let mut deletions: BTreeMap<(TableId, Key), BTreeSet<Version>> = BTreeMap::new();
        for transaction in self.transactions.iter().filter(|one| one.outcome != Outcome::Aborted) {
            for write in transaction.writes.iter().filter(|write| write.value.is_none()) {
                deletions.entry((write.table, write.key)).or_default().insert(write.version);
            }
        }
        let mut named = self.clone();
        let reads = named.transactions.iter_mut().flat_map(|transaction| &mut transaction.reads);
        for read in reads.filter(|read| read.value.is_none()) {
            let before = deletions.get(&(read.table, read.key));
            let last = before.and_then(|versions| versions.range(..=read.version).next_back());
            read.version = last.copied().unwrap_or(0);
        }
        named
    }
}

impl Transaction {
    /// A line for a person.
    pub fn describe(&self) -> String {
        let show = |observation: &Observation| {
            let Observation { table, key, version, value } = observation;
            let absent = if value.is_none() { " absent" } else { "" };
            format!("{}/{key}@{version}{absent}", table.0)
        };
        let reads: Vec<String> = self.reads.iter().map(show).collect();
        let writes: Vec<String> = self.writes.iter().map(show).collect();
        let end = self.completed_ns.map_or("never".to_string(), |end| format!("{end}"));
        format!(
            "{} {:?} {}..{end} reads [{}] writes [{}]",
            self.txid,
            self.outcome,
            self.invoked_ns,
            reads.join(" "),
            writes.join(" ")
        )
    }
}
