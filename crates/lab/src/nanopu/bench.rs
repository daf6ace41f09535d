//! `highwire nanopu bench`: how fast the simulator is.

mod network;
mod programs;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use highwire_nanopu::client::Client;
use highwire_nanopu::packet::MESSAGE_BYTES_MAX;
use highwire_nanopu::{Node, NodeConfig};
use highwire_riscv::Program;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::{CLIENT, CYCLES_PER_NANOSECOND, NODE, limits, requests};
use crate::console::Console;

/// Options of `highwire nanopu bench`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a program it runs a table of them: benchmarks on a core with its caches, over and over, and programs of the nanoPU with their
NIC under load. No idle cycle is skipped. Cycles like those seen before are repeated from memory, which changes no result; the last column is
what a core does that works every cycle out.

A program named runs by itself. Up to 16 cores are one node, of which no cycle is skipped: idle cores poll, and each of their cycles is simulated.

More are nodes of four on a fat tree, whose other hosts send them messages for a millisecond. There, polling is passed over where
nothing else happens, which changes no result, unless --every-cycle is given.

Examples:
  highwire nanopu bench
  highwire nanopu bench --runs 5 --json
  highwire nanopu bench --only loopback
  highwire nanopu bench riscv/build/loopback.elf --cores 4 --json
  highwire nanopu bench --cores 324"
)]
pub(crate) struct Args {
    /// The program, which gets a message of --bytes every --interval cycles; with more than one core riscv/build/loopback.elf if none is named.
    program: Option<PathBuf>,
    /// How many cores run it.
    #[arg(long, default_value_t = 1, value_parser = limits::whole::<u32>(1..=4096))]
    cores: u32,
    /// Threads for a network of nodes.
    #[arg(long, default_value_t = 1, value_parser = limits::threads())]
    threads: usize,
    /// How many messages, to one node.
    #[arg(long, default_value_t = 50_000, value_parser = limits::messages())]
    count: u32,
    /// How long each is.
    #[arg(long, default_value_t = 64, value_parser = limits::whole::<usize>(0..=MESSAGE_BYTES_MAX as u64))]
    bytes: usize,
    /// Cycles between two, to each node; 200 if not given, for a network 2000.
    #[arg(long, value_parser = limits::cycles(1))]
    interval: Option<u64>,
    /// Simulate idle polling of a network's nodes as well.
    #[arg(long)]
    every_cycle: bool,
    /// Runs of each program of the table, of which the median counts.
    #[arg(long, default_value_t = 3, value_parser = limits::whole::<u32>(1..=10_000))]
    runs: u32,
    /// Of the table, only the programs with this in their names.
    #[arg(long, value_name = "NAME", conflicts_with = "program")]
    only: Option<String>,
    /// Core cycles of each run, in millions.
    #[arg(long, default_value_t = 20, value_parser = limits::whole::<u64>(1..=1_000_000))]
    mcycles: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    cores: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<String>,
    simulated_us: f64,
    core_cycles: u64,
    cpu_seconds: f64,
    seconds: f64,
    core_cycles_per_second: f64,
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The cycles that one node ran.
fn one_node(args: &Args, program: &Program) -> Result<u64> {
    let config = NodeConfig { cores: args.cores as usize, ..NodeConfig::default() };
    let mut node = Node::new(program, &config)?;
    let mut requests = requests::alike(args.count, args.bytes, 0, args.interval.unwrap_or(200))?;
    requests.iter_mut().for_each(|request| request.sent += 10_000);
    let _ = Client::new(CLIENT, NODE, 140).play(&mut node, &requests, 1_000_000, |_, _| {});
    Ok(node.cycle())
}

/// Prints the table.
fn run_all(args: &Args) -> Result<ExitCode> {
    let mut console = Console::new();
    let only = args.only.as_deref().unwrap_or_default();
    let rows = programs::measure(only, args.mcycles * 1_000_000, args.runs, |round, name| {
        if !args.json {
            eprintln!("run {round} of {}: {name}", args.runs);
        }
    })?;
    if args.json {
        console.json(&rows)?;
    } else {
        console.line("program                 core cycles   CPU s   M core cycles/s      lowest to highest   worked out   all worked out")?;
        for row in &rows {
            let [median, lowest, highest] = row.core_cycles_per_second.map(|rate| rate / 1e6);
            console.line(format!(
                "{:<22} {:>12} {:>7.2} {median:>17.1} {:>22} {:>10.2} % {:>14.1}",
                row.program,
                row.core_cycles,
                row.cpu_seconds,
                format!("{lowest:.1} to {highest:.1}"),
                100.0 * row.worked_out as f64 / row.core_cycles as f64,
                row.worked_out_per_second / 1e6,
            ))?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let path = match &args.program {
        Some(path) => path.clone(),
        None if args.cores == 1 => return run_all(args),
        None => PathBuf::from("riscv/build/loopback.elf"),
    };
    let file = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let program = Program::parse(&file).with_context(|| format!("{} cannot run here", path.display()))?;
    let started = Instant::now();
    let before = cpu_seconds();
    let (cycles, answered) = match args.cores {
        0..=16 => (one_node(args, &program)?, None),
        _ => network::play(args, &program)?,
    };
    let (cpu_seconds, seconds) = (cpu_seconds() - before, started.elapsed().as_secs_f64());
    let core_cycles = cycles * u64::from(args.cores);
    let core_cycles_per_second = core_cycles as f64 / cpu_seconds;
    let simulated_us = cycles as f64 / CYCLES_PER_NANOSECOND / 1000.0;
    let report = Report {
        cores: args.cores,
        answered,
        simulated_us,
        core_cycles,
        cpu_seconds,
        seconds,
        core_cycles_per_second,
    };
    let mut console = Console::new();
    if args.json {
        console.json(&report)?;
    } else {
        console.line(format!(
            "{simulated_us:.0} µs of {} cores, {core_cycles} core cycles, in {cpu_seconds:.2} s of CPU time ({seconds:.2} s by the clock): {:.1} M a second",
            args.cores,
            core_cycles_per_second / 1e6
        ))?;
        if let Some(answered) = &report.answered {
            console.line(answered)?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}
