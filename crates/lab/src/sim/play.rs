//! `highwire sim play`: one scenario, and what became of each flow.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use highwire_sim::plan::Scale;
use highwire_sim::report::{self, Measures, Metric};
use highwire_sim::{RunError, Scenario, Tick, run_on};
use serde_json::{Map, Value, json};

use super::flows::Form;
use super::plans;
use crate::console::{Console, Tone};
use crate::failure::usage;
use crate::progress::Progress;

/// Options of `highwire sim play`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire sim play scenario.json --flows out.parquet
  highwire sim play fig01 --scheme IRN --seed 3 --flows out.csv
  highwire sim play fig01 --scheme IRN --scenario scenario.json    the run as a file, with every flow, to be changed")]
pub(super) struct Args {
    /// A scenario in JSON; or a plan, by its file or its name in `highwire sim list`, of which one run is played.
    file: String,
    /// Of a plan: the scheme, by its name; the first if not given.
    #[arg(long, value_name = "NAME")]
    scheme: Option<String>,
    /// Of a plan: the point, by its name in the column `point` of `runs.csv`; the first if not given.
    #[arg(long, value_name = "NAME")]
    point: Option<String>,
    /// Of a plan: the seed; the plan's first if not given.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Of a plan: at the paper's scale.
    #[arg(long)]
    full: bool,
    /// Write a row per flow: .csv, .parquet or .jsonl.
    #[arg(long, value_name = "FILE")]
    flows: Option<PathBuf>,
    /// Write everything that is known afterwards: flows, groups, counters, JSON.
    #[arg(long, value_name = "FILE")]
    outcome: Option<PathBuf>,
    /// Write the scenario, with every flow, and play nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flows", "outcome", "json"])]
    scenario: Option<PathBuf>,
    /// How many threads share the network. The outcome does not depend on it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Plays it.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let form = args.flows.as_deref().map(Form::of).transpose()?;
    let scenario = load(args)?;
    let mut console = Console::new();
    if let Some(path) = &args.scenario {
        write_json(path, &scenario)?;
        console.line(format!("{}: {} flows", path.display(), scenario.flows.len()))?;
        console.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut progress = Progress::new("simulating", scenario.flows.len() as u64);
    let mut watch = |tick: &Tick| {
        progress.at(tick.received, Instant::now());
        true
    };
    let outcome = run_on(&scenario, usize::from(args.threads), &mut watch);
    drop(progress);
    let outcome = outcome.map_err(|error| match error {
        RunError::Scenario(error) => usage(format!("{}: {error}", args.file)),
        error => anyhow!("{}: {error}", args.file),
    })?;
    if let (Some(path), Some(form)) = (&args.flows, form) {
        form.write(path, &report::flow_columns(&scenario, &outcome))?;
    }
    if let Some(path) = &args.outcome {
        write_json(path, &outcome)?;
    }
    show(&Measures::of(&scenario, &outcome), args.json, &mut console)?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The scenario in the file, or a plan's run.
fn load(args: &Args) -> Result<Scenario> {
    let of_plan = args.scheme.is_some() || args.point.is_some() || args.seed.is_some() || args.full;
    if Path::new(&args.file).extension().is_some_and(|ending| ending == "json") {
        if of_plan {
            return Err(usage("a scenario is one run: --scheme, --point, --seed and --full are for plans"));
        }
        let text =
            std::fs::read_to_string(&args.file).map_err(|error| usage(format!("{}: {error}", args.file)))?;
        return serde_json::from_str(&text).map_err(|error| usage(format!("{}: {error}", args.file)));
    }
    let scale = if args.full { Scale::Full } else { Scale::Small };
    let plan = plans::load_reviewed(&args.file, scale)?;
    let run = plan.find_run(args.scheme.as_deref(), args.point.as_deref(), args.seed).map_err(usage)?;
    run.scenario(&plan).map_err(|error| usage(format!("{}: {error}", args.file)))
}

fn write_json(path: &Path, what: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(what)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Every measure that has a value.
fn show(measures: &Measures, is_json: bool, console: &mut Console) -> Result<()> {
    let present = Metric::ALL.into_iter().filter_map(|metric| Some((metric, measures.get(metric)?)));
    if is_json {
        let mut document: Map<String, Value> =
            present.map(|(metric, value)| (metric.name().to_string(), json!(value))).collect();
        document.insert("fingerprint".into(), json!(format!("{:016x}", measures.fingerprint)));
        return console.json(&document);
    }
    for (metric, value) in present {
        let title = console.paint(Tone::Faint, &format!("{:<30}", metric.title()));
        console.line(format!("{title}{:>12}", metric.show(value)))?;
    }
    Ok(())
}
