//! The second witness, which trusts no version number of ours: lists to which transactions append unique elements. The longest list that was
//! read is the order of its writers, and every other one must be a beginning of it.

use std::collections::BTreeMap;

use crate::id::{Key, TableId};

use super::graph::{Edge, Graph};
use super::{Anomaly, History, Observation};

/// A list, and the transaction that read it.
type Reading = (usize, Vec<u64>);

pub(super) fn add_edges(history: &History, included: &[bool], graph: &mut Graph) -> Result<(), Anomaly> {
    let mut reads: BTreeMap<(TableId, Key), Vec<Reading>> = BTreeMap::new();
    let mut appends: BTreeMap<(TableId, Key, u64), usize> = BTreeMap::new();
    for (index, transaction) in history.transactions.iter().enumerate().filter(|&(index, _)| included[index])
    {
        for read in transaction.reads.iter().filter(|read| history.lists.contains(&read.table)) {
            reads.entry((read.table, read.key)).or_default().push((index, elements(read)));
        }
        for write in transaction.writes.iter().filter(|write| history.lists.contains(&write.table)) {
            if let Some(&last) = elements(write).last()
                && appends.insert((write.table, write.key, last), index).is_some()
            {
                return Err(Anomaly(format!(
                    "{}/{}: element {last:x} was appended twice",
                    write.table.0, write.key
                )));
            }
        }
    }
    for ((table, key), reads) in &reads {
        let name = format!("{}/{key}", table.0);
        let longest =
            reads.iter().map(|read| &read.1).max_by_key(|list| list.len()).cloned().unwrap_or_default();
        let mut writers = Vec::with_capacity(longest.len());
        for element in &longest {
            let Some(&writer) = appends.get(&(*table, *key, *element)) else {
                return Err(Anomaly(format!("{name} has the element {element:x}, which nobody appended")));
            };
            writers.push(writer);
        }
        for pair in writers.windows(2) {
            graph.add(pair[0], pair[1], Edge::WriteWrite);
        }
        for (index, list) in reads {
            if !longest.starts_with(list) {
                let reader = history.transactions[*index].describe();
                return Err(Anomaly(format!(
                    "{name}: two lists of which neither begins with the other\n  {reader}"
                )));
            }
            if let Some(last) = list.len().checked_sub(1) {
                graph.add(writers[last], *index, Edge::WriteRead);
            }
            if let Some(&next) = writers.get(list.len()) {
                graph.add(*index, next, Edge::ReadWrite);
            }
        }
    }
    Ok(())
}

pub(super) fn elements(observation: &Observation) -> Vec<u64> {
    let bytes = observation.value.as_deref().unwrap_or_default();
    bytes
        .chunks(8)
        .map(|chunk| chunk.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
        .collect()
}
