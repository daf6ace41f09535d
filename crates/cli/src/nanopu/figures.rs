//! `highwire nanopu figures`: the paper's experiments, beside what the paper found.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use highwire_nanopu::experiments::{ALL, Chart, Experiment, Outcome, Row, Settings};
use highwire_sim::report;
use serde_json::{Value, json};

use super::files::Folders;
use crate::console::{Console, Tone};
use crate::failure::usage;
use crate::progress::Progress;

const SCRIPT: &str = include_str!("figures.js");

/// Options of `highwire nanopu figures`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 1 when a figure lies outside its band.

Programs are built from riscv/ with Debian's gcc-riscv64-unknown-elf. Some experiments also replay recordings of the prototype where
there are any: --recordings names their folder.

Examples:
  highwire nanopu figures --quick
  highwire nanopu figures --only loopback --only core-selection --json")]
pub(crate) struct Args {
    /// Only these experiments.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
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
    /// Where the report goes: report.html and result.json.
    #[arg(long, value_name = "DIR", default_value = "results/nanopu")]
    out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let chosen = chosen(&args.only)?;
    std::fs::create_dir_all(&args.out)
        .map_err(|error| usage(format!("cannot make the folder {}: {error}", args.out.display())))?;
    let recordings = args.recordings.clone();
    let recordings = recordings.or_else(|| std::env::var_os("HIGHWIRE_NANOPU_TRACES").map(PathBuf::from));
    let files = Folders::new(&args.programs, recordings.as_deref());
    let mut console = Console::new();
    let started = Instant::now();
    let mut outcomes = Vec::new();
    let mut failures = Vec::new();
    for experiment in chosen {
        let progress = std::cell::RefCell::new(Progress::new(experiment.title, 1000));
        let settings = Settings {
            seed: args.seed,
            is_quick: args.quick,
            files: &files,
            progress: &|share| progress.borrow_mut().at((share * 1000.0) as u64, Instant::now()),
        };
        match (experiment.run)(&settings) {
            Ok(outcome) => outcomes.push((experiment, outcome)),
            Err(error) => failures.push(format!("{}: {error}", experiment.name)),
        }
    }
    let document = document(&outcomes);
    let report = args.out.join("report.html");
    let page = report::page_with("nanoPU: the paper's experiments", &document.to_string(), SCRIPT);
    write(&report, &page)?;
    write(&args.out.join("result.json"), &format!("{document:#}\n"))?;
    if args.json {
        console.json(&document)?;
    } else {
        show(&outcomes, &mut console)?;
        let seconds = started.elapsed().as_secs_f64();
        console.line(format!("simulated in {seconds:.0} s; report: {}", report.display()))?;
    }
    console.finish()?;
    failures.iter().for_each(|failure| eprintln!("error: {failure}"));
    let is_outside = |row: &Row| row.inside == Some(false);
    let is_good =
        failures.is_empty() && !outcomes.iter().any(|(_, outcome)| outcome.rows.iter().any(is_outside));
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>> {
    if let Some(name) = names.iter().find(|name| !ALL.iter().any(|experiment| experiment.name == **name)) {
        let known: Vec<&str> = ALL.iter().map(|experiment| experiment.name).collect();
        return Err(usage(format!("there is no experiment {name}; there are {}", known.join(", "))));
    }
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    Ok(ALL.iter().filter(|experiment| is_wanted(experiment.name)).collect())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn show(outcomes: &[(&Experiment, Outcome)], console: &mut Console) -> Result<()> {
    let rows: Vec<&Row> = outcomes.iter().flat_map(|(_, outcome)| &outcome.rows).collect();
    let head = ["experiment", "claim", "paper", "here", "inside?"].map(String::from).to_vec();
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

fn document(outcomes: &[(&Experiment, Outcome)]) -> Value {
    let experiments: Vec<Value> = outcomes
        .iter()
        .map(|(experiment, outcome)| {
            json!({
                "name": experiment.name,
                "title": experiment.title,
                "rows": outcome.rows.iter().map(row_json).collect::<Vec<_>>(),
                "charts": outcome.charts.iter().map(chart_json).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "experiments": experiments })
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
