//! A node's rows, before the first turn and after the last.

use super::Benchmark;
use crate::engine::Store;
use crate::error::StoreError;
use crate::session::Local;
use highwire_txn::workloads::Put;
use highwire_txn::{RegionId, Table, TableId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Rows written, or read, before the node's thread does something else.
const PORTION: usize = 500;

/// The rows with which a node was filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Population {
    /// Rows of the benchmark, whether they have a copy here or not.
    pub rows: u64,
    /// Rows that have a copy here.
    pub copies: u64,
    /// Memory that this node's tables have taken.
    pub table_bytes: u64,
}

/// The data of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// The sum of all balances of which this node is primary.
    pub balance: i64,
    /// For each region that has a copy here, a digest: equal copies have equal digests.
    pub digests: BTreeMap<u16, u64>,
    /// Locks that are held.
    pub locks: u64,
}

impl Store {
    /// Fills the node with the benchmark's rows, before the first transaction of the cluster.
    ///
    /// # Errors
    /// The node has not started, or has ended.
    pub fn populate(&self, benchmark: Benchmark) -> Result<Population, StoreError> {
        self.run(move |local| async move {
            let workload = benchmark.workload();
            let mut population = Population::default();
            let mut rows = workload.rows().peekable();
            while rows.peek().is_some() {
                population.rows += fill(&local, rows.by_ref().take(PORTION));
                // Other nodes must hear from this node in between, or they suspect it.
                local.rpc.yield_now().await;
            }
            let mut seen = 0;
            each_portion(&local, |_, _, entries| seen += entries.len() as u64).await;
            population.copies = seen;
            population.table_bytes = local.shared.node.borrow().store().bytes() as u64;
            population
        })
    }

    /// Looks at all data of the node. No client may be playing.
    ///
    /// # Errors
    /// The node has not started, or has ended.
    pub fn audit(&self, benchmark: Benchmark) -> Result<Audit, StoreError> {
        self.run(move |local| async move {
            let workload = benchmark.workload();
            let mut audit = Audit::default();
            let own = local.shared.node.borrow().id();
            let configuration = local.shared.node.borrow().configuration().clone();
            each_portion(&local, |region, table, entries| {
                let digest = audit.digests.entry(region.0).or_default();
                for entry in entries {
                    let mut hasher = DefaultHasher::new();
                    (table.0, entry.key, entry.version, &entry.value).hash(&mut hasher);
                    // The order of rows does not matter.
                    *digest = digest.wrapping_add(hasher.finish());
                    if configuration.primary(region) == own {
                        audit.balance += workload.balance(entry.value.as_deref().unwrap_or_default());
                    }
                }
            })
            .await;
            audit.locks = local.shared.node.borrow().store().locks() as u64;
            audit
        })
    }
}

fn fill(local: &Local, rows: impl Iterator<Item = Put>) -> u64 {
    let mut node = local.shared.node.borrow_mut();
    rows.map(|row| node.populate(row)).count() as u64
}

/// All rows of all tables here, region by region, with the node doing its duties in between.
async fn each_portion(local: &Local, mut look: impl FnMut(RegionId, TableId, &[highwire_txn::Entry])) {
    let regions = local.shared.node.borrow().configuration().regions.len() as u16;
    for (region, table) in (0..regions).flat_map(|region| (0..=u8::MAX).map(move |table| (region, table))) {
        let (region, table) = (RegionId(region), TableId(table));
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let page = {
                let node = local.shared.node.borrow();
                let table: Option<&Table> = node.store().table(region, table);
                table.map(|table| table.page(from, PORTION, usize::MAX))
            };
            let Some((entries, next)) = page else { break };
            look(region, table, &entries);
            cursor = next;
            local.rpc.yield_now().await;
        }
    }
}
