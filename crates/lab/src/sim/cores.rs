//! `highwire sim cores`: how soon waiting threads get their events on a simulated machine of many cores.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use highwire_cores::{Costs, Machine};
use highwire_stage::{Care, Modelled, Outcome, Scene, Seats, Until, play};
use highwire_wake::Strategy;
use serde::Serialize;

use crate::console::{Console, Tone, show};
use crate::failure::usage;
use crate::progress::Progress;

/// Options of `highwire sim cores`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every core has its share of the threads, and a source of events beside it that stands for a card's queue: one event at a time, for one of that
core's threads. The strategies are the code that programs run; cores, run queues and the clock are a model, and what a call costs are
constants that `highwire bench cores` measures. The same options give the same result.

Examples:
  highwire bench cores > here.toml && highwire sim cores --costs here.toml
  highwire sim cores --costs here.toml --cores 64 --threads 4096 --strategy event,dispatcher --hogs 32"
)]
pub(super) struct Args {
    /// Cores with waiting threads.
    #[arg(long, value_delimiter = ',', default_values_t = [16, 64], value_parser = clap::value_parser!(u32).range(1..=256))]
    cores: Vec<u32>,
    /// Waiting threads on all cores together.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 4096], value_parser = clap::value_parser!(u32).range(1..=8192))]
    threads: Vec<u32>,
    /// Only these strategies.
    #[arg(long, value_delimiter = ',')]
    strategy: Vec<Strategy>,
    /// Who shares a leader's seat: the threads of a core, or all, as those of one device do; both without it.
    #[arg(long)]
    seats: Option<SeatsOf>,
    /// Cores on which another thread computes.
    #[arg(long, default_value_t = 0)]
    hogs: u32,
    /// Simulated milliseconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    ms: u64,
    /// What the choice of threads follows from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Constants of a machine, as `highwire bench cores` prints them there.
    #[arg(long, value_name = "FILE")]
    costs: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print a table for a page.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Who shares a seat.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SeatsOf {
    Core,
    Machine,
}

#[derive(Debug, Serialize)]
struct Row {
    simulated: bool,
    cores: u32,
    threads: u32,
    hogs: u32,
    strategy: &'static str,
    seats: &'static str,
    events: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    cpu_s_per_million: f64,
}

/// Plays.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let costs = costs(&args.costs)?;
    let sleepers = Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::BusyPoll);
    let strategies: Vec<Strategy> =
        if args.strategy.is_empty() { sleepers.collect() } else { args.strategy.clone() };
    let mut scenes = Vec::new();
    for &lanes in &args.cores {
        if args.hogs > lanes {
            return Err(usage(format!(
                "{} cores cannot have {} hogs: there is one for each",
                lanes, args.hogs
            )));
        }
        for &threads in &args.threads {
            if threads < lanes {
                return Err(usage(format!("{threads} threads leave some of {lanes} cores without any")));
            }
            for &strategy in &strategies {
                let seats = seats(strategy, args.seats).into_iter();
                let hogs = args.hogs;
                scenes.extend(seats.map(|seats| Scene {
                    threads,
                    is_own: false,
                    hogs,
                    lanes,
                    seats,
                    ..Scene::of(strategy)
                }));
            }
        }
    }
    let mut progress = Progress::new("simulating", scenes.iter().map(|scene| u64::from(scene.lanes)).sum());
    let (mut rows, mut done) = (Vec::new(), 0);
    for scene in scenes {
        let cores: Vec<u32> = (0..2 * scene.lanes).collect();
        let mut model = Modelled::new(Machine::new(cores.len(), costs));
        let until = Until::Time(Duration::from_millis(args.ms));
        let outcome = play(&mut model, scene, &cores, until, args.seed, Care::default())?;
        rows.push(row(scene, &outcome));
        done += u64::from(scene.lanes);
        progress.at(done, Instant::now());
    }
    drop(progress);
    show(args.json, &rows, |console| table(&rows, args.markdown, console))
}

/// Without a leader there is no seat to share.
fn seats(strategy: Strategy, only: Option<SeatsOf>) -> Vec<Seats> {
    let has_leader = matches!(strategy, Strategy::LeaderFollower | Strategy::Adaptive);
    match only {
        _ if !has_leader => vec![Seats::Core],
        Some(SeatsOf::Core) => vec![Seats::Core],
        Some(SeatsOf::Machine) => vec![Seats::Machine],
        None => vec![Seats::Core, Seats::Machine],
    }
}

fn costs(path: &Path) -> Result<Costs> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{name}; measure first: highwire bench cores > {name}"))?;
    let costs: Costs =
        toml::from_str(&text).with_context(|| format!("{name} is not what `highwire bench cores` prints"))?;
    match costs.problem() {
        Some(problem) => bail!("{name}: {problem}"),
        None => Ok(costs),
    }
}

fn row(scene: Scene, outcome: &Outcome) -> Row {
    let times = &outcome.times;
    let has_leader = seats(scene.strategy, None).len() > 1;
    Row {
        simulated: true,
        cores: scene.lanes,
        threads: scene.threads,
        hogs: scene.hogs,
        strategy: scene.strategy.name(),
        seats: match scene.seats {
            _ if !has_leader => "-",
            Seats::Core => "core",
            Seats::Machine => "machine",
        },
        events: times.len(),
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        p999_ns: times.value_at_quantile(0.999),
        cpu_s_per_million: outcome.cpu.as_secs_f64() * 1e6 / times.len().max(1) as f64,
    }
}

fn table(rows: &[Row], is_markdown: bool, console: &mut Console) -> Result<()> {
    if is_markdown {
        console.line("| simulated cores | threads | hogs | strategy | seat for | events | p50 µs | p99 µs | p99.9 µs | CPU s per 10⁶ |")?;
        console.line("|---:|---:|---:|---|---|---:|---:|---:|---:|---:|")?;
    } else {
        console.line(console.paint(Tone::Heading, "simulated"))?;
        console.line("cores threads  hogs  strategy         seat for    events     p50 us     p99 us   p99.9 us   CPU s/M")?;
    }
    for row in rows {
        let Row { cores, threads, hogs, strategy, seats, events, cpu_s_per_million: cpu, .. } = row;
        let [p50, p99, p999] = [row.p50_ns, row.p99_ns, row.p999_ns].map(|ns| ns as f64 / 1e3);
        console.line(if is_markdown {
            format!("| {cores} | {threads} | {hogs} | `{strategy}` | {seats} | {events} | {p50:.2} | {p99:.2} | {p999:.2} | {cpu:.2} |")
        } else {
            format!("{cores:>5}{threads:>8}{hogs:>6}  {strategy:<17}{seats:<8}{events:>10}{p50:>11.2}{p99:>11.2}{p999:>11.2}{cpu:>10.2}")
        })?;
    }
    Ok(())
}
