//! `txn`'s workloads on running nodes: a node's own workers are the clients, as in FaSST's evaluation.
//!
//! A driver gives each node of a cluster the same orders in the same order: populate,
//! [play](crate::Store::play) a turn, [audit](crate::Store::audit). Nodes that play are coordinators for
//! their own workers and participants for the others', over any link that the cluster has. In a closed loop a
//! worker begins its next transaction when the last one has ended; in an open loop a Poisson process says
//! when transactions begin, and a latency counts from then, so that a node that falls behind cannot hide it.

mod audit;
mod forecast;
mod turn;
mod worker;

use crate::config::ClusterConfig;
use highwire_txn::workloads::{Mix, Objects, SmallBank, Tatp, Workload, Ycsb};
use highwire_txn::{Settings, TableKind};
use serde::{Deserialize, Serialize};

pub use audit::{Audit, Population};
pub use forecast::Requests;
pub use turn::{Tally, Turn, TurnReport};

/// A benchmark and its size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Benchmark {
    /// The object store O(reads, writes).
    Objects {
        /// The number of objects.
        keys: u64,
        /// Keys that a transaction reads.
        reads: usize,
        /// The number of those that it writes.
        writes: usize,
    },
    /// A telephone network's register.
    Tatp {
        /// The number of subscribers.
        subscribers: u64,
    },
    /// A bank.
    SmallBank {
        /// All customers.
        customers: u64,
        /// The first of them, which 9 of 10 transactions draw from.
        hot: u64,
    },
    /// YCSB's core workloads over points.
    Ycsb {
        /// The number of points.
        keys: u64,
        /// Reads of a transaction, and writes.
        operations: usize,
        /// Which of the workloads.
        mix: YcsbMix,
        /// Zipf's exponent.
        theta: f64,
    },
}

/// Which of YCSB's core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum YcsbMix {
    /// Half updates.
    A,
    /// 5 % updates.
    B,
    /// Reads.
    C,
    /// Half updates of values that were read.
    F,
}

/// Bytes of a value in YCSB.
const YCSB_VALUE_BYTES: usize = 100;
/// The share of SmallBank's transactions that draw from the hot customers, in percent.
const HOT_SHARE: u64 = 90;

impl Benchmark {
    /// Its transactions.
    pub fn workload(&self) -> Box<dyn Workload + Send> {
        match *self {
            Benchmark::Objects { keys, reads, writes } => Box::new(Objects { keys, reads, writes }),
            Benchmark::Tatp { subscribers } => Box::new(Tatp { subscribers }),
            Benchmark::SmallBank { customers, hot } => {
                Box::new(SmallBank { customers, hot, hot_share: HOT_SHARE })
            }
            Benchmark::Ycsb { keys, operations, mix, theta } => {
                let mix = match mix {
                    YcsbMix::A => Mix::A,
                    YcsbMix::B => Mix::B,
                    YcsbMix::C => Mix::C,
                    YcsbMix::F => Mix::F,
                };
                Box::new(Ycsb::new(mix, keys, YCSB_VALUE_BYTES, operations, theta))
            }
        }
    }

    /// The number of keys that each table may come to have.
    fn keys(&self) -> Vec<u64> {
        match *self {
            Benchmark::Objects { keys, .. } | Benchmark::Ycsb { keys, .. } => vec![keys],
            // A subscriber has 2.5 of 4 kinds of access data and of facilities, and a facility up to 3 call forwardings.
            Benchmark::Tatp { subscribers: s } => vec![s, s, s * 5 / 2, s * 5 / 2, s * 15 / 2],
            Benchmark::SmallBank { customers, .. } => vec![customers; 2],
        }
    }

    /// The settings for nodes of a cluster that has this benchmark's tables and no others.
    pub fn settings(&self, config: &ClusterConfig) -> Settings {
        let regions = config.regions as u64;
        let sized = |keys: u64| {
            // Keys spread over regions by chance: within six standard deviations, which are below its root.
            let mean = keys.div_ceil(regions);
            TableKind::Sized { rows_max: (mean + 6 * mean.isqrt() + 32) as usize }
        };
        Settings { tables: self.keys().into_iter().map(sized).collect(), ..config.settings() }
    }
}

#[cfg(test)]
mod tests;
