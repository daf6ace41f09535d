//! One node of the benchmark's cluster: a process that carries out the orders that it reads, line by line.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_host::LinkChoice;
use highwire_store::bench::{Audit, Benchmark, Population, Turn, TurnReport};
use highwire_store::{ClusterConfig, Engine, Store};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::failure::usage;

/// Options of the hidden `highwire bench store-node`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct Args {
    /// The cluster's file.
    #[arg(long)]
    config: PathBuf,
    /// Which node.
    #[arg(long)]
    node: u16,
    /// The benchmark, as JSON: it decides the tables.
    #[arg(long)]
    benchmark: String,
    /// What carries requests.
    #[arg(long)]
    link: LinkChoice,
}

/// An order to a node, one per line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Order {
    Populate(Benchmark),
    Play(Turn),
    Usage,
    Audit(Benchmark),
}

/// A node's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Populated(Population),
    Played(Box<TurnReport>),
    Usage(Usage),
    Audited(Audit),
    Failed(String),
}

/// The costs of the process so far.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Usage {
    /// Of all its threads, in the kernel as well.
    pub(super) cpu_ns: u64,
    /// Resident memory of its own, beyond that before the node began.
    pub(super) resident_bytes: u64,
}

/// Serves until the benchmark has no further order.
pub(in super::super) fn run(args: &Args) -> Result<ExitCode> {
    let config = ClusterConfig::load(&args.config).map_err(|error| usage(error.to_string()))?;
    let benchmark: Benchmark =
        serde_json::from_str(&args.benchmark).map_err(|error| usage(error.to_string()))?;
    let at_first = usage_now()?;
    let engine = Engine::start_with(&config, args.node, benchmark.settings(&config), args.link)?;
    let store = engine.store().clone();
    for line in std::io::stdin().lines() {
        let order = serde_json::from_str(&line?).context("an order")?;
        let answer =
            obey(&store, &order, &at_first).unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
        let mut line = serde_json::to_string(&answer)?;
        line.push('\n');
        std::io::stdout().write_all(line.as_bytes())?;
    }
    store.stop();
    engine.join()?;
    Ok(ExitCode::SUCCESS)
}

fn obey(store: &Store, order: &Order, at_first: &Usage) -> Result<Answer> {
    Ok(match order {
        Order::Populate(benchmark) => Answer::Populated(store.populate(*benchmark)?),
        Order::Play(turn) => Answer::Played(Box::new(store.play(turn)?)),
        Order::Usage => {
            let now = usage_now()?;
            let resident_bytes = now.resident_bytes.saturating_sub(at_first.resident_bytes);
            Answer::Usage(Usage { resident_bytes, ..now })
        }
        Order::Audit(benchmark) => Answer::Audited(store.audit(*benchmark)?),
    })
}

fn usage_now() -> Result<Usage> {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().context("RssAnon")?;
    Ok(Usage {
        cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
        resident_bytes: kilobytes * 1024,
    })
}
