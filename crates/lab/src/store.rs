//! `highwire-lab store`: the store's checks. `highwire store check` and `faults` come here.

mod account;
mod check;
mod faults;
mod workload;

use std::process::ExitCode;

use anyhow::Result;

/// Options of `highwire-lab store`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run simulated clusters through faults, and check that their transactions were strictly serialisable.
    #[command(
        after_help = "One seed is one cluster of 3 to 7 nodes and one run of faults, the same every time.

Examples:
  highwire store check --seed 7
  highwire store check --seeds 10000
  highwire store check --seed 7 --history seed-7.edn   # for Elle
  highwire store check --workload tatp"
    )]
    Check(check::Args),
    /// Do real faults to a cluster of processes under load, and tell how long each was felt.
    #[command(
        after_help = "Starts three nodes and etcd, and clients that count. What was committed is counted again after every fault: the exit status is 1 if
anything was lost. Partitions and full disks need the right to make namespaces.

Examples:
  highwire store faults
  highwire store faults --level disk --only kill,partition,rolling-restart"
    )]
    Faults(faults::Args),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Check(args) => check::run(args),
        Command::Faults(args) => faults::run(args),
    }
}
