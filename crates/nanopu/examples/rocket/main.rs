//! This core and Rocket's RTL side by side, commit by commit. `cargo xtask rocket` builds the RTL and calls this.
//!
//! `rocket ORACLE compare FILE…` runs ELF programs on both, `explain` says where the
//! cycles of one, or of a random program, differ; `rocket ORACLE fuzz FIRST COUNT` runs random programs of those seeds;
//! `rocket ORACLE record FILE…` prints what `tests/golden.rs` checks without the RTL; `rocket - here SEED` shows what a
//! random program does here, and `image SEED PATH` writes it to a file for the simulator.
#![allow(clippy::disallowed_methods, reason = "a tool reads files and starts a simulator")]

mod compare;
mod generate;
mod here;
mod oracle;
mod sequences;
mod spread;

use std::process::ExitCode;

use compare::{Comparison, compare};
use here::Image;
use spread::Spread;

/// Far more than any of the programs needs.
const COMMITS_MAX: usize = 20_000_000;

/// Above rows that begin with a name of up to 32 characters.
const HEADINGS: &str =
    "program                            commits   on Rocket        here       off   steps that differ";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [oracle, "compare", files @ ..] if !files.is_empty() => run_files(oracle, files),
        [oracle, "explain", what] => explain(oracle, what),
        [oracle, "record", files @ ..] if !files.is_empty() => record(oracle, files),
        [oracle, "fuzz", first, count] => fuzz(oracle, first, count),
        [_, "here", seed] => show(seed),
        [_, "image", seed, path] => image(seed, path),
        _ => {
            Err("rocket ORACLE (compare FILE… | explain FILE-OR-SEED | record FILE… | fuzz FIRST COUNT | here SEED | image SEED PATH)"
                .to_string())
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run_files(oracle: &str, files: &[&str]) -> Result<bool, String> {
    println!("{HEADINGS}   in the last turn");
    let mut agrees = true;
    for file in files {
        let image = Image::read(file)?;
        let comparison = compare(oracle, &image)?;
        println!("{:<32} {comparison}", image.name);
        comparison.sequences.rows().for_each(|row| println!("{row}"));
        agrees &= comparison.mismatch.is_none();
    }
    Ok(agrees)
}

fn explain(oracle: &str, what: &str) -> Result<bool, String> {
    let image = match what.parse() {
        Ok(seed) => generate::program(seed),
        Err(_) => Image::read(what)?,
    };
    let comparison = compare(oracle, &image)?;
    println!("{comparison}");
    comparison.explain();
    Ok(comparison.mismatch.is_none())
}

fn record(oracle: &str, files: &[&str]) -> Result<bool, String> {
    for file in files {
        let image = Image::read(file)?;
        let comparison = compare(oracle, &image)?;
        if let Some(mismatch) = comparison.mismatch {
            return Err(format!("{}: {mismatch}", image.name));
        }
        println!("{}", comparison.golden(&image));
    }
    Ok(true)
}

fn fuzz(oracle: &str, first: &str, count: &str) -> Result<bool, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
    let (first, count) = (number(first)?, number(count)?);
    let mut sum = Comparison::default();
    let mut spread = Spread::default();
    for seed in first..first.saturating_add(count) {
        let comparison = compare(oracle, &generate::program(seed))?;
        if let Some(mismatch) = &comparison.mismatch {
            println!("seed {seed}: {mismatch}");
            println!("again: cargo xtask rocket fuzz --first {seed} --count 1");
            return Ok(false);
        }
        sum.add(&comparison);
        spread.add(seed, &comparison.total);
    }
    println!("{count} programs from seed {first} on: every architectural write agrees");
    println!("{HEADINGS}");
    println!("{:<32} {sum}", "all");
    println!("{spread}");
    Ok(true)
}

/// Writes a random program where the simulator can be started with it by hand.
fn image(seed: &str, path: &str) -> Result<bool, String> {
    let seed = seed.parse().map_err(|_| format!("{seed} is no number"))?;
    std::fs::write(path, generate::program(seed).bytes).map_err(|error| format!("{path}: {error}"))?;
    Ok(true)
}

fn show(seed: &str) -> Result<bool, String> {
    let seed = seed.parse().map_err(|_| format!("{seed} is no number"))?;
    let image = generate::program(seed);
    for commit in here::run(&image, COMMITS_MAX)?.commits {
        println!("{}", commit.commit.retired);
    }
    Ok(true)
}
