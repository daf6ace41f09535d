//! The verdicts of all plans, from the files that the program leaves.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::table::Table;

/// The verdicts of all plans.
pub(super) struct Results {
    /// Figure, claim, paper, here with its interval, seeds, inside or not.
    pub(super) table: Table,
    /// The claim of the last row: those of the next measures repeat it.
    claim: String,
    inside: usize,
    outside: usize,
    all: usize,
    not_run: Vec<String>,
    in_part: Vec<String>,
    /// Fewest and most of a verdict.
    seeds: (u64, u64),
    /// Runs that have no outcome.
    failures: usize,
}

impl Results {
    fn new() -> Self {
        let columns = ["figure · claim", "measure", "paper", "here", "seeds", "inside the band?"];
        Self {
            table: Table::new(&columns),
            claim: String::new(),
            inside: 0,
            outside: 0,
            all: 0,
            not_run: Vec::new(),
            in_part: Vec::new(),
            seeds: (u64::MAX, 0),
            failures: 0,
        }
    }

    pub(super) fn read(folder: &Path, plans: &[String]) -> Result<Self> {
        let mut results = Self::new();
        for plan in plans {
            match document(folder, plan)? {
                Some(document) if is_whole(&document) => results.add(&document)?,
                Some(_) => {
                    results.table.row([plan, "", "", "in part", "", "–"].map(String::from));
                    results.in_part.push(plan.clone());
                }
                None => {
                    results.table.row([plan, "", "", "not run", "0", "–"].map(String::from));
                    results.not_run.push(plan.clone());
                }
            }
        }
        Ok(results)
    }

    /// Whether nothing has been played.
    pub(super) fn is_empty(&self) -> bool {
        self.all == 0
    }

    fn add(&mut self, document: &Value) -> Result<()> {
        self.failures += document["failures"].as_array().map_or(0, Vec::len);
        for verdict in document["verdicts"].as_array().context("a result has verdicts")? {
            let text = |name: &str| verdict[name].as_str().unwrap_or_default().to_string();
            let figure = document["figure"].as_str().unwrap_or_default().trim_start_matches("IRN ");
            let seeds = verdict["seeds"].as_u64().context("a verdict says how many seeds it has")?;
            self.seeds = (self.seeds.0.min(seeds), self.seeds.1.max(seeds));
            let standing = text("standing");
            self.all += 1;
            self.inside += usize::from(standing == "inside");
            self.outside += usize::from(standing == "outside");
            let claim = format!("{figure} · {}", text("claim"));
            let is_same = claim == self.claim;
            let first = if is_same { format!("{figure} · ″") } else { claim.clone() };
            self.claim = claim;
            let here = text("shown") + &text("interval");
            self.table.row([first, text("measure"), text("paper"), here, seeds.to_string(), standing]);
        }
        Ok(())
    }

    pub(super) fn summary(&self) -> String {
        if self.is_empty() {
            return "nothing is played yet".into();
        }
        let seeds = match self.seeds {
            (low, high) if low == high => low.to_string(),
            (low, high) => format!("{low} to {high}"),
        };
        let undecided = self.all - self.inside - self.outside;
        let mut text = format!(
            "{} of {} inside the paper's band, {} outside, {undecided} undecided, {seeds} seeds each",
            self.inside, self.all, self.outside
        );
        if self.failures > 0 {
            text += &format!("; {} runs failed", self.failures);
        }
        if !self.in_part.is_empty() {
            text += &format!("; in part: {}", self.in_part.join(", "));
        }
        if !self.not_run.is_empty() {
            text += &format!("; not run: {}", self.not_run.join(", "));
        }
        text
    }
}

/// Whether each point of the plan has been played: a verdict on some of them is none on the claim. Plans share runs, so a plan may have
/// some that nobody asked for.
fn is_whole(document: &Value) -> bool {
    document["missing"].as_u64().unwrap_or(0) == 0
}

/// What a plan has left; none if it has not been played.
pub(super) fn document(folder: &Path, plan: &str) -> Result<Option<Value>> {
    let path = folder.join(plan).join("result.json");
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
    serde_json::from_str(&text).map(Some).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_what_is_undecided() {
        let mut results = Results::new();
        results.not_run.push("fig02".into());
        let verdict = |standing: &str| {
            serde_json::json!({ "claim": "c", "measure": "m", "paper": "1 to 2", "shown": "1.5×",
                "interval": " (1.40× to 1.60×)", "seeds": 10, "standing": standing })
        };
        let verdicts = ["inside", "undecided", "outside", "inside", "undecided"].map(verdict);
        let document = serde_json::json!({ "figure": "IRN Figure 1", "seeds": 10, "verdicts": verdicts });
        results.add(&document).expect("it is a result");
        let expected =
            "2 of 5 inside the paper's band, 1 outside, 2 undecided, 10 seeds each; not run: fig02";
        assert_eq!(results.summary(), expected);
        let text = results.table.to_markdown();
        assert!(text.contains("1.5× (1.40× to 1.60×) | 10 |") && text.contains("undecided"), "{text}");
        assert_eq!(text.matches("| Figure 1 · c |").count(), 1, "a claim stands once: {text}");
        assert_eq!(text.matches("| Figure 1 · ″ |").count(), 4, "{text}");
    }

    #[test]
    fn rows_say_how_many_seeds_they_have_and_the_summary_counts_failures() {
        let mut results = Results::new();
        let verdict = |seeds: u64| {
            serde_json::json!({ "claim": "c", "measure": "m", "paper": "p", "shown": "1.5×",
                "interval": "", "seeds": seeds, "standing": "undecided" })
        };
        // A campaign that was stopped: the plan asks for ten seeds, and fewer have been played.
        let document = serde_json::json!({ "figure": "f", "seeds": 10, "failures": ["a run"],
            "verdicts": [verdict(3), verdict(7)] });
        results.add(&document).expect("it is a result");
        let expected =
            "0 of 2 inside the paper's band, 0 outside, 2 undecided, 3 to 7 seeds each; 1 runs failed";
        assert_eq!(results.summary(), expected);
        assert!(results.table.to_markdown().contains("| 1.5× | 3 |"));
    }

    #[test]
    fn a_plan_that_lacks_points_has_no_verdict() {
        let folder = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
        let verdict = serde_json::json!({ "claim": "c", "measure": "m", "paper": "p", "shown": "1.5×",
            "interval": "", "seeds": 10, "standing": "inside" });
        for (plan, missing) in [("whole", 0), ("begun", 2)] {
            let document = serde_json::json!({ "figure": plan, "missing": missing, "verdicts": [verdict] });
            std::fs::create_dir_all(folder.join(plan)).expect("a folder for a test");
            std::fs::write(folder.join(plan).join("result.json"), document.to_string()).expect("a file");
        }
        let plans = ["whole", "begun", "waiting"].map(String::from);
        let results = Results::read(&folder, &plans).expect("they are results");
        std::fs::remove_dir_all(&folder).expect("it is there");
        let expected = "1 of 1 inside the paper's band, 0 outside, 0 undecided, 10 seeds each; in part: begun; not run: waiting";
        assert_eq!(results.summary(), expected);
    }
}
