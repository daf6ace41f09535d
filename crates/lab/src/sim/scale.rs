//! `highwire sim scale`: operations per second while a cluster grows, with connections and without.

use std::process::ExitCode;

use anyhow::Result;
use highwire_sim::fabric::Span;
use highwire_sim::scale::{Measured, Nic, Operation, Setting, measure};
use serde_json::json;

use crate::console::{Console, Tone};
use crate::values::seconds_or_span;

/// Options of `highwire sim scale`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Simulated: software costs nothing, and what a card costs is given by --cache, --packet and --miss.

Examples:
  highwire sim scale
  highwire sim scale --cache 400 --miss 60ns --packet 6ns"
)]
pub(super) struct Args {
    /// Sizes of the cluster.
    #[arg(long, value_delimiter = ',', default_value = "2,6,11,22,33,44,66,99", value_parser = clap::value_parser!(u32).range(2..=256))]
    nodes: Vec<u32>,
    /// Threads of each node: each has a queue pair for every peer, or one for all.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Operations that a thread keeps under way.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=16))]
    window: u32,
    /// Bytes of a READ, of a request and of a response.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    bytes: u32,
    /// Contexts of queue pairs that a card holds.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..))]
    cache: u32,
    /// What a packet takes in the card.
    #[arg(long, default_value = "21ns", value_parser = seconds_or_span)]
    packet: std::time::Duration,
    /// What it takes the card to fetch a context.
    #[arg(long, default_value = "190ns", value_parser = seconds_or_span)]
    miss: std::time::Duration,
    /// What is drawn follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Plays every size.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let span = |time: std::time::Duration| Span::from_ns(time.as_nanos() as u64);
    let nic = Nic { cached: args.cache as usize, packet: span(args.packet), miss: span(args.miss) };
    let mut console = Console::new();
    let mut documents = Vec::new();
    if !args.json {
        let title = format!(
            "simulated: {} contexts in the card, {} ns for a packet, {} ns more without its context",
            args.cache,
            args.packet.as_nanos(),
            args.miss.as_nanos()
        );
        console.line(console.paint(Tone::Heading, &title))?;
        let head = format!(
            "{:>6}{:>10}{:>9}{:>10}{:>9}{:>9}{:>10}{:>9}{:>9}",
            "nodes", "RC READ", "hits", "QPs", "RC RPC", "hits", "UD RPC", "hits", "QPs"
        );
        console.line(console.paint(Tone::Faint, &head))?;
    }
    for &nodes in &args.nodes {
        let setting = Setting {
            nodes,
            threads: args.threads,
            window: args.window,
            bytes: args.bytes,
            nic,
            seed: args.seed,
            ..Setting::default()
        };
        let play = |operation| measure(&setting, operation).map_err(|broken| anyhow::anyhow!("{broken:?}"));
        let [read, rc, ud] = [play(Operation::Read)?, play(Operation::RcRpc)?, play(Operation::UdRpc)?];
        if args.json {
            documents.push(json!({ "nodes": nodes, "rc_read": document(&read), "rc_rpc": document(&rc), "ud_rpc": document(&ud) }));
        } else {
            console.line(format!(
                "{nodes:>6}{:>8.2} M{:>7.0} %{:>10}{:>7.2} M{:>7.0} %{:>8.2} M{:>7.0} %{:>9}",
                read.rate,
                read.hits_percent,
                read.queue_pairs,
                rc.rate,
                rc.hits_percent,
                ud.rate,
                ud.hits_percent,
                ud.queue_pairs,
            ))?;
        }
    }
    if args.json {
        console.json(&documents)?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn document(measured: &Measured) -> serde_json::Value {
    json!({
        "queue_pairs": measured.queue_pairs,
        "operations": measured.operations,
        "millions_per_second_and_node": measured.rate,
        "hits_percent": measured.hits_percent,
    })
}
