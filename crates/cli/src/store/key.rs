//! `highwire store key`: makes a cluster's key.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::console::Console;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file, which must not be there yet.
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    highwire_store::make_key(&args.file).with_context(|| args.file.display().to_string())?;
    let mut console = Console::new();
    console.line(format_args!("{}: a new key, for its owner only", args.file.display()))?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}
