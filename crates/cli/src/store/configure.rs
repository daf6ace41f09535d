//! `highwire store configure`: gives a cluster the numbers of its file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use highwire_store::ClusterConfig;

use crate::console::Console;
use crate::failure::usage;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The cluster's file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The register, if it is not the file's.
    #[arg(long, value_name = "DIR|etcd://HOST:PORT,…/NAME")]
    register: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut config = ClusterConfig::load(&args.config).map_err(|error| usage(error.to_string()))?;
    if let Some(register) = &args.register {
        config.register.clone_from(register);
    }
    let is_changed = highwire_store::configure(&config).map_err(|why| anyhow!(why))?;
    let mut console = Console::new();
    let state = if is_changed { "the cluster has changed" } else { "nothing to change" };
    console.line(format_args!("{state}: lease_ms {}, rows_max {}", config.lease_ms, config.rows_max))?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}
