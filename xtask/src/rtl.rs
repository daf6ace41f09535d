//! `cargo xtask rtl`: the nanoPU's and IRN's blocks in SystemVerilog against the models, and their cost in gates.

mod irn;
mod synthesis;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::debug;
use crate::measurements::{self, Section};
use crate::packages;
use crate::shell::Log;
use crate::table::Table;

/// The tools for the co-simulation.
pub(crate) const PACKAGES: &[&str] = &["verilator", "g++", "make"];

/// Options of `cargo xtask rtl`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask rtl                         every block against the model, cycle by cycle
  cargo xtask rtl --cycles 1000000        for longer
  cargo xtask rtl --yosys                 gates, flip-flops, memory and logic depth of each block
  cargo xtask rtl --only irn              IRN's blocks alone
  cargo xtask rtl --state                 the bits that IRN adds to a queue pair, and the bytes of a whole one
  cargo xtask rtl --yosys --write-docs    and put the tables into docs/measurements")]
pub(crate) struct Args {
    /// The blocks of one family.
    #[arg(long, value_enum)]
    only: Option<Family>,
    /// Count the bits that IRN adds to a queue pair, and the bytes of a whole one, instead of simulating blocks.
    #[arg(long, conflicts_with_all = ["yosys", "only"])]
    state: bool,
    /// Synthesise the blocks instead of simulating them, and print what they cost.
    #[arg(long)]
    yosys: bool,
    /// Put the tables of what was done into docs/measurements.
    #[arg(long)]
    write_docs: bool,
    /// How long each random run is, in cycles.
    #[arg(long, default_value_t = 100_000)]
    cycles: u64,
}

/// The blocks that one crate's test compares with its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Family {
    /// The nanoPU's.
    Nanopu,
    /// IRN's.
    Irn,
}

impl Family {
    const ALL: [Family; 2] = [Family::Nanopu, Family::Irn];

    fn package(self) -> &'static str {
        match self {
            Family::Nanopu => "highwire-nanopu",
            Family::Irn => "highwire-transport",
        }
    }

    fn simulation(self) -> Section {
        match self {
            Family::Nanopu => measurements::RTL_SIMULATION,
            Family::Irn => measurements::IRN_RTL_SIMULATION,
        }
    }

    fn synthesis(self) -> Section {
        match self {
            Family::Nanopu => measurements::RTL_SYNTHESIS,
            Family::Irn => measurements::IRN_RTL_SYNTHESIS,
        }
    }
}

/// Simulates, synthesises or counts.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("rtl")?;
    let needed = match args {
        Args { state: true, .. } => &[][..],
        Args { yosys: true, .. } => &["yosys"],
        _ => PACKAGES,
    };
    if let Err(missing) = packages::ensure(needed, &log)? {
        bail!(missing.0);
    }
    let Some(tables) = tables(args, &log)? else { return Ok(ExitCode::FAILURE) };
    for (section, table) in tables {
        println!("{}", table.to_text());
        if args.write_docs {
            section.write(&table.to_markdown())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The tables, each with its section; nothing if something failed, which has been shown.
fn tables(args: &Args, log: &Log) -> Result<Option<Vec<(Section, Table)>>> {
    if args.state {
        let (Some(bits), Some(bytes)) = (irn::state(log)?, irn::memory(log)?) else { return Ok(None) };
        return Ok(Some(vec![(measurements::IRN_STATE, bits), (measurements::IRN_MEMORY, bytes)]));
    }
    let mut tables = Vec::new();
    for family in Family::ALL.into_iter().filter(|&family| args.only.is_none_or(|only| only == family)) {
        if args.yosys {
            tables.push((family.synthesis(), synthesis::table(family)?));
            continue;
        }
        let Some(text) = simulate(family, args.cycles, log)? else { return Ok(None) };
        tables.push((family.simulation(), summary(&text)));
        if family == Family::Irn {
            tables.push((measurements::IRN_RTL_RATES, irn::rates(&text)));
        }
    }
    Ok(Some(tables))
}

/// Runs the co-simulation; nothing if a port differs, which has been shown.
fn simulate(family: Family, cycles: u64, log: &Log) -> Result<Option<String>> {
    let line = debug::test(family.package(), &["rtl"]).words("-- --show-output");
    let before = log.text()?.len();
    let equal = line.env("HIGHWIRE_RTL_CYCLES", cycles.to_string()).run_logged(log)?;
    let text = log.text()?.split_off(before);
    if equal {
        return Ok(Some(text));
    }
    let shown: Vec<&str> = text.lines().rev().take(60).collect();
    shown.iter().rev().for_each(|line| println!("{line}"));
    Ok(None)
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
