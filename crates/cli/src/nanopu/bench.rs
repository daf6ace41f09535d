//! `highwire nanopu bench`: how fast the simulator is.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_nanopu::client::Client;
use highwire_nanopu::{Node, NodeConfig};
use highwire_riscv::Program;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::{CLIENT, NODE, requests};
use crate::console::Console;

/// Options of `highwire nanopu bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "No cycle is skipped: idle cores poll, and each of their cycles is simulated.

Examples:
  highwire nanopu bench riscv/build/loopback.elf
  highwire nanopu bench riscv/build/loopback.elf --cores 4 --json")]
pub(crate) struct Args {
    /// The program, which gets a message of --bytes every --interval cycles.
    program: PathBuf,
    /// How many cores run it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    cores: u8,
    /// How many messages.
    #[arg(long, default_value_t = 50_000)]
    count: u32,
    /// How long each is.
    #[arg(long, default_value_t = 64)]
    bytes: usize,
    /// Cycles between two.
    #[arg(long, default_value_t = 200)]
    interval: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    cores: u8,
    core_cycles: u64,
    cpu_seconds: f64,
    core_cycles_per_second: f64,
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let file = fs::read(&args.program).with_context(|| format!("cannot read {}", args.program.display()))?;
    let program =
        Program::parse(&file).with_context(|| format!("{} cannot run here", args.program.display()))?;
    let config = NodeConfig { cores: args.cores.into(), ..NodeConfig::default() };
    let mut node = Node::new(&program, &config)?;
    let mut requests = requests::alike(args.count, args.bytes, 0, args.interval);
    requests.iter_mut().for_each(|request| request.sent += 10_000);
    let before = cpu_seconds();
    let _ = Client::new(CLIENT, NODE, 140).play(&mut node, &requests, 1_000_000, |_, _| {});
    let cpu_seconds = cpu_seconds() - before;
    let core_cycles = node.cycle() * u64::from(args.cores);
    let core_cycles_per_second = core_cycles as f64 / cpu_seconds;
    let report = Report { cores: args.cores, core_cycles, cpu_seconds, core_cycles_per_second };
    let mut console = Console::new();
    if args.json {
        console.json(&report)?;
    } else {
        console.line(format!(
            "{} core cycles in {cpu_seconds:.2} s of CPU time: {:.1} M a second",
            core_cycles,
            core_cycles_per_second / 1e6
        ))?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}
