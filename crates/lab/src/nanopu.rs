//! `highwire nanopu`: programs on the simulated nanoPU, cycle by cycle.

mod answers;
mod bare;
mod bench;
mod cluster;
mod commits;
mod dma;
mod figures;
mod files;
mod gdb;
mod limits;
mod mistakes;
mod nic;
mod options;
mod outcome;
mod place;
mod problems;
mod requests;
mod run;
mod signature;
mod stalls;
mod theory;
mod trace;
mod transport;

use std::process::ExitCode;

use anyhow::Result;

/// Options of `highwire nanopu`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a RISC-V program and send it messages.
    Run(Box<options::Args>),
    /// Run several nodes with their programs on a switch, from a file.
    Cluster(cluster::Args),
    /// Hold core selection with ideal servers against queueing theory.
    Theory(theory::Args),
    /// Run the paper's experiments and compare.
    Figures(figures::Args),
    /// Measure the simulator's speed, in core cycles per second of CPU time.
    Bench(bench::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Theory(args) => theory::run(args),
        Command::Figures(args) => figures::run(args),
        Command::Bench(args) => bench::run(args),
    }
}

/// The clock of the prototype.
const CYCLES_PER_NANOSECOND: f64 = 3.2;
/// The load generator's address.
const CLIENT: u32 = 0x0a00_0001;
/// The node's address.
const NODE: u32 = 0x0a00_0002;
