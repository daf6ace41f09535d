//! `highwire store`: the transactional store.

mod check;

use std::process::ExitCode;

use anyhow::Result;

/// Options of `highwire store`.
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
  highwire store check --seeds 10000"
    )]
    Check(check::Args),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Check(args) => check::run(args),
    }
}
