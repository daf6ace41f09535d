//! `cargo xtask nanopu`: the nanoPU paper's experiments on the simulator, and the table of docs/measurements/nanopu.md.
//!
//! Recordings of the prototype, which are not part of the repository, are played if HIGHWIRE_NANOPU_TRACES
//! names their folder.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::figures::commit;
use crate::measure::Program;
use crate::measurements;
use crate::shell::{root, target_dir};
use crate::table::Table;

/// Options of `cargo xtask nanopu`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask nanopu                          every experiment at the paper's scale: a quarter of an hour
  cargo xtask nanopu --only incast            one again; the others stay what they were
  cargo xtask nanopu --quick                  a minute or two
  cargo xtask nanopu --write-docs             and put the table into docs/measurements/nanopu.md
  cargo xtask nanopu --table --write-docs     put there what earlier runs have found
  cargo xtask nanopu --quick --write-docs     a table of a part of the points and requests, which says so")]
pub(crate) struct Args {
    /// Only this experiment; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Fewer points and requests.
    #[arg(long)]
    quick: bool,
    /// Run nothing, show what has been found.
    #[arg(long)]
    table: bool,
    /// Rewrite the table of docs/measurements/nanopu.md.
    #[arg(long)]
    write_docs: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let folder = target_dir().join(if args.quick { "nanopu-quick" } else { "nanopu" });
    let mut is_inside = true;
    if !args.table {
        println!("building the program (release) …");
        let program = Program::build()?;
        let mut line = program.line("nanopu figures").arg("--out").arg(&folder);
        line = line.arg("--programs").arg(root().join("riscv"));
        if args.quick {
            line = line.arg("--quick");
        }
        is_inside = args.only.iter().fold(line, |line, name| line.arg("--only").arg(name)).run()?;
    }
    let (table, summary) = results(&folder.join("result.json"))?;
    let scale =
        if args.quick { "a part of the points and requests (`--quick`)" } else { "the paper's scale" };
    let summary = format!("{summary}, at {scale}");
    println!("{summary}; report: {}", folder.join("report.html").display());
    if args.write_docs {
        let text = format!(
            "{summary}; by the program of commit {}.\n\n{}",
            commit()?,
            table.to_folded_markdown("Claim, published, here")
        );
        measurements::NANOPU_EXPERIMENTS.write(&text)?;
    }
    Ok(if is_inside { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn results(path: &Path) -> Result<(Table, String)> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let document: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let mut table = Table::new(&["experiment · claim", "paper [band]", "here", "inside?"]);
    let (mut inside, mut judged, mut seconds) = (0, 0, 0.0);
    for experiment in document["experiments"].as_array().context("a result has experiments")? {
        seconds += experiment["seconds"].as_f64().unwrap_or(0.0);
        for row in experiment["rows"].as_array().context("an experiment has rows")? {
            let text = |name: &str| row[name].as_str().unwrap_or_default().replace('|', "\\|");
            let verdict = row["inside"].as_bool();
            judged += usize::from(verdict.is_some());
            inside += usize::from(verdict == Some(true));
            let verdict = verdict.map_or("", |inside| if inside { "yes" } else { "**no**" });
            let claim = format!("{} · {}", text("experiment"), text("claim"));
            table.row([claim, text("paper"), text("here"), verdict.to_string()]);
        }
    }
    let minutes = seconds / 60.0;
    Ok((table, format!("{inside} of {judged} figures inside their bands; simulated in {minutes:.0} minutes")))
}
