//! `cargo xtask test`: every check that the repository has, as numbered steps.
//!
//! A step writes its commands and their output into its own log, `target/xtask/<step>.log`, and returns a
//! [`Tally`]. A part that cannot run on this machine is a skip with its reason, never a silent pass.

mod binaries;
mod busy;
mod doctest;
mod report;
mod steps;
mod tally;
mod ticker;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::packages;
use crate::shell::{Log, target_dir};

use busy::Busy;
use report::Finished;
use steps::Step;
pub(crate) use tally::Tally;
use ticker::Ticker;

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask test                 format, lints, layers, tests, documents: what to run before a commit
  cargo xtask test --all           everything; also what continuous integration runs
  cargo xtask test lint docs       two steps by name
  cargo xtask test --rounds 10 --busy 2 unit dropin
                                   two steps ten times, beside two threads that compute all the time
  cargo xtask test --list          the steps and what each checks")]
pub(crate) struct Args {
    /// The steps to run, by name; those that a change is most likely to break without any.
    steps: Vec<String>,
    /// Every step: also other systems' programs, fuzzing, model checking, Java and the kernel in a virtual machine.
    #[arg(long, conflicts_with = "steps")]
    all: bool,
    /// Run the chosen steps this many times, also after a failure, and say of each how often it passed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Keep the machine busy with this many threads that compute, beside the steps.
    #[arg(long, default_value_t = 0, value_name = "THREADS", value_parser = clap::value_parser!(u32).range(0..=1024))]
    busy: u32,
    /// List the steps and leave.
    #[arg(long)]
    list: bool,
}

/// Runs the chosen steps, all of them even when one fails, and reports.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        for step in steps::ALL {
            println!("{:<12} {}{}", step.name, step.title, if step.first { "" } else { " (--all)" });
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (chosen, in_unit) = without_repeats(choose(args)?);
    prepare_unit(&in_unit)?;
    let _busy = Busy::start(args.busy);
    let mut seconds_before = Durations::load();
    let mut finished = Vec::new();
    for round in 1..=args.rounds {
        for (index, step) in chosen.iter().enumerate() {
            let expected = seconds_before.of(step.name);
            let of_rounds =
                if args.rounds > 1 { format!("round {round}/{} ", args.rounds) } else { String::new() };
            let title = format!("{of_rounds}[{:>2}/{}] {}", index + 1, chosen.len(), step.title);
            let ticker = Ticker::start(title.clone(), expected);
            let done = run_step(step)?;
            ticker.stop();
            println!("{title} … {} in {:.1} s", done.tally.verdict(), done.seconds);
            if done.tally.failed() > 0 {
                report::show_failure(&done);
                if args.rounds > 1 {
                    done.log.keep_as(&format!("{}.round-{round}", step.name))?;
                }
            } else if !done.tally.is_only_skips() && args.busy == 0 {
                seconds_before.set(step.name, done.seconds.ceil() as u64);
            }
            finished.push(done);
        }
    }
    seconds_before.store();
    report::show_summary(&finished, args.rounds);
    let failed = finished.iter().any(|done| done.tally.failed() > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn choose(args: &Args) -> Result<Vec<&'static Step>> {
    if args.steps.is_empty() {
        return Ok(steps::ALL.iter().filter(|step| step.first || args.all).collect());
    }
    for name in &args.steps {
        if !steps::ALL.iter().any(|step| step.name == name) {
            let names: Vec<&str> = steps::ALL.iter().map(|step| step.name).collect();
            bail!("there is no step '{name}'; the steps are {}", names.join(", "));
        }
    }
    Ok(steps::ALL.iter().filter(|step| args.steps.iter().any(|name| name == step.name)).collect())
}

/// The steps to run, and those whose tests `unit` runs as well, when it is chosen.
fn without_repeats(chosen: Vec<&'static Step>) -> (Vec<&'static Step>, Vec<&'static Step>) {
    let has_unit = chosen.iter().any(|step| step.name == "unit");
    chosen.into_iter().partition(|step| !has_unit || step.in_unit_with.is_empty())
}

/// Installs what those tests need; a test without it says so in its skip.
fn prepare_unit(in_unit: &[&'static Step]) -> Result<()> {
    if in_unit.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = in_unit.iter().map(|step| step.name).collect();
    println!("in the step unit: {}", names.join(", "));
    let log = Log::create("packages")?;
    for step in in_unit {
        if let Err(missing) = packages::ensure(step.in_unit_with, &log)? {
            println!("{}: {}", step.name, missing.0);
        }
    }
    Ok(())
}

fn run_step(step: &'static Step) -> Result<Finished> {
    let log = Log::create(step.name)?;
    let start = Instant::now();
    let tally = (step.run)(&log).unwrap_or_else(|error| {
        let tally = Tally::failure();
        match log.note(&format!("error: {error:#}")) {
            Ok(()) => tally,
            Err(log_error) => tally.with_skip(step.name, &format!("{error:#}; and {log_error:#}")),
        }
    });
    Ok(Finished { step, log, tally, seconds: start.elapsed().as_secs_f64() })
}

/// How long each step took the last time, so that a person knows what to expect.
struct Durations(BTreeMap<String, u64>);

impl Durations {
    fn load() -> Self {
        let text = std::fs::read(target_dir().join("xtask/seconds.json")).unwrap_or_default();
        Self(serde_json::from_slice(&text).unwrap_or_default())
    }

    fn of(&self, step: &str) -> Option<u64> {
        self.0.get(step).copied()
    }

    fn set(&mut self, step: &str, seconds: u64) {
        self.0.insert(step.into(), seconds);
    }

    /// A hint only: if it cannot be written, the next run has none.
    fn store(&self) {
        if let Ok(text) = serde_json::to_vec(&self.0) {
            let _ = std::fs::write(target_dir().join("xtask/seconds.json"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_unit_has_run_do_not_run_again() {
        let (chosen, in_unit) = without_repeats(steps::ALL.iter().collect());
        let names = |steps: &[&Step]| steps.iter().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!(names(&in_unit), ["page", "dissector", "store"]);
        assert_eq!(chosen.len() + in_unit.len(), steps::ALL.len());
        let alone = steps::ALL.iter().filter(|step| step.name == "store").collect();
        assert_eq!(names(&without_repeats(alone).0), ["store"], "without unit it runs by itself");
    }
}
