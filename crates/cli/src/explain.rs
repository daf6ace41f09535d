//! `highwire explain`: what went wrong in a record, the first cause first.

mod findings;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::console::{Console, Tone};
use crate::recorded::{each_process, show_time};
use findings::Findings;

/// So many findings, and so many notes, are printed.
const SHOWN_MAX: usize = 100;

/// Options of `highwire explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire run --record run.hwr -- ./my_program; highwire explain run.hwr
  highwire explain client.hwr server.hwr       what one end was refused, with the other end's reason")]
pub(crate) struct Args {
    /// The records; those of both ends say more than one.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Explains the records.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut findings = Findings::default();
    let left_out = each_process(&args.files, |part, shift| {
        findings.read(&part, shift);
        Ok(())
    })?;
    let explained = findings.finish(left_out);
    let mut console = Console::new();
    if args.json {
        console.json(&explained)?;
        console.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    console.line(&explained.seen)?;
    if explained.wrong.is_empty() {
        console.line(console.paint(Tone::Good, "nothing went wrong"))?;
    }
    for (number, finding) in explained.wrong.iter().take(SHOWN_MAX).enumerate() {
        let head = format!(
            "{:>2}. {}  process {} ({})",
            number + 1,
            show_time(finding.time_ns),
            finding.process,
            finding.name
        );
        console.line(console.paint(Tone::Heading, &head))?;
        console.line(format!("    {}", finding.words))?;
    }
    if explained.wrong.len() > SHOWN_MAX {
        console.line(format!("and {} more", explained.wrong.len() - SHOWN_MAX))?;
    }
    if !explained.notes.is_empty() {
        console.line(console.paint(Tone::Heading, "besides"))?;
    }
    for note in explained.notes.iter().take(SHOWN_MAX) {
        console.line(format!("  - {note}"))?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}
