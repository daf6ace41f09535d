//! A node's data: its replicas and its log slots. They outlive the process if the memory does.

use std::collections::BTreeMap;

use crate::configuration::Configuration;
use crate::id::{NodeId, RegionId, TableId, Txid};
use crate::record::Write;
use crate::settings::Settings;
use crate::table::Table;

/// Tables by region, and one log slot for each worker of the cluster that logs here.
#[derive(Default)]
pub struct Store {
    pub(crate) tables: BTreeMap<(RegionId, TableId), Table>,
    /// Reused by a worker's next transaction: by then every replica has this one's writes.
    pub(crate) slots: BTreeMap<(NodeId, u16), Vec<u8>>,
}

impl Store {
    /// The table of a region, if this node has a replica.
    pub fn table(&self, region: RegionId, table: TableId) -> Option<&Table> {
        self.tables.get(&(region, table))
    }

    /// Makes tables for the regions that a node has in a configuration, and drops those that it has no more.
    pub(crate) fn fit(&mut self, configuration: &Configuration, node: NodeId, settings: &Settings) {
        self.tables.retain(|&(region, _), _| configuration.replica(region, node).is_some());
        for region in (0..configuration.regions.len()).map(|region| RegionId(region as u16)) {
            if configuration.replica(region, node).is_none() {
                continue;
            }
            for table in (0..settings.tables.len()).map(|table| TableId(table as u8)) {
                if let Some(new) = settings.table(table) {
                    self.tables.entry((region, table)).or_insert(new);
                }
            }
        }
    }

    /// Writes one key of a committed transaction and releases its lock, if this node has a replica. Returns
    /// whether the write was new.
    pub(crate) fn apply(&self, txid: Txid, write: &Write, region: RegionId) -> bool {
        let table = self.table(region, write.table);
        table.is_some_and(|table| table.apply(write.key, write.version(), write.value.as_deref(), txid))
    }

    /// The memory that hash tables have taken here.
    pub fn bytes(&self) -> usize {
        self.tables.values().map(Table::bytes).sum()
    }

    /// All locks that are held here.
    pub fn locks(&self) -> usize {
        self.tables.values().map(Table::locks).sum()
    }
}
