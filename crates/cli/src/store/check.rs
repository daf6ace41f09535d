//! `highwire store check`: many simulated clusters, their faults, and the verdict on what their clients saw.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use highwire_txn::check::Form;
use highwire_txn::simulation::{Failure, Plan, Report};

use crate::console::Console;
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The seed of one run, or of the first.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Threads that run them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Write what the clients of the one seed saw, for another checker.
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    history: Option<PathBuf>,
    /// Which checker it is for.
    #[arg(long, value_enum, default_value_t = HistoryForm::ListAppend, requires = "history")]
    form: HistoryForm,
    /// Run a benchmark's transactions instead, without faults, and count requests. Simulated: it says nothing about speed.
    #[arg(long, value_enum, conflicts_with_all = ["seeds", "threads", "history"])]
    workload: Option<super::workload::Kind>,
}

/// A history's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum HistoryForm {
    /// EDN for Elle: lists and their elements.
    ListAppend,
    /// EDN for Elle: registers.
    RwRegister,
    /// Lines of JSON: each key by itself, for a checker of linearizability.
    SingleKeys,
}

impl From<HistoryForm> for Form {
    fn from(form: HistoryForm) -> Form {
        match form {
            HistoryForm::ListAppend => Form::ListAppend,
            HistoryForm::RwRegister => Form::RwRegister,
            HistoryForm::SingleKeys => Form::SingleKeys,
        }
    }
}

/// Sums over seeds.
#[derive(Default)]
struct Totals {
    seeds: u64,
    committed: usize,
    aborted: usize,
    unknown: usize,
    crashes: usize,
    disturbances: usize,
    full_disks: usize,
    configurations: u64,
    messages: u64,
    edges: usize,
    failure: Option<Failure>,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.committed += report.committed;
        self.aborted += report.aborted;
        self.unknown += report.unknown;
        self.crashes += report.crashes;
        self.disturbances += report.disturbances;
        self.full_disks += report.full_disks;
        self.configurations += u64::from(report.configurations) - 1;
        self.messages += report.messages;
        self.edges += report.verdict.version_edges + report.verdict.list_edges;
    }
}

/// Runs the seeds, in order as far as threads allow, up to the first failure.
pub(super) fn run(check: &Args) -> Result<ExitCode> {
    if let Some(kind) = check.workload {
        return super::workload::run(kind, check.seed);
    }
    let next = AtomicU64::new(0);
    let has_failed = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    let progress = Mutex::new(Progress::new("seeds", check.seeds).with_lines());
    let written = Mutex::new(Ok(()));
    let work = || {
        while !has_failed.load(Ordering::Relaxed) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= check.seeds {
                return;
            }
            let (result, history) = Plan::from_seed(check.seed.wrapping_add(place)).run_recorded();
            if let Some(path) = &check.history {
                let text = history.export(check.form.into());
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                *written = std::fs::write(path, text).with_context(|| format!("{}", path.display()));
            }
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.at(totals.seeds, Instant::now());
            match result {
                Ok(report) => totals.add(&report),
                Err(failure) => {
                    has_failed.store(true, Ordering::Relaxed);
                    totals.failure = Some(failure);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..check.threads {
            scope.spawn(work);
        }
    });
    drop(progress);
    written.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut console = Console::new();
    console.line(format!(
        "{} seeds: {} transactions committed, {} aborted, {} of unknown outcome",
        totals.seeds, totals.committed, totals.aborted, totals.unknown
    ))?;
    console.line(format!(
        "{} crashes, {} full disks, {} pauses, partitions and other faults, {} changes of configuration, {} messages",
        totals.crashes, totals.full_disks, totals.disturbances, totals.configurations, totals.messages
    ))?;
    let Some(failure) = totals.failure else {
        console.line(format!(
            "strictly serialisable: {} dependencies and real time, and no cycle",
            totals.edges
        ))?;
        console.finish()?;
        return Ok(ExitCode::SUCCESS);
    };
    console.line(failure)?;
    console.finish()?;
    Ok(ExitCode::FAILURE)
}
