//! `highwire bench clients`: how soon one client of the store is answered over TCP and by RPCs, in turns and in one run.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use highwire_store::{Client, Transport};

use super::served::{Served, histogram};

/// Options of `highwire bench clients`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --at it starts a cluster of its own on this machine and ends it. The client is one thread with one question at a time. TCP and RPCs take
turns, so that both meet the machine in the same state.

Examples:
  highwire bench clients
  highwire bench clients --nodes 3 --rounds 20"
)]
pub(super) struct Args {
    /// Doors of a cluster that runs.
    #[arg(long, value_delimiter = ',')]
    at: Vec<String>,
    /// Nodes of the cluster that is started otherwise.
    #[arg(long, default_value_t = 1, conflicts_with = "at", value_parser = clap::value_parser!(u16).range(1..=16))]
    nodes: u16,
    /// Turns of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Operations of each kind in a turn.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    operations: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const TABLE: &str = "bench";
/// Keys that are read and written, in turn.
const KEYS: u32 = 1000;

/// A client over one transport, and its times.
struct Side {
    name: &'static str,
    client: Client,
    get: Histogram<u64>,
    transaction: Histogram<u64>,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let cluster = Served::start(args.nodes, &args.at)?;
    let mut sides = [("tcp", Transport::Tcp), ("rpc", Transport::Rpc)]
        .into_iter()
        .map(|(name, transport)| Side::new(name, transport, &cluster.doors))
        .collect::<Result<Vec<_>>>()?;
    load(&mut sides[0].client)?;
    // The first turn warms up.
    for round in 0..=args.rounds {
        for side in &mut sides {
            side.turn(args.operations, round > 0)?;
        }
    }
    print(args, &sides);
    Ok(ExitCode::SUCCESS)
}

fn load(client: &mut Client) -> Result<()> {
    for key in 0..KEYS {
        client.put(TABLE, name(key), "0").context("loading keys")?;
    }
    Ok(())
}

fn name(key: u32) -> String {
    format!("key-{:06}", key % KEYS)
}

impl Side {
    fn new(name: &'static str, transport: Transport, doors: &[String]) -> Result<Side> {
        let mut client = Client::new(doors.iter().cloned());
        client.set_transport(transport);
        client.set_patience(Duration::from_secs(60));
        Ok(Side { name, client, get: histogram()?, transaction: histogram()? })
    }

    fn turn(&mut self, operations: u32, counts: bool) -> Result<()> {
        for at in 0..operations {
            let began = Instant::now();
            self.client.get(TABLE, name(at)).context("a read")?;
            if counts {
                self.get.saturating_record(began.elapsed().as_nanos() as u64);
            }
        }
        for at in 0..operations {
            let keys = [name(at), name(at + 1)];
            let began = Instant::now();
            self.client.transact(|transaction| exchange(transaction, &keys)).context("a transaction")?;
            if counts {
                self.transaction.saturating_record(began.elapsed().as_nanos() as u64);
            }
        }
        Ok(())
    }
}

/// Reads two keys with one question, and gives each the other one's value.
fn exchange(
    transaction: &mut highwire_store::ClientTransaction<'_>,
    keys: &[String; 2],
) -> Result<(), highwire_store::StoreError> {
    let values = transaction.get_all(&[(TABLE, keys[0].as_bytes()), (TABLE, keys[1].as_bytes())])?;
    for (key, value) in keys.iter().zip(values.iter().rev()) {
        transaction.put(TABLE, key, value.as_deref().unwrap_or_default());
    }
    Ok(())
}

fn print(args: &Args, sides: &[Side]) {
    let us = |times: &Histogram<u64>, quantile: f64| times.value_at_quantile(quantile) as f64 / 1000.0;
    if args.json {
        let of = |times: &Histogram<u64>| serde_json::json!({ "median_us": us(times, 0.5), "p99_us": us(times, 0.99), "operations": times.len() });
        let side = |side: &Side| {
            (
                side.name.to_string(),
                serde_json::json!({ "get": of(&side.get), "transaction": of(&side.transaction) }),
            )
        };
        let all: serde_json::Map<String, serde_json::Value> = sides.iter().map(side).collect();
        println!("{}", serde_json::Value::Object(all));
        return;
    }
    println!("one client, one question at a time, {} nodes; times in µs", args.nodes);
    println!("{:24} {:>10} {:>10} {:>10} {:>10}", "", "tcp 50 %", "rpc 50 %", "tcp/rpc", "rpc 99 %");
    for (what, of) in [
        ("GET", (|side: &Side| &side.get) as fn(&Side) -> &Histogram<u64>),
        ("transaction, two keys", |side: &Side| &side.transaction),
    ] {
        let [tcp, rpc] = [us(of(&sides[0]), 0.5), us(of(&sides[1]), 0.5)];
        println!("{what:24} {tcp:>10.1} {rpc:>10.1} {:>10.1} {:>10.1}", tcp / rpc, us(of(&sides[1]), 0.99));
    }
}
