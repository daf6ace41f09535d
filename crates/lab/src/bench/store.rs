//! `highwire bench store`: benchmarks whose clients are the nodes' own workers, as in FaSST's evaluation:
//! they measure the cost of the transactions themselves.

mod cluster;
mod node;
mod outcome;
mod print;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use highwire_store::bench::{Benchmark, Turn, YcsbMix};

use crate::console::Console;
use crate::failure::usage;
use crate::values::seconds_or_span;

use super::rpc::LinkName;
use cluster::Cluster;
use outcome::{Outcome, Run};

pub(super) use node::{Args as NodeArgs, run as run_node};

/// Options of `highwire bench store`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A cluster of this machine, one process for each node; every node's workers run the benchmark and serve the others' requests. Commits per CPU-second
count all threads of all nodes. A latency counts from the time when a transaction should begin until it has ended for good, all attempts together.
In the end copies must be equal, no lock held, no money lost, and requests between nodes as many as the formula says; if not, the exit status is 1.

Examples:
  highwire bench store
  highwire bench store --workload smallbank --hot 10,100,1000,12000
  highwire bench store --workload tatp --half-load --link udp
  highwire bench store --workload tatp,smallbank --data /var/tmp
  highwire bench store --workload objects --nodes 4 --reads 4 --writes 2
  highwire bench store --workload ycsb --theta 0,0.5,0.9,0.99 --json"
)]
pub(super) struct Args {
    /// What to run.
    #[arg(long, value_delimiter = ',', default_values_t = [Workload::Tatp])]
    workload: Vec<Workload>,
    #[command(flatten)]
    options: Options,
}

/// Options of every benchmark by the nodes' own workers, and of `highwire bench tatp` and the others by name.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Nodes, each a process.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    nodes: u16,
    /// Copies of everything; f is one less.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    replicas: u16,
    /// What carries requests between nodes.
    #[arg(long, default_value_t = LinkName::Shm)]
    link: LinkName,
    /// Nodes keep journals, in a new folder below this one, which goes with the cluster: a commit is told when f + 1 of them have it durably.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Transactions that a node coordinates at a time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Subscribers, customers or keys, in all. Unless given: 300,000 subscribers or customers, a million keys.
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    keys: Option<u64>,
    /// For how long to measure each load.
    #[arg(long, default_value = "5s", value_parser = seconds_or_span)]
    seconds: Duration,
    /// For how long to run before that.
    #[arg(long, default_value = "1s", value_parser = seconds_or_span)]
    warm_up: Duration,
    /// Transactions of each node in each load, at most.
    #[arg(long)]
    transactions: Option<u64>,
    /// Open loop: transactions per second of the whole cluster that begin as a Poisson process says.
    #[arg(long, value_delimiter = ',', value_parser = positive)]
    rate: Vec<f64>,
    /// Also in an open loop at half the rate of the closed one.
    #[arg(long, conflicts_with = "rate")]
    half_load: bool,
    /// SmallBank: how many customers the hot set has, from which 9 of 10 transactions draw theirs; one load for each. Unless given: 4 %.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(2..))]
    hot: Vec<u64>,
    /// YCSB: the exponent of Zipf's law, one load for each. Unless given: 0.99.
    #[arg(long, value_delimiter = ',', value_parser = theta)]
    theta: Vec<f64>,
    /// YCSB: which of its workloads.
    #[arg(long, default_value_t = Mix::A)]
    mix: Mix,
    /// YCSB: reads and writes of a transaction.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    operations: u8,
    /// Objects: keys of a transaction.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    reads: u8,
    /// Objects: those of them that it writes.
    #[arg(long, default_value_t = 2)]
    writes: u8,
    /// Decides every transaction, and when it begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print tables for a page.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// A benchmark, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Workload {
    /// A telephone network's register.
    Tatp,
    /// A bank with few customers that are in most transactions.
    Smallbank,
    /// Keys of which some are written.
    Objects,
    /// YCSB over points.
    Ycsb,
}

/// One of YCSB's workloads, by its letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mix {
    A,
    B,
    C,
    F,
}

macro_rules! shown_as_value {
    ($($kind:ty),*) => {$(
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let value = clap::ValueEnum::to_possible_value(self);
                f.write_str(value.as_ref().map_or("", clap::builder::PossibleValue::get_name))
            }
        }
    )*};
}
shown_as_value!(Workload, Mix);

fn theta(text: &str) -> Result<f64, String> {
    let theta = text.parse().ok().filter(|theta| (0.0..1.0).contains(theta));
    theta.ok_or_else(|| "a number from 0 to below 1".into())
}

fn positive(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "a number above 0".into())
}

/// One load of a run: its parameters, and its name in the table.
struct Load {
    title: String,
    benchmark: Benchmark,
    rate: Option<f64>,
}

impl Options {
    fn check(&self) -> Result<()> {
        if self.replicas > self.nodes {
            return Err(usage(format!(
                "--replicas {}: there are {} nodes for as many copies",
                self.replicas, self.nodes
            )));
        }
        if self.writes > self.reads {
            return Err(usage(format!("--writes {}: of {} keys", self.writes, self.reads)));
        }
        for &hot in &self.hot {
            if hot > self.keys_of(Workload::Smallbank) {
                return Err(usage(format!("--hot {hot}: there are not so many customers")));
            }
        }
        Ok(())
    }

    fn keys_of(&self, workload: Workload) -> u64 {
        self.keys.unwrap_or(match workload {
            Workload::Tatp | Workload::Smallbank => 300_000,
            Workload::Objects | Workload::Ycsb => 1_000_000,
        })
    }

    /// Closed loops: one, or one for each value of the swept parameter.
    fn loads(&self, workload: Workload) -> Vec<Load> {
        let keys = self.keys_of(workload);
        let load = |title: String, benchmark| Load { title, benchmark, rate: None };
        match workload {
            Workload::Tatp => vec![load("closed loop".into(), Benchmark::Tatp { subscribers: keys })],
            Workload::Objects => {
                let (reads, writes) = (usize::from(self.reads), usize::from(self.writes));
                vec![load(format!("O({reads},{writes})"), Benchmark::Objects { keys, reads, writes })]
            }
            Workload::Smallbank => {
                let hot = if self.hot.is_empty() { vec![(keys / 25).max(2)] } else { self.hot.clone() };
                let of = |hot| load(format!("hot set {hot}"), Benchmark::SmallBank { customers: keys, hot });
                hot.into_iter().map(of).collect()
            }
            Workload::Ycsb => {
                let mix = match self.mix {
                    Mix::A => YcsbMix::A,
                    Mix::B => YcsbMix::B,
                    Mix::C => YcsbMix::C,
                    Mix::F => YcsbMix::F,
                };
                let operations = usize::from(self.operations);
                let thetas = if self.theta.is_empty() { vec![0.99] } else { self.theta.clone() };
                let of = |theta| load(format!("θ {theta}"), Benchmark::Ycsb { keys, operations, mix, theta });
                thetas.into_iter().map(of).collect()
            }
        }
    }
}

/// Measures what `--workload` lists.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    run_workloads(&args.options, &args.workload)
}

/// Measures these, in turn.
pub(super) fn run_workloads(args: &Options, workloads: &[Workload]) -> Result<ExitCode> {
    args.check()?;
    let runs = workloads.iter().map(|&workload| measure(args, workload)).collect::<Result<Vec<Run>>>()?;
    let mut console = Console::new();
    match (args.json, args.markdown) {
        (true, _) => console.json(&runs)?,
        (_, is_markdown) => print::print(&runs, is_markdown, &mut console)?,
    }
    console.finish()?;
    let is_sound = runs.iter().all(|run| run.problems.is_empty());
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One benchmark on a cluster of its own.
fn measure(args: &Options, workload: Workload) -> Result<Run> {
    let loads = args.loads(workload);
    let mut cluster = Cluster::start(args, loads[0].benchmark)?;
    let memory = cluster.populate(loads[0].benchmark)?;
    let before = cluster.audit(loads[0].benchmark)?;
    let mut money = 0;
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut seed = args.seed;
    let mut play = |cluster: &mut Cluster, load: &Load, length: Duration| -> Result<Outcome> {
        let turn = Turn {
            benchmark: load.benchmark,
            seed,
            workers: args.workers,
            length_ns: length.as_nanos() as u64,
            transactions: args.transactions.unwrap_or(u64::MAX),
            rate: load.rate.map(|rate| rate / f64::from(args.nodes)),
            elsewhere: args.nodes > args.replicas,
        };
        // The next load plays other transactions.
        seed = seed.wrapping_add(1);
        let began = Instant::now();
        let outcome = Outcome::of(load.title.clone(), load.benchmark, &turn, cluster.play(&turn, began)?)?;
        money += outcome.money;
        Ok(outcome)
    };
    if !args.warm_up.is_zero() {
        let warm = Load { title: "warm-up".into(), benchmark: loads[0].benchmark, rate: None };
        play(&mut cluster, &warm, args.warm_up)?;
    }
    for load in &loads {
        let closed = if args.rate.is_empty() {
            let outcome = play(&mut cluster, load, args.seconds)?;
            let finished = outcome.finished_per_second();
            outcomes.push(outcome);
            Some(finished)
        } else {
            None
        };
        let half =
            closed.filter(|_| args.half_load).map(|rate| (format!("{}, half load", load.title), rate / 2.0));
        let given = args.rate.iter().map(|&rate| (format!("{}, {rate:.0}/s", load.title), rate));
        for (title, rate) in half.into_iter().chain(given) {
            let open = Load { title, benchmark: load.benchmark, rate: Some(rate) };
            outcomes.push(play(&mut cluster, &open, args.seconds)?);
        }
    }
    let after = cluster.audit(loads[0].benchmark)?;
    let problems = outcome::problems(&outcomes, &before, &after, money);
    Ok(Run {
        workload: workload.to_string(),
        nodes: args.nodes,
        replicas: args.replicas,
        link: args.link.to_string(),
        journal_bytes: cluster.journal_bytes()?,
        workers: args.workers,
        seed: args.seed,
        memory,
        balance_before: before.balance,
        balance_after: after.balance,
        money,
        outcomes,
        problems,
    })
}
