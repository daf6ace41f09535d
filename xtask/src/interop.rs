//! Interoperation with the Linux kernel's software RNIC.

use std::process::ExitCode;

use anyhow::Result;

use crate::shell::Log;
use crate::test::Tally;

/// Options of `cargo xtask interop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the scenarios with their output on the terminal.
pub(crate) fn run(_args: &Args) -> Result<ExitCode> {
    println!("interop: no scenario yet");
    Ok(ExitCode::SUCCESS)
}

/// Runs the scenarios as a step of `cargo xtask test`.
pub(crate) fn step(_log: &Log) -> Result<Tally> {
    Ok(Tally::skipped("interop", "no scenario yet"))
}
