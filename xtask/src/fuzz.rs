//! `cargo xtask fuzz`: the fuzz targets, at length or briefly.
//!
//! With a nightly compiler and a C++ one, libFuzzer runs them and is guided by coverage. Elsewhere the plain driver of
//! `fuzz/targets` runs the same functions on seeded mutations.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

use crate::debug;
use crate::shell::{Line, Log, has_program, root, target_dir};
use crate::test::Tally;

const BRIEF_SECONDS: u64 = 5;

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask fuzz                         every target in turn, five minutes each
  cargo xtask fuzz headers --minutes 60    one target for an hour
  cargo xtask fuzz --list")]
pub(crate) struct Args {
    /// The target; each in turn without it.
    target: Option<String>,
    /// How long to run each target.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// List the targets and leave.
    #[arg(long, conflicts_with = "target")]
    list: bool,
    /// Use the plain driver although libFuzzer could run.
    #[arg(long)]
    plain: bool,
}

/// Runs the targets with their output on the terminal.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("fuzz")?;
    let targets = targets()?;
    if args.list {
        targets.iter().for_each(|target| println!("{target}"));
        return Ok(ExitCode::SUCCESS);
    }
    let chosen: Vec<&String> = match &args.target {
        None => targets.iter().collect(),
        Some(name) => targets.iter().filter(|target| *target == name).collect(),
    };
    if chosen.is_empty() {
        bail!("there is no such target; the targets are {}", targets.join(", "));
    }
    let engine = if args.plain { Engine::Plain } else { Engine::best(&log)? };
    if let Engine::Plain = engine {
        println!("without libFuzzer: seeded mutations of the corpus");
    }
    engine.prepare(&log)?;
    for target in chosen {
        let line = engine.line(target, args.minutes * 60);
        println!("$ {line}");
        if !line.run()? {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Every target for some seconds, as a step of `cargo xtask test`: by the plain driver, since compiling the targets for libFuzzer takes
/// minutes. Two at a time.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    Engine::Plain.prepare(log)?;
    let targets = targets()?;
    let next = AtomicUsize::new(0);
    let play = || -> Result<Tally> {
        let mut tally = Tally::default();
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let line = Engine::Plain.line(target, BRIEF_SECONDS);
            let played = line.capture()?;
            log.note(&format!("$ {line}\n{}{}", played.stdout, played.stderr))?;
            tally.add(Tally::one(played.success));
        }
        Ok(tally)
    };
    std::thread::scope(|scope| {
        let lanes = [(); 2].map(|()| scope.spawn(play));
        let mut tally = Tally::default();
        for lane in lanes {
            tally.add(lane.join().expect("a lane does not panic")?);
        }
        Ok(tally)
    })
}

/// The runner of a target.
enum Engine {
    /// `cargo fuzz`, by the path of its executable.
    LibFuzzer(PathBuf),
    Plain,
}

impl Engine {
    /// Why libFuzzer cannot run here, if it cannot.
    fn available() -> std::result::Result<(), String> {
        let has_nightly = Line::cargo("+nightly --version").capture().is_ok_and(|captured| captured.success);
        if !has_nightly {
            return Err("no nightly compiler: rustup toolchain install nightly".into());
        }
        if !["c++", "g++", "clang++"].iter().any(|program| has_program(program)) {
            return Err("no C++ compiler for libFuzzer: apt-get install g++".into());
        }
        Ok(())
    }

    /// libFuzzer where it can run, and the reason said otherwise; installs cargo-fuzz into the build folder once, not optimised, since it only starts others.
    fn best(log: &Log) -> Result<Self> {
        if let Err(reason) = Self::available() {
            println!("{reason}");
            return Ok(Self::Plain);
        }
        let tools = target_dir().join("xtask/tools");
        let program = tools.join("bin/cargo-fuzz");
        if !program.is_file() {
            let install = Line::cargo("install --quiet --locked --debug cargo-fuzz --root").arg(&tools);
            if !install.run_logged(log)? {
                log.note("cargo-fuzz could not be installed: the plain driver runs instead")?;
                return Ok(Self::Plain);
            }
        }
        Ok(Self::LibFuzzer(program))
    }

    /// Builds the plain driver, and writes the corpora that libFuzzer begins with; the plain driver makes its own.
    fn prepare(&self, log: &Log) -> Result<()> {
        let build = debug::build("highwire-fuzz-targets", "--bin highwire-fuzz-targets");
        if !build.run_logged(log)? {
            bail!("the targets do not build; see {}", log.path().display());
        }
        if let Self::LibFuzzer(_) = self
            && !driver("corpus").arg(seeds_dir()).run_logged(log)?
        {
            bail!("cannot write the corpora; see {}", log.path().display());
        }
        Ok(())
    }

    /// The command that runs `target` for a given time. Inputs that libFuzzer wants to keep go into its own
    /// corpus folder; an input that breaks a promise goes into `fuzz/artifacts/`.
    fn line(&self, target: &str, seconds: u64) -> Line {
        match self {
            Self::Plain => driver("run").arg(target).arg("--seconds").arg(seconds.to_string()),
            Self::LibFuzzer(program) => {
                let grown = target_dir().join("xtask/fuzz-corpus").join(target);
                // If a corpus folder cannot be made, libFuzzer reports that.
                let _ = std::fs::create_dir_all(&grown);
                Line::new("rustup")
                    .words("run nightly")
                    .arg(program)
                    .arg("run")
                    .arg("--target-dir")
                    .arg(target_dir().join("fuzz"))
                    .arg(target)
                    .arg(grown)
                    .arg(seeds_dir().join(target))
                    .words("-- -max_len=16384 -timeout=10 -print_final_stats=1")
                    .arg(format!("-max_total_time={seconds}"))
                    .dir(root().join("fuzz"))
            }
        }
    }
}

fn seeds_dir() -> PathBuf {
    target_dir().join("xtask/fuzz-seeds")
}

/// The plain driver; built with overflow checks and debug assertions, as tests are.
fn driver(command: &str) -> Line {
    Line::new(&target_dir().join("debug/highwire-fuzz-targets").to_string_lossy()).arg(command)
}

/// The targets by name: each libFuzzer binary is a file, and a test holds the two lists together.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        names.extend(stem_of_rust_file(&path));
    }
    names.sort();
    Ok(names)
}

fn stem_of_rust_file(path: &Path) -> Option<String> {
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    path.file_stem().filter(|_| is_rust).map(|stem| stem.to_string_lossy().into_owned())
}
