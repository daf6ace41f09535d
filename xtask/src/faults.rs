//! `cargo xtask faults`: real faults to real processes of the store, and how long each was felt.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::machine;
use crate::measure::Program;
use crate::measurements;
use crate::packages;
use crate::shell::Log;
use crate::table::Table;

/// What the program needs: etcd, and the program that makes networks.
const PACKAGES: &[&str] = &["etcd-server", "iproute2"];

/// Options of `cargo xtask faults`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask faults                 print the tables: under four minutes
  cargo xtask faults --write-docs    and put them into docs/measurements/store.md")]
pub(crate) struct Args {
    /// Rewrite the tables of docs/measurements/store.md.
    #[arg(long)]
    write_docs: bool,
    /// Play with this program instead of building one.
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

/// Plays every fault at both levels.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("faults")?;
    if let Err(missing) = packages::ensure(PACKAGES, &log)? {
        bail!(missing.0);
    }
    let program = args.program.clone().map_or_else(Program::build, |path| Ok(Program::at(path)))?;
    let document = program.json("store faults")?;
    let levels = document.as_array().context("one document for each level")?;
    let mut section = machine()?;
    for level in levels {
        let (text, table) = shown(level)?;
        println!("{text}\n\n{}", table.to_text());
        section.push_str(&format!("\n{text}\n\n{}", table.to_markdown()));
    }
    if args.write_docs {
        measurements::FAULTS.write(&section)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A level in a sentence, and its table.
fn shown(level: &Value) -> Result<(String, Table)> {
    let mut table = Table::new(&[
        "milliseconds from the fault until",
        "suspected",
        "configured",
        "unlocked",
        "full speed",
        "replicated",
        "back",
        "pause",
        "commits/s before",
        "after",
    ]);
    for episode in level["episodes"].as_array().context("episodes")? {
        let mut row = vec![episode["name"].as_str().context("a name")?.to_string()];
        let keys = ["suspected_ms", "configured_ms", "unlocked_ms", "full_speed_ms", "replicated_ms"];
        for key in keys.into_iter().chain(["back_ms", "pause_ms", "rate_before", "rate_after"]) {
            row.push(episode[key].as_f64().map_or_else(|| "–".into(), |value| format!("{value:.0}")));
        }
        table.row(row);
    }
    let link = match level["namespaces"].as_bool() {
        Some(true) => "nodes in namespaces of the network, over UDP",
        _ => "nodes without namespaces, through shared memory",
    };
    let mut text = format!(
        "In f + 1 {}, a lease of {} ms, {link}. {} commits were acknowledged and are there; {} had an unknown outcome.",
        if level["level"] == "disk" { "journals" } else { "memories" },
        level["lease_ms"],
        level["acknowledged"],
        level["unknown"],
    );
    for skipped in level["skipped"].as_array().into_iter().flatten() {
        let word = |key: &str| skipped[key].as_str().unwrap_or("?").to_string();
        text.push_str(&format!(" Skipped: {}: {}.", word("fault"), word("reason")));
    }
    Ok((text, table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_did_not_happen_is_a_dash() {
        let level = json!({
            "level": "disk", "lease_ms": 300, "namespaces": true, "acknowledged": 7, "unknown": 1,
            "episodes": [{ "name": "etcd is away", "suspected_ms": null, "unlocked_ms": 1.6, "pause_ms": 12.4 }],
            "skipped": [{ "fault": "kill", "reason": "why not" }],
        });
        let (text, table) = shown(&level).expect("a level");
        assert_eq!(table.rows()[0][..4], ["etcd is away", "–", "–", "2"]);
        assert!(text.contains("f + 1 journals") && text.ends_with("Skipped: kill: why not."), "{text}");
    }
}
