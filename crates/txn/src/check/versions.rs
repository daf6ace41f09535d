//! The first witness: versions. They order the writers of a key, and say what each reader saw.

use std::collections::BTreeMap;

use crate::id::{Key, TableId, Version};

use super::graph::{Edge, Graph};
use super::{Anomaly, History, Outcome};

type Cell = (TableId, Key, Version);

/// Which transactions have happened: those that committed, and those of unknown outcome whose writes were seen, or would have had to be.
pub(super) fn included(
    history: &History,
    choices: &[usize],
    counts: &mut Vec<usize>,
) -> Result<Vec<bool>, Anomaly> {
    let mut included: Vec<bool> =
        history.transactions.iter().map(|transaction| transaction.outcome == Outcome::Committed).collect();
    let mut writers = writers(history, &included)?;
    let mut doubtful: BTreeMap<Cell, Vec<usize>> = BTreeMap::new();
    for (index, transaction) in history.transactions.iter().enumerate() {
        if transaction.outcome == Outcome::Unknown {
            for write in &transaction.writes {
                doubtful.entry((write.table, write.key, write.version)).or_default().push(index);
            }
        }
    }
    // A version that was seen, or overwritten, has a writer, so that writer happened, and so did the writers
    // of the versions that it saw.
    let mut wanted: Vec<(Cell, Option<Vec<u8>>)> = Vec::new();
    let seen_by = |index: usize| {
        let transaction = &history.transactions[index];
        let cell = |read: &super::Observation| ((read.table, read.key, read.version), read.value.clone());
        transaction.reads.iter().map(cell).collect::<Vec<_>>()
    };
    (0..included.len()).filter(|&index| included[index]).for_each(|index| wanted.extend(seen_by(index)));
    while let Some((cell, value)) = wanted.pop() {
        if cell.2 == 0 || writers.contains_key(&cell) {
            continue;
        }
        let matches = |&&index: &&usize| {
            let mut writes = history.transactions[index].writes.iter();
            writes.any(|write| (write.table, write.key, write.version) == cell && write.value == value)
        };
        let candidates: Vec<usize> =
            doubtful.get(&cell).into_iter().flatten().filter(matches).copied().collect();
        let choice = if candidates.len() > 1 {
            counts.push(candidates.len());
            choices.get(counts.len() - 1).copied().unwrap_or(0)
        } else {
            0
        };
        let Some(&index) = candidates.get(choice) else {
            return Err(Anomaly(format!("{}/{}@{} was read, and nobody wrote it", cell.0.0, cell.1, cell.2)));
        };
        included[index] = true;
        for write in &history.transactions[index].writes {
            let cell = (write.table, write.key, write.version);
            if writers.insert(cell, index).is_some_and(|other| other != index) {
                return Err(twice(cell));
            }
        }
        wanted.extend(seen_by(index));
    }
    Ok(included)
}

fn writers(history: &History, included: &[bool]) -> Result<BTreeMap<Cell, usize>, Anomaly> {
    let mut writers = BTreeMap::new();
    for (index, transaction) in history.transactions.iter().enumerate().filter(|&(index, _)| included[index])
    {
        for write in &transaction.writes {
            let cell = (write.table, write.key, write.version);
            if writers.insert(cell, index).is_some() {
                return Err(twice(cell));
            }
        }
    }
    Ok(writers)
}

/// Who wrote the key after this version. Versions of a key that was deleted and reclaimed go on higher.
fn next_writer(writers: &BTreeMap<Cell, usize>, (table, key, version): Cell) -> Option<usize> {
    let later = (table, key, version + 1)..=(table, key, Version::MAX);
    writers.range(later).next().map(|(_, &writer)| writer)
}

fn twice(cell: Cell) -> Anomaly {
    Anomaly(format!("{}/{}@{} was written twice: an update is lost", cell.0.0, cell.1, cell.2))
}

pub(super) fn add_edges(history: &History, included: &[bool], graph: &mut Graph) -> Result<(), Anomaly> {
    let writers = writers(history, included)?;
    for (&(table, key, version), &writer) in &writers {
        if let Some(next) = next_writer(&writers, (table, key, version)) {
            graph.add(writer, next, Edge::WriteWrite);
        }
    }
    for (index, transaction) in history.transactions.iter().enumerate().filter(|&(index, _)| included[index])
    {
        for read in &transaction.reads {
            let cell = (read.table, read.key, read.version);
            let name = format!("{}/{}@{}", read.table.0, read.key, read.version);
            if let Some(&writer) = writers.get(&cell) {
                let wrote = history.transactions[writer].writes.iter();
                let mut values = wrote.filter(|write| (write.table, write.key) == (read.table, read.key));
                if !values.any(|write| write.value == read.value) {
                    let reader = transaction.describe();
                    return Err(Anomaly(format!(
                        "{name} was read with a value that was never written\n  {reader}"
                    )));
                }
                graph.add(writer, index, Edge::WriteRead);
            } else if read.version > 0 {
                return Err(Anomaly(format!("{name} was read, and nobody wrote it")));
            } else if read.value.is_some() {
                return Err(Anomaly(format!("{name} has a value before anybody wrote")));
            }
            if let Some(next) = next_writer(&writers, cell) {
                graph.add(index, next, Edge::ReadWrite);
            }
        }
    }
    Ok(())
}
