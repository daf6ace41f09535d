//! The plain driver's command line; `cargo xtask fuzz` calls it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use highwire_fuzz_targets::{TARGETS, Target, corpus, driver, target};

/// Fuzz targets without libFuzzer.
#[derive(Debug, Parser)]
struct Cli {
    /// Where the golden captures are.
    #[arg(long, global = true, default_value = "vectors/roce")]
    captures: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the targets.
    List,
    /// Write each target's seeds into DIR/<target>.
    Corpus { dir: PathBuf },
    /// Try mutations of the seeds.
    Run {
        target: String,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Try one input: a finding of the past.
    Try { target: String, file: PathBuf },
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    match cli.command {
        Command::List => TARGETS.iter().for_each(|target| println!("{}", target.name)),
        Command::Corpus { dir } => {
            for target in TARGETS {
                write_corpus(target, &cli.captures, &dir.join(target.name))?;
            }
        }
        Command::Run { target, seconds, seed } => {
            return run(find(&target)?, &cli.captures, seconds, seed);
        }
        Command::Try { target, file } => {
            let input = std::fs::read(&file).with_context(|| file.display().to_string())?;
            (find(&target)?.run)(&input);
            println!("{target} holds on {} bytes", input.len());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn find(name: &str) -> Result<&'static Target> {
    let Some(found) = target(name) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        bail!("there is no target '{name}'; the targets are {}", names.join(", "));
    };
    Ok(found)
}

fn write_corpus(target: &Target, captures: &Path, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    for (index, seed) in corpus::seeds(target, captures)?.iter().enumerate() {
        std::fs::write(dir.join(format!("seed-{index:04}")), seed)?;
    }
    Ok(())
}

fn run(target: &Target, captures: &Path, seconds: u64, seed: u64) -> Result<ExitCode> {
    let seeds = corpus::seeds(target, captures)?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let outcome = driver::run(target, &seeds, seed, |tried| tried % 256 != 0 || Instant::now() < until);
    match outcome {
        Ok(tried) => {
            println!(
                "{}: {tried} inputs from {} seeds in {seconds} s, seed {seed}",
                target.name,
                seeds.len()
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(finding) => {
            let file = PathBuf::from(format!("{}-{seed}-{}.finding", target.name, finding.index));
            std::fs::write(&file, &finding.input)?;
            println!("{} breaks on input {} of seed {seed}", target.name, finding.index);
            println!("repeat: cargo run -p highwire-fuzz-targets -- try {} {}", target.name, file.display());
            Ok(ExitCode::FAILURE)
        }
    }
}
