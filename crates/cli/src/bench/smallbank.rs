//! `highwire bench smallbank`: SmallBank over the transactional store, in integers, so that no cent can hide.
//!
//! The mix and the skew are FaSST's (FaSST §6.2): 4 % of the accounts are hot, and 9 of 10 transactions draw theirs among them. Clients are
//! threads of this process with a connection each; they wait for each transaction before the next (closed loop).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use highwire_stdx::Rng;
use highwire_store::{Client, ClientTransaction, StoreError};
use serde_json::json;

use crate::console::{Console, Tone};
use crate::values::{seconds_or_span, show_count, show_ns};

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

const SAVINGS: &str = "savings";
const CHECKING: &str = "checking";
/// What the bank itself has put in or taken out: with it, the sum of everything never changes.
const LEDGER: &str = "ledger";
/// Cents in each account of either kind at first.
const BALANCE: i64 = 100_000;
/// Of the accounts, in percent; and of the transactions that draw among them.
const HOT_ACCOUNTS: u64 = 4;
const HOT_TRANSACTIONS: u64 = 90;
/// Accounts that one transaction opens.
const LOAD: u64 = 50;

/// Cluster that is there, or one of this command's own.
struct Cluster {
    supervisor: Option<Child>,
    doors: Vec<String>,
}

impl Cluster {
    fn start(args: &Args) -> Result<Cluster> {
        if !args.at.is_empty() {
            return Ok(Cluster { supervisor: None, doors: args.at.clone() });
        }
        let port = free_ports(args.nodes)?;
        let mut supervisor = Command::new(std::env::current_exe()?)
            .args(["store", "serve", "--nodes", &args.nodes.to_string(), "--port", &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("a cluster")?;
        let output = supervisor.stdout.take().context("the cluster's output")?;
        let doors = (0..args.nodes).map(|node| format!("127.0.0.1:{}", port + node)).collect();
        let cluster = Cluster { supervisor: Some(supervisor), doors };
        let mut lines = BufReader::new(output).lines();
        if !lines.any(|line| line.is_ok_and(|line| line.contains("the store serves"))) {
            bail!("the cluster has ended before it served");
        }
        Ok(cluster)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Some(supervisor) = &mut self.supervisor else { return };
        if let Some(pid) = rustix::process::Pid::from_raw(supervisor.id() as i32) {
            // Asked and not killed: it has nodes to end and a folder to remove.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = supervisor.wait();
    }
}

fn free_ports(count: u16) -> Result<u16> {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0")?;
        let port = first.local_addr()?.port();
        let others = (1..count).map(|node| TcpListener::bind(("127.0.0.1", port.saturating_add(node))));
        if port < u16::MAX - count && others.collect::<std::io::Result<Vec<_>>>().is_ok() {
            return Ok(port);
        }
    }
    bail!("no {count} ports in a row are free")
}

/// SmallBank's transactions, with their share in percent.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Amalgamate,
    Balance,
    DepositChecking,
    SendPayment,
    TransactSavings,
    WriteCheck,
}

const MIX: [(Kind, u64); 6] = [
    (Kind::Amalgamate, 15),
    (Kind::Balance, 15),
    (Kind::DepositChecking, 15),
    (Kind::SendPayment, 25),
    (Kind::TransactSavings, 15),
    (Kind::WriteCheck, 15),
];

fn draw_kind(rng: &mut Rng) -> Kind {
    let mut drawn = rng.below(100);
    for (kind, share) in MIX {
        if drawn < share {
            return kind;
        }
        drawn -= share;
    }
    Kind::Balance
}

/// One client, and what it has seen.
struct Teller {
    client: Client,
    name: String,
    rng: Rng,
    accounts: u64,
    /// Money that the bank gives or takes is written down.
    keeps_ledger: bool,
    latencies: Histogram<u64>,
    unknown: u64,
    unavailable: u64,
}

impl Teller {
    /// One transaction, until it is committed or cannot be.
    fn work(&mut self) -> Result<bool, StoreError> {
        let kind = draw_kind(&mut self.rng);
        let hot = (self.accounts * HOT_ACCOUNTS / 100).max(2);
        let among = if self.rng.below(100) < HOT_TRANSACTIONS { hot } else { self.accounts };
        let one = self.rng.below(among);
        let two = (one + self.rng.between(1, among - 1)) % among;
        let amount = self.rng.between(1, 500) as i64;
        let (ledger, keeps_ledger) = (self.name.clone(), self.keeps_ledger);
        let began = Instant::now();
        let result = self.client.transact(|transaction| {
            let made = run(transaction, kind, &name(one), &name(two), amount)?;
            if keeps_ledger && made != 0 {
                let there = number(transaction.get(LEDGER, &ledger)?)?;
                transaction.put(LEDGER, &ledger, (there - made).to_string());
            }
            Ok(())
        });
        match result {
            Ok(()) => {
                self.latencies.saturating_record(began.elapsed().as_nanos() as u64);
                Ok(true)
            }
            Err(StoreError::Unknown(_)) => {
                self.unknown += 1;
                Ok(false)
            }
            Err(StoreError::Unavailable(_) | StoreError::Conflict) => {
                self.unavailable += 1;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn name(account: u64) -> String {
    format!("{account:06}")
}

fn number(value: Option<Vec<u8>>) -> Result<i64, StoreError> {
    let Some(value) = value else { return Ok(0) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| StoreError::Aborted("an account holds no number".into()))
}

/// Does it; how much money there is more than before.
fn run(
    transaction: &mut ClientTransaction<'_>,
    kind: Kind,
    one: &str,
    two: &str,
    amount: i64,
) -> Result<i64, StoreError> {
    let read =
        |transaction: &mut ClientTransaction<'_>, keys: &[(&str, &str)]| -> Result<Vec<i64>, StoreError> {
            let keys: Vec<(&str, &[u8])> = keys.iter().map(|(table, key)| (*table, key.as_bytes())).collect();
            transaction.get_all(&keys)?.into_iter().map(number).collect()
        };
    Ok(match kind {
        Kind::Amalgamate => {
            let there = read(transaction, &[(SAVINGS, one), (CHECKING, one), (CHECKING, two)])?;
            transaction.put(SAVINGS, one, "0");
            transaction.put(CHECKING, one, "0");
            transaction.put(CHECKING, two, (there[0] + there[1] + there[2]).to_string());
            0
        }
        Kind::Balance => {
            read(transaction, &[(SAVINGS, one), (CHECKING, one)])?;
            0
        }
        Kind::DepositChecking => {
            let there = read(transaction, &[(CHECKING, one)])?;
            transaction.put(CHECKING, one, (there[0] + amount).to_string());
            amount
        }
        Kind::SendPayment => {
            let there = read(transaction, &[(CHECKING, one), (CHECKING, two)])?;
            if there[0] >= amount {
                transaction.put(CHECKING, one, (there[0] - amount).to_string());
                transaction.put(CHECKING, two, (there[1] + amount).to_string());
            }
            0
        }
        Kind::TransactSavings => {
            let there = read(transaction, &[(SAVINGS, one)])?;
            transaction.put(SAVINGS, one, (there[0] + amount).to_string());
            amount
        }
        Kind::WriteCheck => {
            let there = read(transaction, &[(SAVINGS, one), (CHECKING, one)])?;
            // Overdrawn costs a cent more.
            let fee = i64::from(there[0] + there[1] < amount);
            transaction.put(CHECKING, one, (there[1] - amount - fee).to_string());
            -amount - fee
        }
    })
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

/// All money, and what the ledger has against it.
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

/// Measures.
pub(super) fn run_bench(args: &Args) -> Result<ExitCode> {
    let cluster = Cluster::start(args)?;
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

/// Up to an hour: with bounds of its own choice, a histogram that saturates holds nothing beyond 2 ns.
fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?)
}

/// Milliseconds over which commits are counted, to see when there were none.
const SLICE_MS: u64 = 50;

struct Sums {
    committed: u64,
    retries: u64,
    unknown: u64,
    unavailable: u64,
    seconds: f64,
}

/// Kills the process of the last node, as `kill -9` does.
fn kill_last(doors: &[String]) {
    let Some(door) = doors.last() else { return };
    let Ok(status) = Client::new([door.clone()]).status() else { return };
    if let Some(pid) = rustix::process::Pid::from_raw(status.process as i32) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn report(
    args: &Args,
    sums: &Sums,
    latencies: &Histogram<u64>,
    slices: &[u64],
    before: i64,
    after: Option<i64>,
) -> Result<ExitCode> {
    let rate = sums.committed as f64 / sums.seconds;
    let tried = (sums.committed + sums.retries).max(1);
    let aborts = sums.retries as f64 / tried as f64;
    let quantile = |q: f64| latencies.value_at_quantile(q);
    // Without the ends: clients begin and end one after the other.
    let inner = slices.get(1..slices.len().saturating_sub(3)).unwrap_or_default();
    let third = inner.len() / 3;
    let per_second = |slices: &[u64]| {
        slices.iter().sum::<u64>() as f64 * 1000.0 / (SLICE_MS * slices.len().max(1) as u64) as f64
    };
    let (whole, last) = (per_second(&inner[..third]), per_second(&inner[2 * third..]));
    let longest = inner.split(|&count| count > 0).map(<[u64]>::len).max().unwrap_or(0) as u64 * SLICE_MS;
    let lost = after.map(|after| before - after);
    let mut console = Console::new();
    if args.json {
        let mut fields = BTreeMap::from([
            ("transactions_per_second", json!(rate)),
            ("committed", json!(sums.committed)),
            ("abort_share", json!(aborts)),
            ("unknown", json!(sums.unknown)),
            ("unavailable", json!(sums.unavailable)),
            ("p50_ns", json!(quantile(0.5))),
            ("p99_ns", json!(quantile(0.99))),
        ]);
        if let Some(lost) = lost {
            fields.insert("cents_lost", json!(lost));
            fields.insert("transactions_per_second_before", json!(whole));
            fields.insert("transactions_per_second_after", json!(last));
            fields.insert("longest_pause_ms", json!(longest));
        }
        console.json(&fields)?;
    } else {
        console.line(format!(
            "SmallBank: {} transactions/s by {} clients, {:.1} % of the attempts in each other's way, half within {}, 99 % within {}",
            show_count(rate),
            args.clients,
            aborts * 100.0,
            show_ns(quantile(0.5) as f64),
            show_ns(quantile(0.99) as f64),
        ))?;
        if let Some(lost) = lost {
            console.line(format!(
                "a node was killed: {} transactions/s before, none for {longest} ms, {} at the end; {} of unknown outcome",
                show_count(whole),
                show_count(last),
                sums.unknown,
            ))?;
            let verdict = match lost {
                0 => console.paint(Tone::Good, "no cent was lost or made"),
                lost => console.paint(Tone::Bad, &format!("{lost} cents are missing")),
            };
            console.line(format!("audit: {before} cents before, {} after: {verdict}", before - lost))?;
        }
    }
    console.finish()?;
    Ok(if lost.is_none_or(|lost| lost == 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_kept_as_they_were() {
        let mut latencies = histogram().expect("bounds");
        latencies.saturating_record(5_000_000);
        assert!(latencies.value_at_quantile(0.5).abs_diff(5_000_000) < 5_000);
    }

    #[test]
    fn the_mix_is_fassts() {
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u64>(), 100);
        let mut rng = Rng::new(1);
        let payments = (0..10_000).filter(|_| matches!(draw_kind(&mut rng), Kind::SendPayment)).count();
        assert!((2300..2700).contains(&payments), "{payments}");
    }
}
