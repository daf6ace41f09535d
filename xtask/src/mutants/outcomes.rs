//! What cargo-mutants wrote about a run, as far as it is counted.

use anyhow::{Context, Result};
use serde_json::Value;

/// The outcomes of a crate's mutants, of one shard or of several.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// A test failed or did not end.
    pub(super) noticed: usize,
    /// Names, as cargo-mutants prints them.
    pub(super) survived: Vec<String>,
    /// The compiler refused them.
    pub(super) unviable: usize,
}

impl Outcomes {
    /// Adds a file `outcomes.json`.
    ///
    /// # Errors
    /// The file is of another form, or a run without a mutant failed, so that its outcomes mean nothing.
    pub(super) fn add(&mut self, text: &str) -> Result<()> {
        let whole: Value = serde_json::from_str(text).context("not JSON")?;
        let outcomes = whole["outcomes"].as_array().context("no list of outcomes")?;
        for outcome in outcomes {
            let summary = outcome["summary"].as_str().context("an outcome without a summary")?;
            let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else {
                anyhow::ensure!(summary == "Success", "the tests fail without a mutant: {summary}");
                continue;
            };
            match summary {
                "CaughtMutant" | "Timeout" => self.noticed += 1,
                "MissedMutant" => self.survived.push(name.into()),
                "Unviable" => self.unviable += 1,
                other => anyhow::bail!("an unknown summary: {other}"),
            }
        }
        Ok(())
    }

    pub(super) fn viable(&self) -> usize {
        self.noticed + self.survived.len()
    }

    /// Noticed mutants in percent of those that a test could notice; `None` without any.
    pub(super) fn share(&self, accepted: usize) -> Option<f64> {
        let whole = self.viable() - accepted;
        (whole > 0).then(|| 100.0 * self.noticed as f64 / whole as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mutants: &[(&str, &str)]) -> String {
        let mut outcomes = vec![r#"{"scenario":"Baseline","summary":"Success"}"#.to_string()];
        let one = |&(name, summary): &(&str, &str)| {
            format!(r#"{{"scenario":{{"Mutant":{{"name":"{name}"}}}},"summary":"{summary}"}}"#)
        };
        outcomes.extend(mutants.iter().map(one));
        format!(r#"{{"outcomes":[{}]}}"#, outcomes.join(","))
    }

    #[test]
    fn shards_add_up_and_what_does_not_compile_is_left_out() {
        let mut outcomes = Outcomes::default();
        outcomes.add(&run(&[("a", "CaughtMutant"), ("b", "MissedMutant")])).expect("read");
        outcomes.add(&run(&[("c", "Timeout"), ("d", "Unviable"), ("e", "MissedMutant")])).expect("read");
        assert_eq!(outcomes, Outcomes { noticed: 2, survived: vec!["b".into(), "e".into()], unviable: 1 });
        assert_eq!(
            (outcomes.viable(), outcomes.share(0), outcomes.share(1)),
            (4, Some(50.0), Some(200.0 / 3.0))
        );
        assert_eq!(Outcomes::default().share(0), None);
    }

    #[test]
    fn a_baseline_that_fails_is_an_error() {
        let text = r#"{"outcomes":[{"scenario":"Baseline","summary":"Failure"}]}"#;
        assert!(Outcomes::default().add(text).is_err());
        assert!(Outcomes::default().add("{}").is_err());
        assert!(Outcomes::default().add(&run(&[("a", "Dreamt")])).is_err());
    }
}
