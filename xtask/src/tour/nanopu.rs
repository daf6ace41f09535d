//! The nanoPU's stops: an ordinary program whose every word can be followed, and the core beside Rocket.

use anyhow::{Context, Result, bail};

use crate::measure::Program;
use crate::packages;
use crate::shell::{Line, Log, root, target_dir};
use crate::table::Table;

use super::page::{Bar, Chart};
use super::{Results, Stop};

/// A RISC-V compiler, and the C library of programs without an operating system.
const COMPILER: &[&str] =
    &["make", "gcc-riscv64-unknown-elf", "binutils-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf"];
/// The cycles of Rocket's RTL, program by program.
const RECORD: &str = "crates/nanopu/tests/rocket/golden.txt";
/// The programs that are shown, of those in the record.
const BENCHMARKS: [&str; 4] = ["median", "qsort", "dhrystone", "spmv"];

/// Builds the programs of `folder`; returns why not, if there is no compiler.
fn build(folder: &str) -> Result<Option<String>> {
    let log = Log::create("tour-riscv")?;
    if let Err(missing) = packages::ensure(COMPILER, &log)? {
        return Ok(Some(missing.0));
    }
    if !Line::new("make").words("-s -C").arg(folder).run_logged(&log)? {
        bail!("make -C {folder} failed: {}", log.path().display());
    }
    Ok(None)
}

/// The echo program: a page with the events of each cycle, and the published round trips beside the measured
/// ones.
pub(super) fn timeline(program: &Program, results: &mut Results) -> Result<Stop> {
    let mut stop = Stop::new(
        "A processor with the network in its registers",
        "The nanoPU, simulated cycle by cycle: an ordinary C program reads requests from one register and writes answers to another. The trace shows which word moved on which cycle. The bars, by `highwire nanopu figures --quick --only loopback`, are cycles from a message's first word in to its answer's last word out, the marks what the prototype's RTL took.",
        "highwire nanopu run riscv/build/loopback.elf --trace target/tour/loopback.html",
    );
    if let Some(missing) = build("riscv")? {
        stop.output = missing;
        return Ok(stop);
    }
    let folder = target_dir().join("tour");
    std::fs::create_dir_all(&folder)?;
    let page = folder.join("loopback.html");
    let run = program.line("nanopu run riscv/build/loopback.elf --trace").arg(&page).capture()?;
    if !run.success {
        bail!("{}{}", run.stdout, run.stderr.trim());
    }
    let document = program.json("nanopu figures --quick --only loopback")?;
    let mut bars = Vec::new();
    for figure in document["experiments"][0]["rows"].as_array().context("no rows")? {
        let claim = figure["claim"].as_str().unwrap_or_default();
        let (Some(bytes), Some(here)) =
            (claim.strip_suffix(", first word in to last word out, cycles"), leading_number(&figure["here"]))
        else {
            continue;
        };
        let published = leading_number(&figure["paper"]);
        if let (16, Some(published)) = (bytes.trim_end_matches(" bytes").parse().unwrap_or(0), published) {
            results.row(
                "nanoPU: 16 B in and out again, simulated",
                &format!("{here:.0} cycles"),
                &format!("RTL {published} cycles"),
                "",
            );
        }
        bars.push(Bar { label: bytes.into(), value: here, text: format!("{here:.0}"), mark: published });
    }
    if bars.is_empty() {
        bail!("the experiment has no round trips in cycles");
    }
    stop = stop.showing(&run.stdout);
    stop.links.push(("the trace: each word on its cycle", "loopback.html"));
    stop.chart = Some(Chart {
        title: "Cycles through the nanoPU (simulated; shorter is better)".into(),
        bars,
        is_logarithmic: false,
    });
    Ok(stop)
}

/// The number that a text begins with.
fn leading_number(value: &serde_json::Value) -> Option<f64> {
    value.as_str()?.split(' ').next()?.parse().ok()
}

/// Programs on the core alone, with the cycles that the RTL of Rocket took for them.
pub(super) fn rocket(program: &Program, results: &mut Results) -> Result<Stop> {
    let mut stop = Stop::new(
        "A core that is right to the cycle",
        "Benchmarks in C on the simulated core, beside the cycles that they took on the RTL of Rocket, the core that the nanoPU was built on. `cargo xtask rocket` runs that RTL and compares every commit.",
        format!("highwire nanopu run --bare riscv/benchmarks/build/{}.elf", BENCHMARKS[0]),
    );
    if let Some(missing) = build("riscv/benchmarks")? {
        stop.output = missing;
        return Ok(stop);
    }
    let record = std::fs::read_to_string(root().join(RECORD)).context(RECORD)?;
    let mut table = Table::new(&["program", "instructions", "cycles here", "cycles on Rocket"]);
    let mut equal = 0;
    for name in BENCHMARKS {
        let report = program.json(&format!("nanopu run --bare riscv/benchmarks/build/{name}.elf"))?;
        let recorded = record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let theirs =
            recorded.and_then(|line| line.split(' ').nth(1)).with_context(|| format!("{RECORD}: {name}"))?;
        let here = report["cycles_before_the_end"].to_string();
        equal += usize::from(here == theirs);
        table.row([name.into(), report["instructions"].to_string(), here, theirs.into()]);
    }
    let all = BENCHMARKS.len();
    results.row("benchmarks with the cycles of Rocket's RTL", &format!("{equal} of {all}"), "all", "");
    stop.sum = Some(table);
    Ok(stop)
}
