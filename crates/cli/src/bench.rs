//! `highwire bench`: what parts of Highwire cost by themselves.

mod rpc;
mod stage;
mod wake;

use std::process::ExitCode;

use anyhow::Result;

/// Options of `highwire bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// How many RPCs two cores exchange, and how soon one is answered.
    Rpc(rpc::Args),
    /// How soon a waiting thread has its event, and what that costs.
    Wake(wake::Args),
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Rpc(args) => rpc::run(args),
        What::Wake(args) => wake::run(args),
    }
}
