//! `highwire broker`: owns an address that processes share. Devices start it by themselves, so users need not
//! know it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use highwire_host::broker;

/// Options of `highwire broker`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Says `ready` and goes on in the background; ends two seconds after the last process has left.

Examples:
  highwire broker --address 127.83.20.7"
)]
pub struct Args {
    /// The address to own.
    #[arg(long)]
    address: IpAddr,
    /// The directory in which the user's processes find each other.
    #[arg(long)]
    registry: Option<PathBuf>,
    /// Take over from a broker that was killed; standard input is what it has left.
    #[arg(long, hide = true)]
    succeed: bool,
}

/// Serves until no process needs it.
pub fn run(args: &Args) -> Result<ExitCode> {
    // The broker has already reported the error to the process that started it.
    match broker::serve(args.registry.as_deref(), args.address, args.succeed) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(_) => Ok(ExitCode::FAILURE),
    }
}
