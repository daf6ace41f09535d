//! The speed of the nanoPU's simulator: `highwire nanopu bench` as a table.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Args, machine};
use crate::measure::Program;
use crate::measurements;
use crate::shell::Line;
use crate::table::Table;

/// The aim of "fast": core cycles per second on one host core.
const AIM: f64 = 40e6;
/// The aim for a millisecond of [`CORES`] cores, in seconds.
const AIM_SECONDS: f64 = 30.0;
const CORES: u32 = 324;

/// Measures, prints, and writes the section if it is asked to.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    for directory in ["riscv", "riscv/benchmarks"] {
        if !Line::new("make").words("-s -C").arg(directory).run()? {
            bail!("the programs of {directory} do not build");
        }
    }
    let rows = program.json(&format!("nanopu bench --runs {}", args.runs))?;
    let table = table(rows.as_array().context("no list of programs")?)?;
    let network = network(program)?;
    println!("{}\n{network}", table.to_text());
    if args.write_docs {
        let text =
            format!("Medians of {} runs, on {}\n{}\n{network}", args.runs, machine()?, table.to_markdown());
        measurements::NANOPU_SIMULATOR.write(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn number(row: &Value, name: &str) -> Result<f64> {
    row[name].as_f64().with_context(|| format!("no number `{name}` in {row}"))
}

fn table(rows: &[Value]) -> Result<Table> {
    let mut table = Table::new(&[
        "program",
        "core cycles",
        "CPU seconds",
        "M core cycles/s",
        "lowest to highest",
        "worked out anew",
        "all worked out, M/s",
        "at least 40 M",
    ]);
    for row in rows {
        let rate = |place: usize| {
            row["core_cycles_per_second"][place].as_f64().with_context(|| format!("no rate in {row}"))
        };
        let (cycles, worked_out) = (number(row, "core_cycles")?, number(row, "worked_out")?);
        table.row([
            row["program"].as_str().context("no name")?.to_string(),
            format!("{cycles:.0}"),
            format!("{:.2}", number(row, "cpu_seconds")?),
            format!("{:.1}", rate(0)? / 1e6),
            format!("{:.1} to {:.1}", rate(1)? / 1e6, rate(2)? / 1e6),
            format!("{:.2} %", 100.0 * worked_out / cycles),
            format!("{:.1}", number(row, "worked_out_per_second")? / 1e6),
            if rate(0)? >= AIM { "yes" } else { "not yet" }.to_string(),
        ]);
    }
    Ok(table)
}

/// A fat tree of nodes for a millisecond, with idle polling passed over and without.
fn network(program: &Program) -> Result<String> {
    let mut text = String::new();
    for (words, what) in [("", "idle polling passed over"), (" --every-cycle", "every cycle simulated")] {
        let report = program.json(&format!("nanopu bench --cores {CORES}{words}"))?;
        let seconds = number(&report, "cpu_seconds")?;
        let answered = report["answered"].as_str().context("no word of answers")?;
        let verdict = if seconds < AIM_SECONDS { "yes" } else { "not yet" };
        text += &format!(
            "- {CORES} cores for {:.0} µs, {what}: **{seconds:.1} s** of CPU time, {:.1} M core cycles/s; under {AIM_SECONDS:.0} s: {verdict}. {answered}.\n",
            number(&report, "simulated_us")?,
            number(&report, "core_cycles_per_second")? / 1e6,
        );
    }
    Ok(text)
}
