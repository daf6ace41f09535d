//! `highwire bench smallbank`: SmallBank over the transactional store, in integers, so that no cent can hide.
//!
//! The mix and the skew are FaSST's (FaSST §6.2): 4 % of the accounts are hot, and 9 of 10 transactions draw theirs among them. Clients are
//! threads of this process with a connection each; they wait for each transaction before the next (closed loop).

mod report;
mod teller;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use highwire_stdx::Rng;
use highwire_store::Client;

use crate::values::seconds_or_span;

use super::served::{Served, histogram};
use report::{SLICE_MS, Sums, report};
use teller::{CHECKING, LEDGER, SAVINGS, Teller, name, number};

/// Options of `highwire bench smallbank`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without --at it starts a cluster of its own on this machine and ends it.

Examples:
  highwire bench smallbank --clients 8 --seconds 10
  highwire bench smallbank --lose-node")]
pub(super) struct Args {
    /// Doors of a cluster that runs.
    #[arg(long, value_delimiter = ',')]
    at: Vec<String>,
    /// Nodes of the cluster that is started otherwise.
    #[arg(long, default_value_t = 3, conflicts_with = "at", value_parser = clap::value_parser!(u16).range(1..=16))]
    nodes: u16,
    /// Clients at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=512))]
    clients: u64,
    /// Accounts, each with savings and a checking balance.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(50..=100_000))]
    accounts: u64,
    /// For how long to measure.
    #[arg(long, default_value = "10s", value_parser = seconds_or_span)]
    seconds: Duration,
    /// Decides who pays whom.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kill one of the nodes after a third of the time.
    #[arg(long, conflicts_with = "at")]
    lose_node: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Cents in each account of either kind at first.
const BALANCE: i64 = 100_000;
/// Accounts that one transaction opens.
const LOAD: u64 = 50;

/// Measures.
pub(super) fn run_bench(args: &Args) -> Result<ExitCode> {
    let cluster = Served::start(args.nodes, &args.at)?;
    load(args, &cluster.doors)?;
    let before = audit(&cluster.doors)?;
    let is_over = AtomicBool::new(false);
    let slices: Vec<AtomicU64> =
        (0..args.seconds.as_millis() as u64 / SLICE_MS + 2).map(|_| AtomicU64::new(0)).collect();
    let began = Instant::now();
    let tellers: Vec<Result<Teller>> = std::thread::scope(|scope| {
        let serve = |own: u64| {
            let mut doors = cluster.doors.clone();
            let length = doors.len();
            doors.rotate_left(own as usize % length);
            let mut client = Client::new(doors);
            client.set_patience(Duration::from_secs(10));
            let mut teller = Teller {
                client,
                name: format!("client-{own}"),
                rng: Rng::new(args.seed.wrapping_mul(1000) + own),
                accounts: args.accounts,
                keeps_ledger: args.lose_node,
                latencies: histogram()?,
                unknown: 0,
                unavailable: 0,
            };
            while !is_over.load(Ordering::Relaxed) {
                if teller.work()? {
                    let slice = began.elapsed().as_millis() as u64 / SLICE_MS;
                    if let Some(slice) = slices.get(slice as usize) {
                        slice.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Ok(teller)
        };
        let threads: Vec<_> = (0..args.clients).map(|own| scope.spawn(move || serve(own))).collect();
        if args.lose_node {
            std::thread::sleep(args.seconds / 3);
            kill_last(&cluster.doors);
        }
        std::thread::sleep(args.seconds.saturating_sub(began.elapsed()));
        is_over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a client panicked")))
            .collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let tellers = tellers.into_iter().collect::<Result<Vec<_>>>()?;
    let mut latencies = histogram()?;
    for teller in &tellers {
        latencies.add(&teller.latencies)?;
    }
    let after = args.lose_node.then(|| audit(&cluster.doors)).transpose()?;
    let sums = Sums {
        committed: latencies.len(),
        retries: tellers.iter().map(|teller| teller.client.counts().retries).sum(),
        unknown: tellers.iter().map(|teller| teller.unknown).sum(),
        unavailable: tellers.iter().map(|teller| teller.unavailable).sum(),
        seconds,
    };
    let slices: Vec<u64> = slices.iter().map(|slice| slice.load(Ordering::Relaxed)).collect();
    report(args, &sums, &latencies, &slices, before, after)
}

/// Kills the process of the last node, as `kill -9` does.
fn kill_last(doors: &[String]) {
    let Some(door) = doors.last() else { return };
    let Ok(status) = Client::new([door.clone()]).status() else { return };
    if let Some(pid) = rustix::process::Pid::from_raw(status.process as i32) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn load(args: &Args, doors: &[String]) -> Result<()> {
    let mut client = Client::new(doors);
    client.set_patience(Duration::from_secs(60));
    for first in (0..args.accounts).step_by(LOAD as usize) {
        let opened = client.transact(|transaction| {
            for account in first..(first + LOAD).min(args.accounts) {
                transaction.put(SAVINGS, name(account), BALANCE.to_string());
                transaction.put(CHECKING, name(account), BALANCE.to_string());
            }
            Ok(())
        });
        opened.context("opening accounts")?;
    }
    Ok(())
}

/// The sum of all money, less the bank's own ledger.
fn audit(doors: &[String]) -> Result<i64> {
    let mut client = Client::new(doors);
    client.set_patience(Duration::from_secs(60));
    let sum = client.transact(|transaction| {
        let mut sum = 0;
        for table in [SAVINGS, CHECKING, LEDGER] {
            for entry in transaction.scan(table, "")? {
                sum += number(Some(entry.value))?;
            }
        }
        Ok(sum)
    });
    sum.context("the audit")
}
