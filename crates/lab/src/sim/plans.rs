//! Finds plans: files, or by name those that come with the program.

use std::path::Path;

use anyhow::Result;
use highwire_sim::plan::{Plan, Scale, Shipped, shipped};

use crate::failure::usage;

/// Reads the plan in a file, or the one that comes with the program under this path or name.
///
/// # Errors
/// A mistake of the user's: what is wrong with the plan, or that there is none.
pub(super) fn load(word: &str, scale: Scale) -> Result<Plan> {
    let path = Path::new(word);
    if path.is_file() {
        let text = std::fs::read_to_string(path).map_err(|error| usage(format!("{word}: {error}")))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let beside = |name: &str| {
            std::fs::read_to_string(folder.join(name)).map_err(|error| format!("cannot read {name}: {error}"))
        };
        return Plan::read(word, &text, scale, &beside).map_err(|error| usage(error.to_string()));
    }
    let found = shipped().iter().find(|plan| is_meant(plan, word));
    let Some(found) = found else {
        let names: Vec<&str> = shipped().iter().map(Shipped::name).collect();
        return Err(usage(format!(
            "there is no file {word}, and no experiment of that name comes with the program; there are {}",
            names.join(", ")
        )));
    };
    let nothing = |name: &str| Err(format!("there is no file {name}"));
    Plan::read(found.path, found.text, scale, &nothing).map_err(|error| usage(error.to_string()))
}

/// The same, and looks what its values mean together: mistakes are errors, oddities are warnings.
///
/// # Errors
/// As [`load`], and all that is wrong with the plan.
pub(super) fn load_reviewed(word: &str, scale: Scale) -> Result<Plan> {
    let plan = load(word, scale)?;
    let mut wrong = Vec::new();
    for finding in plan.review() {
        if finding.is_error {
            wrong.push(finding.about.to_string());
        } else {
            eprintln!("warning: {}", finding.about);
        }
    }
    if wrong.is_empty() { Ok(plan) } else { Err(usage(wrong.join("\nerror: "))) }
}

fn is_meant(plan: &Shipped, word: &str) -> bool {
    plan.path == word || plan.name() == word || plan.path.strip_prefix("experiments/") == Some(word)
}
