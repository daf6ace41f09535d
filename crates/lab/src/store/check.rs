//! `highwire store check`: many simulated clusters, their faults, and the verdict on their clients'
//! histories.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use highwire_txn::check::{Form, History};
use highwire_txn::simulation::{Failure, Plan, Report};

use crate::console::Console;
use crate::progress::Progress;

use super::account::Account;

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
    /// Keep in this file how far the run is, and go on there if the file exists.
    #[arg(long, value_name = "FILE", conflicts_with = "history")]
    resume: Option<PathBuf>,
    /// Write what the clients of the one seed saw, for another checker.
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    history: Option<PathBuf>,
    /// Which checker it is for.
    #[arg(long, value_enum, default_value_t = HistoryForm::ListAppend, requires = "history")]
    form: HistoryForm,
    /// Run a benchmark's transactions instead, without faults, and count requests. Simulated: it says nothing about speed.
    #[arg(long, value_enum, conflicts_with_all = ["seeds", "threads", "history", "resume"])]
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

/// Runs the seeds, in order as far as threads allow, up to the first failure.
pub(super) fn run(check: &Args) -> Result<ExitCode> {
    if let Some(kind) = check.workload {
        return super::workload::run(kind, check.seed);
    }
    let account = Account::open(check.seed, check.seeds, check.resume.as_deref())?;
    let next = AtomicU64::new(account.done());
    let has_ended = AtomicBool::new(false);
    let account = Mutex::new(account);
    let failed = Mutex::new(Ok(None));
    let progress = Mutex::new(Progress::new("seeds", check.seeds).with_lines());
    let work = || {
        while !has_ended.load(Ordering::Relaxed) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= check.seeds {
                return;
            }
            let (result, history) = Plan::from_seed(check.seed.wrapping_add(place)).run_recorded();
            let mut account = account.lock().unwrap_or_else(PoisonError::into_inner);
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.at(account.run(), Instant::now());
            let noted = note(check, &mut account, place, result, &history);
            if !matches!(noted, Ok(None)) {
                has_ended.store(true, Ordering::Relaxed);
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = noted;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..check.threads {
            scope.spawn(work);
        }
    });
    drop(progress);
    let totals = account.into_inner().unwrap_or_else(PoisonError::into_inner).end()?;
    let failure = failed.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    let mut console = Console::new();
    console.line(format!(
        "{} seeds: {} transactions committed, {} aborted, {} of unknown outcome",
        totals.seeds, totals.committed, totals.aborted, totals.unknown
    ))?;
    console.line(format!(
        "{} crashes, {} full disks, {} pauses, partitions and other faults, {} changes of configuration, {} messages",
        totals.crashes, totals.full_disks, totals.disturbances, totals.configurations, totals.messages
    ))?;
    let Some(failure) = failure else {
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

/// Records a seed's report; returns the failure, if the seed has broken the promise.
fn note(
    check: &Args,
    account: &mut Account,
    place: u64,
    result: Result<Report, Failure>,
    history: &History,
) -> Result<Option<Failure>> {
    if let Some(path) = &check.history {
        let text = history.export(check.form.into());
        std::fs::write(path, text).with_context(|| format!("{}", path.display()))?;
    }
    match result {
        Ok(report) => account.add(place, report).map(|()| None),
        Err(failure) => Ok(Some(failure)),
    }
}
