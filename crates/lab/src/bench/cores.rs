//! `highwire bench cores`: the constants of this machine for the model of cores, and how near the model comes
//! to it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use highwire_cores::{Costs, Machine};
use highwire_link::floor::allowed_cores;
use highwire_stage::{Care, Modelled, Outcome, Real, Scene, Until, play};
use highwire_wake::Strategy;
use serde::Serialize;

use crate::console::Console;
use crate::progress::Progress;

/// Options of `highwire bench cores`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Measures what a look, a call, a wake-up and a switch cost between two cores, and prints it as TOML, which `highwire sim cores --costs`
reads. With --validate it also plays scenes of `highwire bench wake` on this machine, a round after each measurement, and then in the model with the
medians, and prints both and their ratio.

Examples:
  highwire bench cores > here.toml
  highwire bench cores --validate --out here.toml
  highwire bench cores --validate --threads 1,16 --strategy event,leader-follower --json"
)]
pub(crate) struct Args {
    /// Play scenes on this machine and in the model, too.
    #[arg(long)]
    validate: bool,
    /// Waiting threads of these scenes.
    #[arg(long, value_delimiter = ',', requires = "validate", default_values_t = [1, 16, 128], value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Only these strategies.
    #[arg(long, value_delimiter = ',', requires = "validate")]
    strategy: Vec<Strategy>,
    /// How often every scene has its turn on this machine and in the model.
    #[arg(long, requires = "validate", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Milliseconds of a turn.
    #[arg(long, requires = "validate", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    turn_ms: u64,
    /// Write the constants there, too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print a table for a page.
    #[arg(long, conflicts_with = "json", requires = "validate")]
    markdown: bool,
}

#[derive(Debug, Serialize)]
struct Document {
    costs: Costs,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scenes: Vec<Row>,
}

/// A scene on this machine and in the model.
#[derive(Debug, Serialize)]
struct Row {
    strategy: &'static str,
    threads: u32,
    event: &'static str,
    core: &'static str,
    cores: u32,
    measured_p50_ns: u64,
    simulated_p50_ns: u64,
    p50_ratio: f64,
    measured_p99_ns: u64,
    simulated_p99_ns: u64,
    measured_cpu_s_per_million: f64,
    simulated_cpu_s_per_million: f64,
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let cores = match allowed_cores().context("cannot tell which cores are ours")?.as_slice() {
        [first, second, ..] => [*first as u32, *second as u32],
        _ => bail!("it takes two cores to measure what one costs the other"),
    };
    let (costs, scenes) = if args.validate {
        validate(args, cores)?
    } else {
        (highwire_stage::costs(cores).context("cannot measure")?, Vec::new())
    };
    let lines: Vec<String> = costs.each().iter().map(|(name, ns)| format!("{name} = {ns}")).collect();
    if let Some(path) = &args.out {
        std::fs::write(path, lines.join("\n") + "\n").with_context(|| path.display().to_string())?;
    }
    let mut console = Console::new();
    if args.json {
        console.json(&Document { costs, scenes })?;
    } else if args.markdown {
        table(&scenes, true, &mut console)?;
    } else {
        for line in &lines {
            console.line(line)?;
        }
        if args.validate {
            console.line("")?;
            table(&scenes, false, &mut console)?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn validate(args: &Args, cores: [u32; 2]) -> Result<(Costs, Vec<Row>)> {
    let mut all_costs = Vec::new();
    let sleepers = || Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::BusyPoll);
    let strategies = if args.strategy.is_empty() { sleepers().collect() } else { args.strategy.clone() };
    let mut scenes = Vec::new();
    for (is_apart, hogs) in [(true, 0), (true, 1), (false, 0)] {
        for &threads in &args.threads {
            for is_own in [true, false].into_iter().filter(|is_own| *is_own || threads > 1) {
                scenes.extend(strategies.iter().map(|&strategy| Scene {
                    threads,
                    is_own,
                    hogs,
                    is_apart,
                    ..Scene::of(strategy)
                }));
            }
        }
    }
    let time = Until::Time(Duration::from_millis(args.turn_ms));
    let nothing = || Outcome {
        times: Histogram::new(3).expect("three digits are few enough"),
        events: 0,
        cpu: Duration::ZERO,
    };
    let mut totals: Vec<[Outcome; 2]> = scenes.iter().map(|_| [nothing(), nothing()]).collect();
    let mut progress = Progress::new("comparing", u64::from(args.rounds) * scenes.len() as u64);
    let mut done = 0;
    for round in 0..args.rounds {
        // Measured with every round, because the machine's pace changes.
        all_costs.push(highwire_stage::costs(cores).context("cannot measure")?);
        for (scene, [measured, _]) in scenes.iter().zip(&mut totals) {
            add(measured, &play(&mut Real::default(), *scene, &cores, time, round.into(), Care::default())?)?;
            done += 1;
            progress.at(done, Instant::now());
        }
    }
    let costs = Costs::median(&all_costs).context("no round")?;
    for round in 0..args.rounds {
        for (scene, [_, simulated]) in scenes.iter().zip(&mut totals) {
            let mut model = Modelled::new(Machine::new(2, costs)).one_by_one(round.into());
            add(simulated, &play(&mut model, *scene, &[0, 1], time, round.into(), Care::default())?)?;
        }
    }
    let rows = scenes.into_iter().zip(&totals);
    Ok((costs, rows.map(|(scene, [measured, simulated])| row(scene, measured, simulated)).collect()))
}

fn add(total: &mut Outcome, turn: &Outcome) -> Result<()> {
    total.times.add(&turn.times)?;
    total.cpu += turn.cpu;
    Ok(())
}

fn row(scene: Scene, measured: &Outcome, simulated: &Outcome) -> Row {
    let at = |times: &Histogram<u64>, quantile| times.value_at_quantile(quantile);
    let cpu = |outcome: &Outcome| outcome.cpu.as_secs_f64() * 1e6 / outcome.times.len().max(1) as f64;
    let p50 = (at(&measured.times, 0.5), at(&simulated.times, 0.5));
    Row {
        strategy: scene.strategy.name(),
        threads: scene.threads,
        event: if scene.is_own { "own" } else { "other" },
        core: if scene.hogs > 0 { "busy" } else { "idle" },
        cores: if scene.is_apart { 2 } else { 1 },
        measured_p50_ns: p50.0,
        simulated_p50_ns: p50.1,
        p50_ratio: p50.1 as f64 / p50.0.max(1) as f64,
        measured_p99_ns: at(&measured.times, 0.99),
        simulated_p99_ns: at(&simulated.times, 0.99),
        measured_cpu_s_per_million: cpu(measured),
        simulated_cpu_s_per_million: cpu(simulated),
    }
}

fn table(rows: &[Row], is_markdown: bool, console: &mut Console) -> Result<()> {
    if is_markdown {
        console.line("| threads | event | core | cores | strategy | p50 µs measured | simulated | ratio | p99 µs measured | simulated | CPU s per 10⁶ measured | simulated |")?;
        console.line("|---|---|---|---|---|---|---|---|---|---|---|---|")?;
    } else {
        console.line("threads event  core  cores  strategy             p50 us simulated   ratio     p99 us simulated    CPU s/M simulated")?;
    }
    for row in rows {
        let Row { strategy, threads, event, core, cores, p50_ratio: ratio, .. } = row;
        let us = |ns: u64| ns as f64 / 1e3;
        let [p50, p50_sim, p99, p99_sim] =
            [row.measured_p50_ns, row.simulated_p50_ns, row.measured_p99_ns, row.simulated_p99_ns].map(us);
        let (cpu, cpu_sim) = (row.measured_cpu_s_per_million, row.simulated_cpu_s_per_million);
        console.line(if is_markdown {
            format!("| {threads} | {event} | {core} | {cores} | `{strategy}` | {p50:.2} | {p50_sim:.2} | {ratio:.2} | {p99:.2} | {p99_sim:.2} | {cpu:.2} | {cpu_sim:.2} |")
        } else {
            format!("{threads:>7} {event:<6} {core:<5} {cores:>5}  {strategy:<16}{p50:>11.2}{p50_sim:>10.2}{ratio:>8.2}{p99:>11.2}{p99_sim:>10.2}{cpu:>11.2}{cpu_sim:>10.2}")
        })?;
    }
    Ok(())
}
