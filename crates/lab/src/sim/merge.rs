//! `highwire sim merge`: joins parts, to the same bytes as one run would have written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use highwire_sim::campaign::{Part, merge};

use super::output;
use crate::console::Console;
use crate::failure::usage;

/// Options of `highwire sim merge`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  highwire sim merge results/")]
pub(super) struct Args {
    /// The folder that was given to `run --out`.
    folder: PathBuf,
    /// Print the result as JSON, a document per plan.
    #[arg(long)]
    json: bool,
}

/// Joins the parts of every plan in the folder.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut console = Console::new();
    let mut merged_any = false;
    let mut failures = Vec::new();
    for folder in entries(&args.folder)? {
        let parts = parts(&folder)?;
        if parts.is_empty() {
            continue;
        }
        merged_any = true;
        let merged = merge(&parts).with_context(|| folder.display().to_string())?;
        let (runs, failed) = (&merged.runs, &merged.failures);
        let written = output::write_results(&args.folder, &merged.plan, runs, &merged.measures, failed)?;
        failures.extend(failed.iter().cloned());
        if args.json {
            console.json_line(&output::document(&merged.plan, runs, &merged.measures, failed))?;
        } else {
            output::show(&merged.plan, runs, &merged.measures, &written, &mut console)?;
        }
    }
    if !merged_any {
        return Err(usage(format!(
            "there are no parts in {}: `highwire sim run PLAN --shard 1/2 --out {0}` would write one",
            args.folder.display()
        )));
    }
    console.finish()?;
    if failures.is_empty() { Ok(ExitCode::SUCCESS) } else { bail!(failures.join("\nerror: ")) }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(folder).map_err(|error| usage(format!("{}: {error}", folder.display())))?;
    let mut paths = read.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn parts(folder: &Path) -> Result<Vec<Part>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let is_part = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("part-") && name.ends_with(".json")
    };
    let mut parts = Vec::new();
    for path in entries(folder)?.into_iter().filter(is_part) {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let part = Part::from_json(&text);
        parts.push(part.map_err(|error| anyhow::anyhow!("{} is no part: {error}", path.display()))?);
    }
    Ok(parts)
}
