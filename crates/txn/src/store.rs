//! A node's data: its replicas and its log slots. They outlive the process if the memory does.

use std::collections::BTreeMap;

use crate::configuration::Configuration;
use crate::id::{NodeId, RegionId, TableId, Txid};
use crate::record::Write;
use crate::settings::Settings;
use crate::table::Table;

/// Tables by region. Every request looks one up, so its two numbers are its place: no search.
#[derive(Default)]
pub(crate) struct Tables {
    /// Region after region.
    places: Vec<Option<Table>>,
    /// Tables of the schema.
    width: usize,
}

impl Tables {
    pub(crate) fn get(&self, region: RegionId, table: TableId) -> Option<&Table> {
        let (region, table) = (usize::from(region.0), usize::from(table.0));
        // A number beyond the schema must not find a table of the next region.
        if table >= self.width {
            return None;
        }
        self.places.get(region * self.width + table)?.as_ref()
    }

    /// Those that are here, by region, then by table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RegionId, TableId, &Table)> {
        self.places.iter().enumerate().filter_map(|(place, table)| {
            let (region, number) = (place / self.width, place % self.width);
            Some((RegionId(region as u16), TableId(number as u8), table.as_ref()?))
        })
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Table> {
        self.places.iter().flatten()
    }
}

/// Tables by region, and one log slot for each worker of the cluster that logs here.
#[derive(Default)]
pub struct Store {
    pub(crate) tables: Tables,
    /// Reused by a worker's next transaction: by then every replica has this one's writes.
    pub(crate) slots: BTreeMap<(NodeId, u16), Vec<u8>>,
}

impl Store {
    /// The table of a region, if this node has a replica.
    pub fn table(&self, region: RegionId, table: TableId) -> Option<&Table> {
        self.tables.get(region, table)
    }

    /// Makes tables for the regions that a node has in a configuration, and drops those that it has no more.
    pub(crate) fn fit(&mut self, configuration: &Configuration, node: NodeId, settings: &Settings) {
        let width = settings.tables.len();
        self.tables.width = width;
        self.tables.places.resize_with(configuration.regions.len() * width, || None);
        for (at, place) in self.tables.places.iter_mut().enumerate() {
            let (region, table) = (RegionId((at / width) as u16), TableId((at % width) as u8));
            if configuration.replica(region, node).is_none() {
                *place = None;
            } else if place.is_none() {
                *place = settings.table(table);
            } else if let Some(Table::Ordered(rows)) = place {
                rows.limit(settings.rows_max);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::Mode;

    #[test]
    fn a_table_is_found_by_its_region_and_number_and_by_no_others() {
        let settings = crate::simulation::Plan::from_seed(1).settings();
        let width = settings.tables.len();
        let configuration = Configuration::first(&[NodeId(0), NodeId(1), NodeId(2)], &[1, 2, 3], 6, 1);
        let mut store = Store::default();
        store.fit(&configuration, NodeId(0), &settings);
        let places =
            || (0..9u16).flat_map(|region| (0..9u8).map(move |table| (RegionId(region), TableId(table))));
        let is_here = |region: RegionId, table: TableId| {
            usize::from(table.0) < width && configuration.replica(region, NodeId(0)).is_some()
        };
        for (region, table) in places() {
            assert_eq!(store.table(region, table).is_some(), is_here(region, table), "{region:?} {table:?}");
        }
        // Each has a row of its own key, also after it was fitted again.
        let key = |region: RegionId, table: TableId| u64::from(region.0) << 8 | u64::from(table.0);
        let owner = Txid { node: NodeId(0), worker: 0, sequence: 1 };
        let named: Vec<_> = store.tables.iter().map(|(region, table, _)| (region, table)).collect();
        assert_eq!(named, places().filter(|&(region, table)| is_here(region, table)).collect::<Vec<_>>());
        for (region, table, rows) in store.tables.iter() {
            rows.lock(key(region, table), owner, Mode::Insert);
            rows.apply(key(region, table), 1, Some(b"here"), owner);
        }
        store.fit(&configuration, NodeId(0), &settings);
        for (region, table, rows) in store.tables.iter() {
            assert_eq!(rows.row(key(region, table)).version, 1);
            assert_eq!(rows.page(0, 100, usize::MAX).0.len(), 1, "{region:?} {table:?} has another's row");
        }
        // Another node's regions are other regions.
        store.fit(&configuration, NodeId(1), &settings);
        for (region, table) in places() {
            let both = is_here(region, table) && configuration.replica(region, NodeId(1)).is_some();
            let kept =
                store.table(region, table).is_some_and(|rows| rows.row(key(region, table)).version == 1);
            assert_eq!(kept, both, "{region:?} {table:?}");
        }
    }
}
