//! The workloads of FaSST §6 and YCSB, as generators: a seed gives transactions, and what a transaction does next depends on nothing but what
//! it has read.
//!
//! They know no store. A driver asks a [`Procedure`] for its next step and carries it out: on nodes in one thread ([`mod@bench`]), or over real RPCs.

pub mod bench;
mod objects;
mod smallbank;
mod tatp;
mod ycsb;

use highwire_stdx::Rng;

pub use objects::Objects;
pub use smallbank::SmallBank;
pub use tatp::Tatp;
pub use ycsb::{Mix, Ycsb};

use crate::id::{Key, TableId};
use crate::settings::TableKind;
use crate::table::Mode;
use crate::worker::Worker;

/// A key that a transaction wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Key,
    /// `None`: it is only read.
    pub mode: Option<Mode>,
}

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Vec<u8>,
}

/// A transaction's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read these keys, and lock those that have a mode, in one round trip. A refusal ends the transaction.
    Execute(Vec<Access>),
    /// Commit with these values for keys that are locked.
    Commit(Vec<Put>),
    /// Give up: a key that it looked for is absent.
    Abort,
}

/// What a transaction has read so far.
pub trait View {
    /// A key's value, if it was asked for and is there.
    fn value(&self, table: TableId, key: Key) -> Option<&[u8]>;
}

impl View for Worker {
    fn value(&self, table: TableId, key: Key) -> Option<&[u8]> {
        let item = self.items().iter().find(|item| (item.table, item.key) == (table, key))?;
        item.value.as_deref()
    }
}

/// One transaction.
pub trait Procedure {
    /// Its kind, as its benchmark calls it.
    fn name(&self) -> &'static str;

    /// The transaction's next step; called first with nothing read, then after each execution.
    fn step(&mut self, view: &dyn View) -> Step;

    /// The arguments of a stored procedure of its kind, for systems that run transactions where the data is;
    /// empty for kinds that have none.
    fn arguments(&self) -> Vec<i64> {
        Vec::new()
    }

    /// By how much the sum of all balances grows if it commits.
    fn money(&self) -> i64 {
        0
    }
}

/// A benchmark: its tables, what they hold at first, and its transactions.
pub trait Workload {
    /// The schema.
    fn tables(&self) -> Vec<TableKind>;

    /// The population.
    fn rows(&self) -> Box<dyn Iterator<Item = Put> + '_>;

    /// The next transaction. `is_elsewhere` says whether a key has no replica at its coordinator, for benchmarks that demand it.
    fn draw(&mut self, rng: &mut Rng, is_elsewhere: &dyn Fn(TableId, Key) -> bool) -> Box<dyn Procedure>;

    /// The share of transactions of a kind that succeed when none conflict, where the benchmark knows it.
    fn success(&self, _name: &str) -> f64 {
        1.0
    }

    /// Its kinds, with their shares in percent, where it has several.
    fn mix(&self) -> &'static [(&'static str, u64)] {
        &[]
    }

    /// What a row adds to the sum of all balances, where there are balances.
    fn balance(&self, _value: &[u8]) -> i64 {
        0
    }
}

fn read(table: TableId, key: Key) -> Access {
    Access { table, key, mode: None }
}

fn lock(table: TableId, key: Key, mode: Mode) -> Access {
    Access { table, key, mode: Some(mode) }
}

/// A kind, by percentages that sum up to 100.
fn pick(rng: &mut Rng, mix: &[(&'static str, u64)]) -> &'static str {
    let mut dice = rng.below(mix.iter().map(|kind| kind.1).sum());
    for &(name, share) in mix {
        if dice < share {
            return name;
        }
        dice -= share;
    }
    unreachable!("shares are summed up")
}

#[cfg(all(test, not(loom)))]
mod tests;
