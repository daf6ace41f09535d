//! Is a recorded history strictly serialisable?
//!
//! As Elle does it (Kingsbury and Alvaro, VLDB 2020): the versions that transactions read and wrote give every dependency between them; with
//! the order of real time on top, the history is strictly serialisable if and only if there is no cycle. The verdict is reached twice, once
//! from our own version numbers, once without them, from lists of unique elements.

mod export;
mod graph;
mod history;
mod lists;
mod versions;

pub use export::Form;
pub use history::{Effect, History, Observation, Outcome, Transaction};

use graph::Graph;

/// What is wrong with a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly(pub String);

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Transactions that committed, or whose effects were seen.
    pub transactions: usize,
    /// Dependencies from versions.
    pub version_edges: usize,
    /// Dependencies from lists.
    pub list_edges: usize,
}

/// Checks a history by both witnesses.
pub fn check(history: &History) -> Result<Verdict, Anomaly> {
    let history = &history.with_deletions_named();
    // All deletions look alike: if several transactions of unknown outcome may have made a deletion that was
    // seen, each of them is tried as its writer.
    let mut choices: Vec<usize> = Vec::new();
    let mut first = None;
    for _ in 0..ALTERNATIVES_MAX {
        let mut counts = Vec::new();
        match check_with(history, &choices, &mut counts) {
            Ok(verdict) => return Ok(verdict),
            Err(anomaly) => first.get_or_insert(anomaly),
        };
        choices.resize(counts.len(), 0);
        while let Some(last) = choices.last_mut() {
            *last += 1;
            if *last < counts[choices.len() - 1] {
                break;
            }
            choices.pop();
        }
        if choices.is_empty() {
            break;
        }
    }
    Err(first.expect("one at least was tried"))
}

const ALTERNATIVES_MAX: usize = 1000;

/// `choices` says which of several possible writers is assumed, in the order in which the question arises;
/// `counts` receives how many there were each time.
fn check_with(history: &History, choices: &[usize], counts: &mut Vec<usize>) -> Result<Verdict, Anomaly> {
    let included = versions::included(history, choices, counts)?;
    let mut by_versions = Graph::new(history, &included);
    versions::add_edges(history, &included, &mut by_versions)?;
    by_versions.find_cycle(history, "versions")?;
    let mut by_lists = Graph::new(history, &included);
    lists::add_edges(history, &included, &mut by_lists)?;
    by_lists.find_cycle(history, "lists")?;
    Ok(Verdict {
        transactions: included.iter().filter(|&&is_in| is_in).count(),
        version_edges: by_versions.dependencies(),
        list_edges: by_lists.dependencies(),
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
