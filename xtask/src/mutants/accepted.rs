//! Mutants that no test can notice, each with its reason.
//!
//! A line is `file: what is replaced -- reason`, without the place in the file, which moves with every change.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The list in `checkers/mutants.txt`.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    mutants: Vec<String>,
}

impl Accepted {
    /// Reads the list.
    ///
    /// # Errors
    /// The file cannot be read, or a line has no reason.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut mutants = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once(" -- ") {
                Some((mutant, reason)) if !reason.trim().is_empty() => mutants.push(mutant.trim().into()),
                _ => bail!("line {}: a mutant needs a reason behind ` -- `", number + 1),
            }
        }
        Ok(Self { mutants })
    }

    /// Whether a mutant, as cargo-mutants names it, stands in the list.
    pub(super) fn has(&self, mutant: &str) -> bool {
        let name = without_place(mutant);
        self.mutants.contains(&name)
    }
}

/// `crates/wire/src/bth.rs:12:5: replace …` without its line and column.
fn without_place(mutant: &str) -> String {
    let Some((place, what)) = mutant.split_once(": ") else { return mutant.into() };
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_found_wherever_its_line_has_gone() {
        let list = Accepted::parse("# words\n\ncrates/a.rs: replace + with - in f -- both are zero\n")
            .expect("read");
        assert!(list.has("crates/a.rs:12:5: replace + with - in f"));
        assert!(list.has("crates/a.rs:99:1: replace + with - in f"));
        assert!(!list.has("crates/a.rs:12:5: replace + with * in f"));
        assert!(!list.has("crates/b.rs:12:5: replace + with - in f"));
    }

    #[test]
    fn a_line_without_a_reason_is_refused() {
        assert!(Accepted::parse("crates/a.rs: replace + with - in f\n").is_err());
        assert!(Accepted::parse("crates/a.rs: replace + with - in f --  \n").is_err());
    }
}
