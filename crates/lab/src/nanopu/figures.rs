//! `highwire nanopu figures`: the paper's experiments, beside the paper's results.
//!
//! Every experiment leaves a file behind when it ends, and the report is made from all files of the same
//! scale and seed: so an interrupted run is not lost, and one experiment can be run again.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use highwire_nanopu::experiments::{ALL, Chart, Experiment, Outcome, Row, Settings};
use highwire_nanopu::nic::TransportKind;
use highwire_sim::{neighbours, report};
use serde_json::{Value, json};

use super::files::Folders;
use super::transport;
use crate::console::{Console, Tone};
use crate::failure::usage;
use crate::progress::Progress;

/// The experiment with Homa; all others speak NDP.
const HOMA: &str = "homa";
const SCRIPT: &str = include_str!("figures.js");

/// Options of `highwire nanopu figures`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 1 when a figure lies outside its band.

Each experiment's result is kept in the folder --out when it ends; the report there has those of earlier runs as well, if their scale
and seed are the same.

Programs are built from riscv/ with Debian's gcc-riscv64-unknown-elf. Some experiments also replay recordings of the prototype where
there are any: --recordings names their folder.

Examples:
  highwire nanopu figures --quick
  highwire nanopu figures --transport homa
  highwire nanopu figures --only loopback --only core-selection --json")]
pub(crate) struct Args {
    /// Only these experiments.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only the experiments with this transport.
    #[arg(long, value_name = "NAME", value_parser = transport::named)]
    transport: Option<&'static TransportKind>,
    /// Fewer points and requests.
    #[arg(long)]
    quick: bool,
    /// Decides every random choice that the paper does not.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder of programs.
    #[arg(long, value_name = "DIR", default_value = "riscv")]
    programs: PathBuf,
    /// A folder with recordings of the prototype; HIGHWIRE_NANOPU_TRACES if not given.
    #[arg(long, value_name = "DIR")]
    recordings: Option<PathBuf>,
    /// Where results go: report.html, result.json, and a file per experiment.
    #[arg(long, value_name = "DIR", default_value = "results/nanopu")]
    out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let chosen = chosen(&args.only, args.transport)?;
    std::fs::create_dir_all(&args.out)
        .map_err(|error| usage(format!("cannot make the folder {}: {error}", args.out.display())))?;
    let recordings = args.recordings.clone();
    let recordings = recordings.or_else(|| std::env::var_os("HIGHWIRE_NANOPU_TRACES").map(PathBuf::from));
    let files = Folders::new(&args.programs, recordings.as_deref());
    let mut console = Console::new();
    let started = Instant::now();
    // An experiment's last duration tells which share of the whole it is.
    let weights: Vec<f64> =
        chosen.iter().map(|one| kept(args, one).map_or(30.0, |old| seconds_of(&old))).collect();
    let all: f64 = weights.iter().sum();
    let progress = RefCell::new(Progress::new("the paper's experiments", 10_000).with_lines());
    let mut outcomes = Vec::new();
    let mut failures = Vec::new();
    for (place, &experiment) in chosen.iter().enumerate() {
        let before: f64 = weights[..place].iter().sum();
        let settings = Settings {
            seed: args.seed,
            is_quick: args.quick,
            files: &files,
            progress: &|share| {
                let done = (before + share * weights[place]) / all;
                progress.borrow_mut().at((done * 10_000.0) as u64, Instant::now());
            },
        };
        let begun = Instant::now();
        match (experiment.run)(&settings) {
            Ok(outcome) => {
                let seconds = begun.elapsed().as_secs_f64();
                keep(args, experiment, &outcome, seconds)?;
                let count = |inside| outcome.rows.iter().filter(|row| row.inside == Some(inside)).count();
                let (inside, outside) = (count(true), count(false));
                eprintln!(
                    "{} of {}, {}: {inside} of {} inside, {seconds:.0} s",
                    place + 1,
                    chosen.len(),
                    experiment.name,
                    inside + outside
                );
                outcomes.push((experiment, outcome, seconds));
            }
            Err(error) => failures.push(format!("{}: {error}", experiment.name)),
        }
    }
    drop(progress);
    if args.json {
        console.json(&json!({ "experiments": outcomes.iter().map(|(one, outcome, seconds)| document(args, one, outcome, *seconds)).collect::<Vec<_>>() }))?;
    } else {
        show(&outcomes, &mut console)?;
        let seconds = started.elapsed().as_secs_f64();
        console.line(format!(
            "simulated in {seconds:.0} s; report: {}",
            args.out.join("report.html").display()
        ))?;
    }
    console.finish()?;
    failures.iter().for_each(|failure| eprintln!("error: {failure}"));
    let is_outside = |row: &Row| row.inside == Some(false);
    let is_good =
        failures.is_empty() && !outcomes.iter().any(|(_, outcome, _)| outcome.rows.iter().any(is_outside));
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The result that an earlier run of this scale and seed has left of an experiment.
fn kept(args: &Args, experiment: &Experiment) -> Option<Value> {
    let text = std::fs::read_to_string(args.out.join(format!("{}.json", experiment.name))).ok()?;
    let old: Value = serde_json::from_str(&text).ok()?;
    (old["seed"] == args.seed && old["quick"] == args.quick).then_some(old)
}

fn seconds_of(old: &Value) -> f64 {
    old["seconds"].as_f64().unwrap_or(0.0).max(0.1)
}

/// Stores an experiment's result, and makes the report of all stored results.
fn keep(args: &Args, experiment: &Experiment, outcome: &Outcome, seconds: f64) -> Result<()> {
    let result = document(args, experiment, outcome, seconds);
    write(&args.out.join(format!("{}.json", experiment.name)), &format!("{result:#}\n"))?;
    let all: Vec<Value> = all().filter_map(|one| kept(args, one)).collect();
    let all = json!({ "experiments": all });
    let page = report::page_with("nanoPU: the paper's experiments", &all.to_string(), SCRIPT);
    write(&args.out.join("report.html"), &page)?;
    write(&args.out.join("result.json"), &format!("{all:#}\n"))
}

/// All experiments: those with nanoPUs alone, and those beside RNICs.
fn all() -> impl Iterator<Item = &'static Experiment> + Clone {
    ALL.iter().chain([&neighbours::EXPERIMENT])
}

fn chosen(names: &[String], transport: Option<&'static TransportKind>) -> Result<Vec<&'static Experiment>> {
    if let Some(name) = names.iter().find(|name| !all().any(|experiment| experiment.name == **name)) {
        let known: Vec<&str> = all().map(|experiment| experiment.name).collect();
        return Err(usage(format!("there is no experiment {name}; there are {}", known.join(", "))));
    }
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let speaks = |name: &str| if name == HOMA { TransportKind::HOMA } else { TransportKind::NDP };
    let is_meant = |name: &str| transport.is_none_or(|wanted| speaks(name).name == wanted.name);
    let chosen = all().filter(|experiment| is_wanted(experiment.name) && is_meant(experiment.name));
    let chosen: Vec<_> = chosen.collect();
    if chosen.is_empty() {
        return Err(usage("none of these experiments has that transport"));
    }
    Ok(chosen)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn show(outcomes: &[(&Experiment, Outcome, f64)], console: &mut Console) -> Result<()> {
    let rows: Vec<&Row> = outcomes.iter().flat_map(|(_, outcome, _)| &outcome.rows).collect();
    let head = ["experiment", "claim", "paper [band]", "here", "inside?"].map(String::from).to_vec();
    let cells = rows.iter().map(|row| {
        let inside = match row.inside {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        vec![
            row.experiment.to_string(),
            row.claim.clone(),
            row.paper.clone(),
            row.here.clone(),
            inside.to_string(),
        ]
    });
    let table = report::align(&std::iter::once(head).chain(cells).collect::<Vec<_>>(), 5);
    for (line, row) in table.lines().zip(std::iter::once(None).chain(rows.into_iter().map(Some))) {
        let line = match row.map(|row| row.inside) {
            None => console.paint(Tone::Faint, line),
            Some(Some(true)) => console.paint(Tone::Good, line),
            Some(Some(false)) => console.paint(Tone::Bad, line),
            Some(None) => line.to_string(),
        };
        console.line(line)?;
    }
    Ok(())
}

fn document(args: &Args, experiment: &Experiment, outcome: &Outcome, seconds: f64) -> Value {
    json!({
        "name": experiment.name,
        "title": experiment.title,
        "quick": args.quick,
        "seed": args.seed,
        "seconds": seconds,
        "rows": outcome.rows.iter().map(row_json).collect::<Vec<_>>(),
        "charts": outcome.charts.iter().map(chart_json).collect::<Vec<_>>(),
    })
}

fn row_json(row: &Row) -> Value {
    json!({
        "experiment": row.experiment, "claim": row.claim, "paper": row.paper, "here": row.here, "inside": row.inside,
    })
}

fn chart_json(chart: &Chart) -> Value {
    let series: Vec<Value> = chart
        .series
        .iter()
        .map(|series| json!({ "name": series.name, "is_paper": series.is_paper, "points": series.points }))
        .collect();
    json!({
        "title": chart.title, "across": chart.across, "up": chart.up, "is_log": chart.is_log, "series": series,
    })
}
