//! TATP and SmallBank against PostgreSQL, Apache Ignite, and any server of Redis's protocol.
//!
//! The generators of `highwire_txn` draw rows and transactions, so that every system gets the same. One
//! thread for each client, with a connection of its own. The output is a line of JSON; processor time is that
//! of this program and of the processes that `--process` names, with all their descendants.

mod cpu;
mod ignite;
mod play;
mod postgres;
mod resp;
mod seen;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use highwire_txn::workloads::{Procedure, SmallBank, Tatp, Workload};
use serde::Serialize;

use cpu::Trees;
use play::Load;

#[derive(Debug, Parser)]
#[command(name = "transactions", about = "TATP and SmallBank against other stores")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Make the tables and fill them.
    Fill(Target),
    /// Measure a closed loop, and an open one at half its rate.
    Play(Play),
    /// Run a command and say what it and the processes took.
    Run(Run),
}

/// A system, and what is played there.
#[derive(Debug, clap::Args)]
struct Target {
    /// What it speaks.
    #[arg(long)]
    system: System,
    /// PostgreSQL: connection parameters (`host=/run/postgresql user=postgres`). Ignite and RESP: HOST:PORT, several of them with commas between.
    #[arg(long)]
    at: String,
    /// What to run.
    #[arg(long)]
    workload: Name,
    /// Subscribers or customers.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    keys: u64,
    /// SmallBank: customers from which 9 of 10 transactions draw theirs. Unless given: 4 %.
    #[arg(long)]
    hot: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct Play {
    #[command(flatten)]
    target: Target,
    /// Clients, each with a connection and a thread.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    clients: u64,
    /// For how long to measure each loop.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// For how long to run before that.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Decides every transaction.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes whose processor time counts, with all their descendants.
    #[arg(long, value_delimiter = ',')]
    process: Vec<u32>,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Processes whose processor time counts, with all their descendants.
    #[arg(long, value_delimiter = ',')]
    process: Vec<u32>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum System {
    /// Stored procedures, SERIALIZABLE.
    Postgres,
    /// WATCH, MULTI and EXEC.
    Resp,
    /// Transactions that are OPTIMISTIC and SERIALIZABLE, two backups, FULL_SYNC.
    Ignite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// A telephone network's register.
    Tatp,
    /// A bank with few customers that are in most transactions.
    Smallbank,
}

impl Target {
    fn benchmark(&self) -> Box<dyn Workload + Send> {
        match self.workload {
            Name::Tatp => Box::new(Tatp { subscribers: self.keys }),
            Name::Smallbank => {
                let hot = self.hot.unwrap_or(self.keys / 25).clamp(2, self.keys);
                Box::new(SmallBank { customers: self.keys, hot, hot_share: 90 })
            }
        }
    }

    fn session(&self, number: u64) -> Result<Box<dyn Session>> {
        let places: Vec<&str> = self.at.split(',').collect();
        let place = places[number as usize % places.len()];
        Ok(match self.system {
            System::Postgres => Box::new(postgres::Connection::open(&self.at, self.workload)?),
            System::Resp => {
                Box::new(resp::Connection::open(place, self.workload).with_context(|| place.to_string())?)
            }
            System::Ignite => {
                Box::new(ignite::Connection::open(place, self.workload).with_context(|| place.to_string())?)
            }
        })
    }

    /// The sum of all balances, if there are any.
    fn money(&self) -> Result<Option<i64>> {
        match self.workload {
            Name::Tatp => Ok(None),
            Name::Smallbank => self.session(0)?.money(self.keys).map(Some),
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// It committed, and there is this much more money than before.
    Committed(i64),
    /// It did not find what it looked for, or found what it wanted to insert.
    Refused,
    /// It met another transaction, and must be tried again.
    Conflict,
}

/// A client's connection.
trait Session {
    /// One attempt at a transaction that has not begun.
    fn attempt(&mut self, transaction: &mut dyn Procedure) -> Result<Ended>;

    /// The sum of all balances.
    fn money(&mut self, customers: u64) -> Result<i64>;
}

#[derive(Debug, Serialize)]
struct Report {
    closed: play::Outcome,
    half_load: play::Outcome,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Fill(target) => fill(&target),
        Task::Play(args) => measure(&args),
        Task::Run(args) => run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn fill(target: &Target) -> Result<ExitCode> {
    let benchmark = target.benchmark();
    let place = target.at.split(',').next().unwrap_or_default();
    match target.system {
        System::Postgres => postgres::fill(&target.at, target.workload, &*benchmark)?,
        System::Resp => resp::fill(place, target.workload, &*benchmark)?,
        System::Ignite => ignite::fill(place, target.workload, &*benchmark)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &Play) -> Result<ExitCode> {
    let before = args.target.money()?;
    let trees = Trees::of(&args.process);
    let load = |seconds: f64, seed, rate| Load {
        seconds: Duration::from_secs_f64(seconds),
        seed,
        rate,
        clients: args.clients,
    };
    let warm_up = play::play(&args.target, &trees, &load(args.warm_up, args.seed, None))?;
    let closed = play::play(&args.target, &trees, &load(args.seconds, args.seed + 1, None))?;
    let rate = closed.finished_per_second() / 2.0;
    let half_load = play::play(&args.target, &trees, &load(args.seconds, args.seed + 2, Some(rate)))?;
    if let (Some(before), Some(after)) = (before, args.target.money()?) {
        let made = warm_up.money + closed.money + half_load.money;
        if before + made != after {
            bail!("money: {before} before, {made} made, and {after} after");
        }
    }
    println!("{}", serde_json::to_string(&Report { closed, half_load })?);
    Ok(ExitCode::SUCCESS)
}

fn run(args: &Run) -> Result<ExitCode> {
    let trees = Trees::of(&args.process);
    let before = trees.ticks()?;
    let began = Instant::now();
    let output = Command::new(&args.command[0]).args(&args.command[1..]).output();
    let output = output.with_context(|| args.command[0].clone())?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = trees.seconds_since(before)?;
    if !output.status.success() {
        bail!("{}: {}", args.command.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", serde_json::json!({"seconds": seconds, "cpu_seconds": cpu_seconds, "output": text}));
    Ok(ExitCode::SUCCESS)
}
