//! `cargo xtask rtl`: the nanoPU's blocks in SystemVerilog against the model, and their cost in gates.

mod synthesis;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::packages;
use crate::shell::Log;
use crate::table::Table;
use crate::{debug, measurements};

/// The tools for the co-simulation.
pub(crate) const PACKAGES: &[&str] = &["verilator", "g++", "make"];

/// Options of `cargo xtask rtl`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask rtl                         every block against the model, cycle by cycle
  cargo xtask rtl --cycles 1000000        for longer
  cargo xtask rtl --yosys                 gates, flip-flops, memory and logic depth of each block
  cargo xtask rtl --yosys --write-docs    and put the tables into docs/measurements/nanopu-hardware.md")]
pub(crate) struct Args {
    /// Synthesise the blocks instead of simulating them, and print what they cost.
    #[arg(long)]
    yosys: bool,
    /// Put the table of what was done into docs/measurements/nanopu-hardware.md.
    #[arg(long)]
    write_docs: bool,
    /// How long each random run is, in cycles.
    #[arg(long, default_value_t = 100_000)]
    cycles: u64,
}

/// Simulates or synthesises.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("rtl")?;
    let needed = if args.yosys { &["yosys"][..] } else { PACKAGES };
    if let Err(missing) = packages::ensure(needed, &log)? {
        bail!(missing.0);
    }
    let (section, table) = if args.yosys {
        (measurements::RTL_SYNTHESIS, synthesis::table()?)
    } else {
        match simulate(args.cycles, &log)? {
            Some(table) => (measurements::RTL_SIMULATION, table),
            None => return Ok(ExitCode::FAILURE),
        }
    };
    println!("{}", table.to_text());
    if args.write_docs {
        section.write(&table.to_markdown())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the co-simulation, and adds up its output; nothing if a port differs, which has been shown.
fn simulate(cycles: u64, log: &Log) -> Result<Option<Table>> {
    let line = debug::test("highwire-nanopu", &["rtl"]).words("-- --show-output");
    if !line.env("HIGHWIRE_RTL_CYCLES", cycles.to_string()).run_logged(log)? {
        let text = log.text()?;
        let shown: Vec<&str> = text.lines().rev().take(60).collect();
        shown.iter().rev().for_each(|line| println!("{line}"));
        return Ok(None);
    }
    Ok(Some(summary(&log.text()?)))
}

/// Adds up lines like `block: what: 20000 cycles, 6 output ports each, equal`.
fn summary(text: &str) -> Table {
    let mut blocks: Vec<(&str, usize, u64, u64)> = Vec::new();
    for line in text.lines() {
        let Some((block, rest)) = line.split_once(": ") else { continue };
        let Some(rest) = rest.strip_suffix(" output ports each, equal") else { continue };
        let Some((rest, ports)) = rest.rsplit_once(" cycles, ") else { continue };
        let cycles = rest.rsplit_once(": ").and_then(|(_, cycles)| cycles.parse().ok()).unwrap_or(0);
        let ports: u64 = ports.parse().unwrap_or(0);
        match blocks.iter_mut().find(|(known, ..)| *known == block) {
            Some((_, runs, sum, _)) => (*runs, *sum) = (*runs + 1, *sum + cycles),
            None => blocks.push((block, 1, cycles, ports)),
        }
    }
    blocks.sort();
    let mut table = Table::new(&["block", "runs", "cycles", "output ports", "differences"]);
    for (block, runs, cycles, ports) in blocks {
        table.row([
            format!("`{block}`"),
            runs.to_string(),
            cycles.to_string(),
            ports.to_string(),
            "0".into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_block_are_added_up() {
        let text = "running\na: seed 0: 20 cycles, 6 output ports each, equal\n\
                    b: x, seed 1: 7 cycles, 2 output ports each, equal\na: seed 1: 30 cycles, 6 output ports each, equal\n";
        let table = summary(text);
        assert_eq!(table.rows(), [["`a`", "2", "50", "6", "0"], ["`b`", "1", "7", "2", "0"]]);
    }
}
