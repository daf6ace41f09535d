//! Parts of a campaign: played anywhere, joined to the same bytes as if they had been played here.
//!
//! A part is one JSON file with the plan's text, files and scale, the shard's number, and the measures by the
//! runs' places, so that joining needs nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Played;
use crate::plan::{Origin, Plan, PlanError, Run};
use crate::report::Measures;

/// The n-th of so many equal parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which, counted from 1.
    number: usize,
    /// Of how many.
    of: usize,
}

impl Shard {
    /// The whole campaign.
    pub const WHOLE: Shard = Shard { number: 1, of: 1 };

    /// Whether a run belongs to the shard. Neighbouring runs, which take about the same time, go to different
    /// shards.
    pub fn has(self, run: usize) -> bool {
        run % self.of == self.number - 1
    }

    /// Whether it is the whole campaign.
    pub fn is_whole(self) -> bool {
        self.of == 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let wrong = || "write it as 3/16: the third of sixteen parts".to_string();
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let (number, of) = (number.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
        if (1..=of).contains(&number) { Ok(Shard { number, of }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// The measures of one shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Part {
    plan: Origin,
    seeds: u32,
    shard: (usize, usize),
    measures: BTreeMap<usize, Measures>,
    /// Why runs have no outcome, by the run's place.
    #[serde(default)]
    failures: BTreeMap<usize, String>,
}

/// All runs of a plan, joined.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The plan, as the parts had it.
    pub plan: Plan,
    /// The runs that have an outcome, in the plan's order.
    pub runs: Vec<Run>,
    /// Their measures.
    pub measures: Vec<Measures>,
    /// Why the others have none.
    pub failures: Vec<String>,
}

/// Why parts cannot be joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MergeError {
    /// There are no parts.
    Nothing,
    /// The plan in a part is wrong.
    Plan(PlanError),
    /// Parts belong to different plans, versions, scales or numbers of seeds.
    OtherPlan {
        /// The plans that they name.
        files: [String; 2],
    },
    /// Runs that no part has.
    Missing {
        /// How many.
        runs: usize,
        /// A shard that contains some of them.
        shard: String,
    },
    /// Two parts have the same run with different results.
    Differ {
        /// The run's place.
        run: usize,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::Nothing => f.write_str("there are no parts"),
            MergeError::Plan(error) => write!(f, "{error}"),
            MergeError::OtherPlan { files: [a, b] } => {
                write!(
                    f,
                    "parts are of different plans, or of different versions, scales or seeds of one: {a}, {b}"
                )
            }
            MergeError::Missing { runs, shard } => {
                write!(f, "{runs} runs are missing; `--shard {shard}` has some of them")
            }
            MergeError::Differ { run } => {
                write!(f, "two parts have different results of run {run}: they come from different programs")
            }
        }
    }
}

impl std::error::Error for MergeError {}

impl Part {
    /// The part of `plan` that a shard has played.
    pub fn new(plan: &Plan, shard: Shard, played: Played) -> Part {
        let runs = played.runs.iter().map(|run| run.index);
        let measures = runs.zip(played.measures).collect();
        let failures = played.failures.iter().map(|(run, error)| (*run, error.to_string())).collect();
        let shard = (shard.number, shard.of);
        Part { plan: plan.source.clone(), seeds: plan.seeds, shard, measures, failures }
    }

    /// As JSON, which keeps every bit.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("measures are finite numbers and text")
    }

    /// From JSON.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn from_json(text: &str) -> Result<Part, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// Joins parts to all runs of their plan.
///
/// # Errors
/// If they are of different plans, contradict each other, or leave something out.
pub fn merge(parts: &[Part]) -> Result<Merged, MergeError> {
    let first = parts.first().ok_or(MergeError::Nothing)?;
    let mut plan = Plan::again(&first.plan).map_err(MergeError::Plan)?;
    plan.seeds = first.seeds;
    let mut all: BTreeMap<usize, Result<&Measures, &str>> = BTreeMap::new();
    for part in parts {
        if (&part.plan, part.seeds) != (&first.plan, first.seeds) {
            let files = [&first.plan, &part.plan].map(|origin| origin.file.clone());
            return Err(MergeError::OtherPlan { files });
        }
        let played = part.measures.iter().map(|(&run, measures)| (run, Ok(measures)));
        let failed = part.failures.iter().map(|(&run, problem)| (run, Err(problem.as_str())));
        for (run, result) in played.chain(failed) {
            if all.insert(run, result).is_some_and(|other| other != result) {
                return Err(MergeError::Differ { run });
            }
        }
    }
    let mut runs = plan.runs();
    let count = runs.len();
    if let Some(missing) = (0..count).find(|run| !all.contains_key(run)) {
        let of = parts.iter().map(|part| part.shard.1).max().unwrap_or(1);
        let shard = format!("{}/{of}", missing % of + 1);
        return Err(MergeError::Missing { runs: count - all.len(), shard });
    }
    runs.retain(|run| all[&run.index].is_ok());
    let measures = all.values().filter_map(|result| result.ok().cloned()).collect();
    let failures = all.values().filter_map(|result| Some(result.err()?.to_owned())).collect();
    Ok(Merged { plan, runs, measures, failures })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_read_and_divide_the_runs() {
        let shards: Vec<Shard> = (1..=3).map(|n| format!("{n}/3").parse().expect("right")).collect();
        assert!((0..100).all(|run| shards.iter().filter(|shard| shard.has(run)).count() == 1));
        for wrong in ["0/3", "4/3", "3", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
