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
use std::sync::Mutex;
use std::time::{Duration, Instant};

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

/// Of steps that only compute: the others get a core when they want one.
const NICENESS: i32 = 10;

/// A guard against hangs: the longest step takes half as long.
const PATIENCE: Duration = Duration::from_secs(1_800);

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
    let run = Run {
        args,
        count: chosen.len(),
        ticker: Ticker::start(),
        seconds_before: Mutex::new(Durations::load()),
        finished: Mutex::default(),
    };
    for round in 1..=args.rounds {
        for part in parts(&chosen) {
            run.part(round, &part)?;
        }
    }
    let Run { ticker, seconds_before, finished, .. } = run;
    drop(ticker);
    seconds_before.into_inner().expect("no step panics").store();
    let finished = finished.into_inner().expect("no step panics");
    report::show_summary(&finished, args.rounds);
    let failed = finished.iter().any(|done| done.tally.failed() > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A step, and its place among those that were chosen.
type Placed = (usize, &'static Step);

/// The chosen steps in the order in which they run: what one part has is done when the next begins. Behind the quick
/// ones, those that only compute run beside the others.
fn parts(chosen: &[&'static Step]) -> Vec<Part> {
    let mut parts = Vec::new();
    let of_kind = |step: &&Placed, first: bool| !step.1.last && step.1.first == first;
    let placed: Vec<Placed> = chosen.iter().copied().enumerate().collect();
    let first: Vec<Placed> = placed.iter().filter(|step| of_kind(step, true)).copied().collect();
    let rest = placed.iter().filter(|step| of_kind(step, false)).copied();
    let (computing, others) = rest.partition(|step| step.1.computes);
    let last: Vec<Placed> = placed.iter().filter(|step| step.1.last).copied().collect();
    parts.push(Part { others: first, computing: Vec::new() });
    parts.push(Part { others, computing });
    parts.push(Part { others: last, computing: Vec::new() });
    parts
}

/// Two lanes of steps.
struct Part {
    others: Vec<Placed>,
    /// Steps that leave the cores to the others.
    computing: Vec<Placed>,
}

/// One call of the command.
struct Run<'a> {
    args: &'a Args,
    count: usize,
    ticker: Ticker,
    seconds_before: Mutex<Durations>,
    finished: Mutex<Vec<Finished>>,
}

impl Run<'_> {
    fn part(&self, round: u32, part: &Part) -> Result<()> {
        std::thread::scope(|scope| {
            let computing = scope.spawn(|| {
                if !part.others.is_empty() {
                    lower_priority()?;
                }
                part.computing.iter().try_for_each(|step| self.step(round, *step))
            });
            let others = part.others.iter().try_for_each(|step| self.step(round, *step));
            others.and(computing.join().expect("a lane does not panic"))
        })
    }

    fn step(&self, round: u32, (index, step): Placed) -> Result<()> {
        let Args { rounds, busy, .. } = *self.args;
        let of_rounds = if rounds > 1 { format!("round {round}/{rounds} ") } else { String::new() };
        let title = format!("{of_rounds}[{:>2}/{}] {}", index + 1, self.count, step.title);
        let expected = self.seconds_before.lock().expect("no panic while it is held").of(step.name);
        self.ticker.begin(&title, expected);
        let done = run_step(step)?;
        let failed = done.tally.failed() > 0;
        self.ticker.end(&title, || {
            println!("{title} … {} in {:.1} s", done.tally.verdict(), done.seconds);
            if failed {
                report::show_failure(&done);
            }
        });
        if failed && rounds > 1 {
            done.log.keep_as(&format!("{}.round-{round}", step.name))?;
        } else if !failed && !done.tally.is_only_skips() && busy == 0 {
            let seconds = done.seconds.ceil() as u64;
            self.seconds_before.lock().expect("no panic while it is held").set(step.name, seconds);
        }
        self.finished.lock().expect("no panic while it is held").push(done);
        Ok(())
    }
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

/// Of this thread alone, and of the programs that it starts.
fn lower_priority() -> Result<()> {
    let niceness = rustix::process::getpriority_process(None)?;
    Ok(rustix::process::setpriority_process(None, niceness.max(NICENESS))?)
}

fn run_step(step: &'static Step) -> Result<Finished> {
    let log = Log::create(step.name)?.for_at_most(PATIENCE);
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
        let alone: Vec<_> = steps::ALL.iter().filter(|step| step.name == "store").collect();
        assert_eq!(names(&without_repeats(alone).0), ["store"], "without unit it runs by itself");
    }

    #[test]
    fn every_step_runs_once_and_those_that_compute_beside_others() {
        let all: Vec<_> = steps::ALL.iter().collect();
        let parts = parts(&all);
        let mut places: Vec<usize> = parts
            .iter()
            .flat_map(|part| part.others.iter().chain(&part.computing))
            .map(|step| step.0)
            .collect();
        places.sort_unstable();
        assert_eq!(places, (0..all.len()).collect::<Vec<_>>());
        let names = |steps: &[Placed]| steps.iter().map(|step| step.1.name).collect::<Vec<_>>();
        assert_eq!(names(&parts[0].others)[0], "format");
        assert_eq!(names(&parts[2].others), ["leftovers"], "it sees what all others have left");
        let computing = names(&parts[1].computing);
        assert!(computing.contains(&"rtl") && !names(&parts[1].others).contains(&"rtl"), "{computing:?}");
        assert!(!computing.contains(&"programs"), "it opens devices");
        assert!(parts[0].computing.is_empty() && parts[2].computing.is_empty());
    }

    #[test]
    fn a_lane_that_computes_lowers_its_own_priority_only() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let lane = std::thread::spawn(move || {
            lower_priority().unwrap();
            (niceness(), crate::shell::Line::new("nice").capture().unwrap().stdout)
        });
        let (lane, child) = lane.join().unwrap();
        assert_eq!((lane, child.trim()), (NICENESS.max(before), &*NICENESS.max(before).to_string()));
        assert_eq!(niceness(), before);
    }
}
