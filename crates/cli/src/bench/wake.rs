//! `highwire bench wake`: every strategy, with few threads and many, beside each other in one run.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use highwire_link::floor::allowed_cores;
use highwire_wake::Strategy;
use serde::Serialize;

use super::stage::{Care, Outcome, PATIENCE, Scene, Until, play};
use crate::console::{Console, Tone};

/// Several threads that spin on one core wait for each other's slices, milliseconds for each event.
const BUSY_POLLERS_MAX: u32 = 1;
/// Threads of a quick run, at most.
const QUICK_THREADS_MAX: u32 = 16;

/// Options of `highwire bench wake`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A source of events on the first core sends one event at a time to one of the threads on the second, and measures the time to its
answer. `own`: the same thread each time; `other`: one drawn at random. `busy`: another thread computes on the waiting threads' core.
`one core`: the source shares it with them. Strategies take turns, so a busy machine is equally busy for all: compare ratios.

Examples:
  highwire bench wake --quick
  highwire bench wake --threads 1,128 --strategy event,leader-follower --json
  highwire bench wake --soak 1000000000 --threads 64      no times: is every one of so many events answered?"
)]
pub(crate) struct Args {
    /// Waiting threads.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128, 512], value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Only these strategies.
    #[arg(long, value_delimiter = ',')]
    strategy: Vec<Strategy>,
    /// Short rounds, and 1 and 16 threads.
    #[arg(long)]
    quick: bool,
    /// How often every strategy has its turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    turn_ms: u64,
    /// Send so many events to random threads, without a pause, under every strategy that sleeps, and fail if one is lost.
    #[arg(long, value_name = "EVENTS")]
    soak: Option<u64>,
    /// Plant a lost wake-up: nobody is told of this event of each turn of the soak.
    #[arg(long, value_name = "EVENT", requires = "soak", hide = true)]
    plant_lost: Option<u64>,
    /// Seconds after which an event is lost.
    #[arg(long, value_name = "SECONDS", requires = "soak", default_value_t = PATIENCE.as_secs())]
    patience: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print a table for a page.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    strategy: &'static str,
    threads: u32,
    event: &'static str,
    core: &'static str,
    cores: u32,
    events: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    /// Of the waiting threads and their dispatcher.
    cpu_s_per_million: f64,
    /// p50 beside that of `event` in the same scene.
    p50_per_event: Option<f64>,
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let cores = match allowed_cores().context("cannot tell which cores are ours")?.as_slice() {
        [first, second, ..] => [*first as u32, *second as u32],
        _ => bail!("it takes two cores: one for the source of events, one for those that wait"),
    };
    let strategies = if args.strategy.is_empty() { Strategy::ALL.to_vec() } else { args.strategy.clone() };
    if let Some(events) = args.soak {
        return soak(args, &strategies, cores, events);
    }
    let scenes = scenes(args, &strategies);
    let (rounds, turn_ms) =
        if args.quick { (args.rounds.min(2), args.turn_ms.min(20)) } else { (args.rounds, args.turn_ms) };
    let mut totals: Vec<Option<Outcome>> = scenes.iter().map(|_| None).collect();
    for round in 0..rounds {
        for (scene, total) in scenes.iter().zip(&mut totals) {
            let turn = play(
                *scene,
                cores,
                Until::Time(Duration::from_millis(turn_ms)),
                u64::from(round),
                Care::default(),
            )?;
            match total {
                None => *total = Some(turn),
                Some(total) => {
                    total.times.add(&turn.times)?;
                    total.cpu += turn.cpu;
                }
            }
        }
    }
    let measured: Vec<(Scene, Outcome)> =
        scenes.into_iter().zip(totals).filter_map(|(scene, total)| Some((scene, total?))).collect();
    let rows: Vec<Row> = measured.iter().map(|(scene, outcome)| row(*scene, outcome, &measured)).collect();
    let mut console = Console::new();
    match (args.json, args.markdown) {
        (true, _) => console.json(&rows)?,
        (_, true) => markdown(&rows, &mut console)?,
        _ => text(&rows, &mut console)?,
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn scenes(args: &Args, strategies: &[Strategy]) -> Vec<Scene> {
    let threads: Vec<u32> =
        args.threads.iter().copied().filter(|threads| !args.quick || *threads <= QUICK_THREADS_MAX).collect();
    let mut scenes = Vec::new();
    for is_apart in [true, false] {
        for is_busy in [false, true] {
            for &threads in &threads {
                for is_own in [true, false] {
                    for &strategy in strategies {
                        let is_sensible = (is_own || threads > 1)
                            && (strategy != Strategy::BusyPoll || threads <= BUSY_POLLERS_MAX);
                        if is_sensible {
                            scenes.push(Scene { strategy, threads, is_own, is_busy, is_apart });
                        }
                    }
                }
            }
        }
    }
    scenes
}

fn row(scene: Scene, outcome: &Outcome, all: &[(Scene, Outcome)]) -> Row {
    let times = &outcome.times;
    let p50 = |times: &Histogram<u64>| times.value_at_quantile(0.5);
    let beside = Scene { strategy: Strategy::Event, ..scene };
    let beside = all.iter().find(|(other, _)| *other == beside).map(|(_, outcome)| p50(&outcome.times));
    Row {
        strategy: scene.strategy.name(),
        threads: scene.threads,
        event: if scene.is_own { "own" } else { "other" },
        core: if scene.is_busy { "busy" } else { "idle" },
        cores: if scene.is_apart { 2 } else { 1 },
        events: times.len(),
        p50_ns: p50(times),
        p99_ns: times.value_at_quantile(0.99),
        p999_ns: times.value_at_quantile(0.999),
        cpu_s_per_million: outcome.cpu.as_secs_f64() * 1e6 / times.len() as f64,
        p50_per_event: beside.map(|beside| p50(times) as f64 / beside as f64),
    }
}

fn text(rows: &[Row], console: &mut Console) -> Result<()> {
    let mut scene = String::new();
    for row in rows {
        let title =
            format!("{} threads, {} event, {} core, {} cores", row.threads, row.event, row.core, row.cores);
        if title != scene {
            console.line(console.paint(Tone::Heading, &title))?;
            console.line("  strategy            p50 us    p99 us  p99.9 us  CPU s/M   / event")?;
            scene = title;
        }
        let us = |ns: u64| ns as f64 / 1e3;
        console.line(format!(
            "  {:<16}{:>10.2}{:>10.2}{:>10.2}{:>9.2}{:>10}",
            row.strategy,
            us(row.p50_ns),
            us(row.p99_ns),
            us(row.p999_ns),
            row.cpu_s_per_million,
            row.p50_per_event.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        ))?;
    }
    Ok(())
}

fn markdown(rows: &[Row], console: &mut Console) -> Result<()> {
    console.line("| threads | event | core | cores | strategy | p50 µs | p99 µs | p99.9 µs | CPU s per 10⁶ | p50 / `event` |")?;
    console.line("|---|---|---|---|---|---|---|---|---|---|")?;
    for row in rows {
        let us = |ns: u64| ns as f64 / 1e3;
        console.line(format!(
            "| {} | {} | {} | {} | `{}` | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            row.threads,
            row.event,
            row.core,
            row.cores,
            row.strategy,
            us(row.p50_ns),
            us(row.p99_ns),
            us(row.p999_ns),
            row.cpu_s_per_million,
            row.p50_per_event.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}")),
        ))?;
    }
    Ok(())
}

/// So many events under every strategy that sleeps, in turns: none may be lost.
fn soak(args: &Args, strategies: &[Strategy], cores: [u32; 2], events: u64) -> Result<ExitCode> {
    /// Events of a turn.
    const TURN: u64 = 1_000_000;
    let strategies: Vec<Strategy> =
        strategies.iter().copied().filter(|strategy| *strategy != Strategy::BusyPoll).collect();
    let care =
        Care { patience: Duration::from_secs(args.patience), untold: args.plant_lost.unwrap_or_default() };
    let mut console = Console::new();
    let mut done = 0;
    let mut turn = 0usize;
    while done < events {
        let count = TURN.min(events - done);
        let strategy = *strategies.get(turn % strategies.len().max(1)).context("no strategy that sleeps")?;
        let threads = args.threads[turn / strategies.len() % args.threads.len()];
        let scene = Scene { strategy, threads, is_own: false, is_busy: false, is_apart: true };
        let outcome = play(scene, cores, Until::Events(count), turn as u64, care)?;
        done += outcome.times.len();
        turn += 1;
    }
    console.line(format!("{done} events, {done} answers, none lost, in {turn} turns"))?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}
