//! `highwire bench rpc`: how many RPCs two cores exchange, how soon one is answered, and where the time goes.

mod budget;
mod pair;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use highwire_host::LinkChoice;
use highwire_host::rpc::Optimisations;
use highwire_link::floor::allowed_cores;
use serde::Serialize;

use crate::console::{Console, Tone};
use budget::Stage;
use pair::{Load, Turn};

/// The longest message: a batch of the most messages stays below what a peer takes.
const SIZE_MAX: u32 = 64 << 10;
/// Messages of a batch to one destination (a batch of more takes several datagrams' slots).
const BATCH_MAX: u32 = 31;

/// Options of `highwire bench rpc`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A client on one core and a server on another, both polling. `batch`: requests that a worker sends together, in one datagram. All rows
take turns, so a busy machine is equally busy for all: compare ratios. The ladder adds FaSST's optimisations one by one (its Figure 4), with each
request of a batch in a datagram of its own. The budget is what one unreliable datagram of 11 takes at each end, in one thread, without the RPC layer.

Examples:
  highwire bench rpc
  highwire bench rpc --link shm --batch 1,11 --size 32
  highwire bench rpc --ladder --budget --json"
)]
pub(crate) struct Args {
    /// Links.
    #[arg(long, value_delimiter = ',', default_values_t = [LinkName::Shm, LinkName::Udp])]
    link: Vec<LinkName>,
    /// Bytes of a request, and of its response.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(0..=i64::from(SIZE_MAX)))]
    size: u32,
    /// Requests that a worker sends together.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3, 5, 11], value_parser = clap::value_parser!(u32).range(1..=i64::from(BATCH_MAX)))]
    batch: Vec<u32>,
    /// Workers of the client.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    workers: u32,
    /// How often every row has its turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    turn_ms: u64,
    /// Add the ladder of optimisations.
    #[arg(long)]
    ladder: bool,
    /// Add what one datagram takes at each end.
    #[arg(long)]
    budget: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print tables for a page.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// A link, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LinkName {
    /// Shared memory.
    Shm,
    /// UDP on the loopback.
    Udp,
}

impl LinkName {
    fn choice(self) -> LinkChoice {
        match self {
            LinkName::Shm => LinkChoice::Shm,
            LinkName::Udp => LinkChoice::Udp,
        }
    }

    fn title(self) -> &'static str {
        match self {
            LinkName::Shm => "shared memory",
            LinkName::Udp => "UDP",
        }
    }
}

impl std::fmt::Display for LinkName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkName::Shm => "shm",
            LinkName::Udp => "udp",
        })
    }
}

/// Requests per second under one load.
#[derive(Debug, Serialize)]
struct Rate {
    /// What was switched on; empty for everything.
    step: &'static str,
    link: LinkName,
    batch: u32,
    workers: u32,
    /// Median, lowest and highest of the turns.
    per_second: [f64; 3],
    /// Requests per datagram.
    requests_per_datagram: f64,
}

/// Round trips of one worker with one request at a time.
#[derive(Debug, Serialize)]
struct Latency {
    link: LinkName,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    size_bytes: u32,
    latencies: Vec<Latency>,
    rates: Vec<Rate>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ladder: Vec<Rate>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    budget: Vec<Stage>,
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let cores = match allowed_cores().context("cannot tell which cores are ours")?.as_slice() {
        [first, second, ..] => [*first as u32, *second as u32],
        _ => bail!("it takes two cores: one for the client, one for the server"),
    };
    let turn = Duration::from_millis(args.turn_ms);
    let mut loads = Vec::new();
    for &link in &args.link {
        loads.push(("unloaded", load(args, link, 1, 1, Optimisations::default())));
        for &batch in &args.batch {
            loads.push(("", load(args, link, batch, args.workers, Optimisations::default())));
        }
        if args.ladder {
            loads.extend(ladder(args, link));
        }
    }
    let mut turns: Vec<Vec<Turn>> = loads.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds {
        for ((_, load), turns) in loads.iter().zip(&mut turns) {
            turns.push(pair::play(load, cores, turn)?);
        }
    }
    let mut report = Report {
        size_bytes: args.size,
        latencies: Vec::new(),
        rates: Vec::new(),
        ladder: Vec::new(),
        budget: Vec::new(),
    };
    for ((step, load), turns) in loads.iter().zip(&turns) {
        match *step {
            "unloaded" => report.latencies.push(latency(load, turns)?),
            "" => report.rates.push(rate(step, load, turns)),
            _ => report.ladder.push(rate(step, load, turns)),
        }
    }
    if args.budget {
        for &link in &args.link {
            report.budget.extend(budget::measure(link, args.size, args.rounds)?);
        }
    }
    let mut console = Console::new();
    match (args.json, args.markdown) {
        (true, _) => console.json(&report)?,
        (_, true) => markdown(&report, &mut console)?,
        _ => text(&report, &mut console)?,
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn load(args: &Args, link: LinkName, batch: u32, workers: u32, optimisations: Optimisations) -> Load {
    Load { link, size: args.size, batch, workers, optimisations }
}

/// The steps of Figure 4 of FaSST's paper (its §4.2): no requests share a datagram, since there each request
/// of a batch went to another machine.
fn ladder(args: &Args, link: LinkName) -> Vec<(&'static str, Load)> {
    let step = |cheap_receives, response_batching| Optimisations {
        coalescing: false,
        response_batching,
        doorbell_batching: true,
        cheap_receives,
    };
    [
        ("baseline", 1, step(false, false)),
        ("+ requests in batches of 3", 3, step(false, false)),
        ("+ cheap receives", 3, step(true, false)),
        ("+ responses in batches", 3, step(true, true)),
        ("+ requests in batches of 5", 5, step(true, true)),
        ("+ requests in batches of 11", 11, step(true, true)),
        ("beyond the paper: + one datagram for a batch", 11, Optimisations::default()),
    ]
    .into_iter()
    .map(|(name, batch, optimisations)| (name, load(args, link, batch, args.workers, optimisations)))
    .collect()
}

fn rate(step: &'static str, load: &Load, turns: &[Turn]) -> Rate {
    let mut rates: Vec<f64> = turns.iter().map(Turn::per_second).collect();
    rates.sort_by(f64::total_cmp);
    let (requests, datagrams) = turns
        .iter()
        .fold((0, 0), |(requests, datagrams), turn| (requests + turn.requests, datagrams + turn.datagrams));
    Rate {
        step,
        link: load.link,
        batch: load.batch,
        workers: load.workers,
        per_second: [rates[rates.len() / 2], rates[0], rates[rates.len() - 1]],
        requests_per_datagram: requests as f64 / datagrams.max(1) as f64,
    }
}

fn latency(load: &Load, turns: &[Turn]) -> Result<Latency> {
    let mut times = pair::histogram()?;
    for turn in turns {
        times.add(&turn.times)?;
    }
    let at = |quantile| times.value_at_quantile(quantile);
    Ok(Latency { link: load.link, p50_ns: at(0.5), p99_ns: at(0.99), p999_ns: at(0.999) })
}

fn text(report: &Report, console: &mut Console) -> Result<()> {
    console.line(
        console.paint(
            Tone::Heading,
            &format!("One call of {} bytes and back, one at a time", report.size_bytes),
        ),
    )?;
    console.line("  link               p50 us    p99 us  p99.9 us")?;
    for row in &report.latencies {
        let us = |ns: u64| ns as f64 / 1e3;
        console.line(format!(
            "  {:<14}{:>10.2}{:>10.2}{:>10.2}",
            row.link.title(),
            us(row.p50_ns),
            us(row.p99_ns),
            us(row.p999_ns)
        ))?;
    }
    for (title, rows) in
        [("RPCs per second, both ends polling", &report.rates), ("The ladder", &report.ladder)]
    {
        if rows.is_empty() {
            continue;
        }
        console.line(console.paint(Tone::Heading, title))?;
        console.line("  link           batch        M/s    lowest   highest   req/datagram")?;
        for row in rows {
            let [median, low, high] = row.per_second.map(|rate| rate / 1e6);
            console.line(format!(
                "  {:<14}{:>6}{:>11.3}{:>10.3}{:>10.3}{:>15.1}   {}",
                row.link.title(),
                row.batch,
                median,
                low,
                high,
                row.requests_per_datagram,
                row.step
            ))?;
        }
    }
    if !report.budget.is_empty() {
        console.line(console.paint(Tone::Heading, "One datagram in a batch of 11, nanoseconds"))?;
        for stage in &report.budget {
            console.line(format!("  {:<14}{:<44}{:>9.0}", stage.link.title(), stage.what, stage.ns))?;
        }
    }
    Ok(())
}

fn markdown(report: &Report, console: &mut Console) -> Result<()> {
    console.line(format!(
        "| one call of {} B and back, one at a time | p50 | p99 | p99.9 |",
        report.size_bytes
    ))?;
    console.line("|---|---:|---:|---:|")?;
    for row in &report.latencies {
        let us = |ns: u64| ns as f64 / 1e3;
        console.line(format!(
            "| {} | {:.2} µs | {:.2} µs | {:.2} µs |",
            row.link.title(),
            us(row.p50_ns),
            us(row.p99_ns),
            us(row.p999_ns)
        ))?;
    }
    for (title, rows) in [("RPCs per second", &report.rates), ("the ladder", &report.ladder)] {
        if rows.is_empty() {
            continue;
        }
        console.line("")?;
        console
            .line(format!("| {title} | link | batch | requests per datagram | M/s | lowest to highest |"))?;
        console.line("|---|---|---:|---:|---:|---:|")?;
        for row in rows {
            let [median, low, high] = row.per_second.map(|rate| rate / 1e6);
            let step = if row.step.is_empty() { "all optimisations" } else { row.step };
            console.line(format!(
                "| {step} | {} | {} | {:.1} | {median:.2} | {low:.2} to {high:.2} |",
                row.link.title(),
                row.batch,
                row.requests_per_datagram
            ))?;
        }
    }
    if !report.budget.is_empty() {
        console.line("")?;
        console.line("| one datagram in a batch of 11 | link | ns |")?;
        console.line("|---|---|---:|")?;
        for stage in &report.budget {
            console.line(format!("| {} | {} | {:.0} |", stage.what, stage.link.title(), stage.ns))?;
        }
    }
    Ok(())
}
