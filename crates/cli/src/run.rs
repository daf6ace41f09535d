//! `highwire run -- PROGRAM`: runs a program that was written for RDMA cards, with Highwire instead of a
//! card.
//!
//! Nothing stays between the caller and the program, unless a report is wanted: this process becomes it, so that its exit status, its
//! signals and its terminal are the program's own. Child processes of the program inherit the environment,
//! and with it the device.

mod embedded;
pub(crate) mod environment;
mod libraries;
mod program;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;
use highwire_host::record;
use highwire_program::values::size_bytes;

use crate::failure::usage;
use environment::EnvironmentArgs;
use libraries::Libraries;
use program::Found;

/// A shell's exit status if the program does not exist.
const NOT_FOUND: u8 = 127;
/// A shell's exit status if the program exists and cannot be started.
pub(crate) const CANNOT_EXECUTE: u8 = 126;

/// Options of `highwire run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: the program's own; 127 when there is no such program, 126 when it cannot be started.

Examples:
  highwire run -- ibv_devinfo
  highwire run -- ib_write_lat &
  highwire run -- ib_write_lat 127.0.0.1
  highwire run --loss 1% --seed 7 --pcap lossy.pcap -- ./my_rdma_test     the same misbehaviour every time
  highwire run --report ./my_rdma_test           at its end: devices, losses, failures, queue pairs
  highwire run --report report.html -- ./my_rdma_test
  highwire run --record run.hwr -- ./my_rdma_test     then: highwire explain run.hwr
  highwire run --scenario two-nics.toml -- ./my_rdma_test     devices that fail, from a file and its seed
  HIGHWIRE_LOG=1 highwire run ./my_rdma_test     a sentence for each refused call and for what failed"
)]
pub(crate) struct Args {
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Report at the program's end: devices, traffic, losses, refusals and failures in words, and the last state of each queue pair; to
    /// stderr, or to a FILE that ends in .txt, .json or .html.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    report: Option<Option<String>>,
    /// Keep what the devices do, for `highwire explain` and `highwire replay`: requests, completions, packets, faults, states. No bytes of
    /// messages are kept.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// How much of the latest traffic is kept of each process.
    #[arg(long, value_parser = size_bytes, value_name = "SIZE", default_value = "8m", requires = "record")]
    record_size: u32,
    /// The program and its arguments; options of this command come before them. `--` may stand between the two.
    #[arg(required_unless_present = "report", trailing_var_arg = true, value_name = "PROGRAM ARGS…")]
    command: Vec<String>,
}

/// Where the libraries are that stand in for a card's.
///
/// # Errors
/// There are none; the message says how to get some.
pub(crate) fn drop_in_folder() -> Result<PathBuf> {
    Ok(Libraries::find(None)?.folder().into())
}

/// Becomes the program; returns only if that is not possible.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut settings = args.environment.settings()?;
    let (report, words) = report_and_program(args)?;
    let (name, rest) = words.split_first().expect("it was looked at");
    let file = match program::find(name) {
        Found::Program(file) => file,
        Found::Nothing => {
            eprintln!("error: no such program: {name}");
            return Ok(ExitCode::from(NOT_FOUND));
        }
        Found::NotExecutable(file) => {
            eprintln!("error: cannot execute {}", file.display());
            return Ok(ExitCode::from(CANNOT_EXECUTE));
        }
    };
    for warning in program::warnings(&file) {
        eprintln!("warning: {warning}");
    }
    if let Some(file) = &args.record {
        record::create(file, record::Shape::of_bytes(args.record_size.into()))?;
        settings.set.push(("HIGHWIRE_RECORD", std::path::absolute(file)?.into()));
    }
    let mut command = Command::new(&file);
    command.arg0(name).args(rest);
    settings.apply(&mut command);
    if let Some(to) = &report {
        return crate::report::run(command, name, to.as_deref());
    }
    let error = command.exec();
    eprintln!("error: cannot execute {}: {error}", file.display());
    Ok(ExitCode::from(CANNOT_EXECUTE))
}

/// Where a report is to go, and the program. A word behind `--report` that is no file for a report is the program.
fn report_and_program(args: &Args) -> Result<(Option<Option<PathBuf>>, Vec<String>)> {
    let is_report = |word: &str| {
        let extension = Path::new(word).extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("txt" | "json" | "html" | "htm"))
    };
    let mut words = args.command.clone();
    let report = match &args.report {
        None => None,
        Some(Some(word)) if is_report(word) => Some(Some(std::path::absolute(word)?)),
        Some(word) => {
            words.splice(0..0, word.clone());
            Some(None)
        }
    };
    if words.is_empty() {
        return Err(usage("a program is missing: highwire run --report report.html -- PROGRAM"));
    }
    Ok((report, words))
}
