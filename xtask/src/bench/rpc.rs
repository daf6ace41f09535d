//! The speed of RPCs: `highwire bench rpc` as a section of the page, and the same echoes beside those of other systems as another.

mod beside;
mod ends;
mod figures;
mod peers;

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::{Args, machine};
use crate::measure::Program;
use crate::measurements;

/// The command; the section quotes it.
const WORDS: &str = "bench rpc --ladder --budget --markdown";

/// Measures, prints, and writes the sections if it is asked to.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    // First, so that a failing build is known before anything has been measured.
    let workshop = beside::Workshop::open(program)?;
    let words = format!("{WORDS} --rounds {}", args.runs);
    eprintln!("highwire {words}");
    let output = program.line(&words).capture()?;
    if !output.success {
        bail!("highwire {words}: {}", output.stderr.trim());
    }
    println!("{}", output.stdout);
    let own = format!("`highwire {words}`, on {}\n{}", machine()?, output.stdout);
    let others = format!(
        "`cargo xtask bench --rpc --runs {}`, on {}{}",
        args.runs,
        machine()?,
        workshop.measure(args.runs)?
    );
    println!("{others}");
    if args.write_docs {
        measurements::RPC.write(&own)?;
        measurements::RPC_BESIDE_OTHERS.write(&others)?;
    }
    Ok(ExitCode::SUCCESS)
}
