//! `highwire store check --workload`: a benchmark's transactions on a simulated cluster, in numbers of requests.

use std::process::ExitCode;

use anyhow::Result;
use highwire_txn::workloads::bench::{Bench, Tally};
use highwire_txn::workloads::{Mix, Objects, SmallBank, Tatp, Workload, Ycsb};

use crate::console::Console;

/// Which benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// Four keys of which two are written.
    Objects,
    /// A telephone network's register.
    Tatp,
    /// A bank with few customers that are in most transactions.
    Smallbank,
    /// YCSB's workload A, four operations a transaction.
    Ycsb,
}

/// Seven nodes with three copies of everything, as many transactions at a time as there are workers.
pub(super) fn run(kind: Kind, seed: u64) -> Result<ExitCode> {
    let mut workload: Box<dyn Workload> = match kind {
        Kind::Objects => Box::new(Objects { keys: 100_000, reads: 4, writes: 2 }),
        Kind::Tatp => Box::new(Tatp { subscribers: 20_000 }),
        Kind::Smallbank => Box::new(SmallBank::of_threads(1)),
        Kind::Ycsb => Box::new(Ycsb::new(Mix::A, 100_000, 100, 4, 0.99)),
    };
    let bench = Bench { seed, nodes: 7, f: 2, workers: 4, window: 28, transactions: 50_000 };
    let outcome = bench.run(workload.as_mut());
    let total = outcome.total();
    let mut console = Console::new();
    console.line(format!(
        "simulated, without time: {} nodes, {} copies, {} transactions at a time; seed {seed}",
        bench.nodes,
        bench.f + 1,
        bench.window
    ))?;
    console.line(format!(
        "{:<24} {:>9} {:>9} {:>9} {:>9}",
        "", "attempts", "commits", "conflicts", "refusals"
    ))?;
    let row = |name: &str, tally: &Tally| {
        let Tally { attempts, commits, conflicts, refusals } = tally;
        format!("{name:<24} {attempts:>9} {commits:>9} {conflicts:>9} {refusals:>9}")
    };
    for (name, tally) in &outcome.kinds {
        console.line(row(name, tally))?;
    }
    console.line(row("all", &total))?;
    console.line(format!(
        "{:.2} requests between nodes for each transaction that committed",
        outcome.requests_per_commit()
    ))?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}
