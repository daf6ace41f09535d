//! The outcome of the scenarios, in a form that outlives the process that ran them.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::test::Tally;

/// Counts and names, one line each when stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) passed: usize,
    /// The names of the scenarios that failed.
    pub(super) failed: Vec<String>,
    /// The scenarios that did not run, and why.
    pub(super) skipped: Vec<(String, String)>,
    /// The scenarios that passed only at a second attempt. They are printed, so that a rare failure is seen.
    pub(super) repeated: Vec<String>,
}

impl Outcome {
    /// Nothing ran, for this reason.
    pub(super) fn nothing(reason: &str) -> Outcome {
        Outcome { skipped: vec![("interop".into(), reason.into())], ..Outcome::default() }
    }

    pub(super) fn store(&self, path: &Path) -> Result<()> {
        let failed = self.failed.iter().map(|name| format!("failed\t{name}\n"));
        let skipped = self.skipped.iter().map(|(name, reason)| format!("skipped\t{name}\t{reason}\n"));
        let repeated = self.repeated.iter().map(|name| format!("repeated\t{name}\n"));
        let names: String = failed.chain(skipped).chain(repeated).collect();
        let text = format!("passed\t{}\n{names}", self.passed);
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads what [`store`](Outcome::store) wrote.
    ///
    /// # Errors
    /// There is none: the run ended before it had an outcome.
    pub(super) fn load(path: &Path) -> Result<Outcome> {
        let text = fs::read_to_string(path).context("the run ended before it had an outcome")?;
        let mut outcome = Outcome::default();
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["passed", count] => outcome.passed = count.parse().context("a broken outcome")?,
                ["failed", name] => outcome.failed.push(name.into()),
                ["repeated", name] => outcome.repeated.push(name.into()),
                ["skipped", name, reason] => outcome.skipped.push((name.into(), reason.into())),
                _ => {}
            }
        }
        Ok(outcome)
    }

    /// Removes an earlier run's outcome.
    pub(super) fn forget(path: &Path) -> Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn tally(&self) -> Tally {
        let tally = Tally::counts(self.passed, self.failed.len());
        self.skipped.iter().fold(tally, |tally, (name, reason)| tally.with_skip(name, reason))
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "interop: {} passed, {} failed, {} skipped",
            self.passed,
            self.failed.len(),
            self.skipped.len()
        )?;
        for name in &self.failed {
            write!(f, "\n  FAILED  {name}: cargo xtask interop --only '{name}'")?;
        }
        for (name, reason) in &self.skipped {
            write!(f, "\n  skipped {name}: {reason}")?;
        }
        for name in &self.repeated {
            write!(f, "\n  twice   {name}: the first attempt failed")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn an_outcome_survives_its_file() {
        let path = std::env::temp_dir().join(format!("highwire-outcome-{}", std::process::id()));
        let outcome = Outcome {
            passed: 3,
            failed: vec!["rc send".into()],
            skipped: vec![("uc write".into(), "no UC here".into())],
            repeated: vec!["program rping".into()],
        };
        outcome.store(&path).expect("a writable temporary folder");
        assert_eq!(Outcome::load(&path).expect("just written"), outcome);
        Outcome::forget(&path).expect("ours to remove");
        assert!(Outcome::load(&path).is_err());
    }
}
