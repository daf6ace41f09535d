//! The sums of a run over many seeds, and a file that keeps them, so that a run of hours can be stopped and
//! continued.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use highwire_txn::simulation::Report;
use serde::{Deserialize, Serialize};

use crate::failure::usage;

/// The interval at which the file is written.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Sums over seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) seeds: u64,
    pub(super) committed: usize,
    pub(super) aborted: usize,
    pub(super) unknown: usize,
    pub(super) crashes: usize,
    pub(super) disturbances: usize,
    pub(super) full_disks: usize,
    pub(super) configurations: u64,
    pub(super) messages: u64,
    pub(super) edges: usize,
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

/// The file: the run's parameters, and the sums over its first seeds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    first_seed: u64,
    seeds: u64,
    totals: Totals,
}

/// The seeds of one run, which threads report in any order.
#[derive(Debug)]
pub(super) struct Account {
    kept: Kept,
    /// Reports of seeds behind the first that has not been run.
    early: BTreeMap<u64, Report>,
    file: Option<PathBuf>,
    written: Instant,
}

impl Account {
    /// Begins, or continues where the file ends.
    pub(super) fn open(first_seed: u64, seeds: u64, file: Option<&Path>) -> Result<Account> {
        let mut kept = Kept { first_seed, seeds, totals: Totals::default() };
        if let Some(file) = file.filter(|file| file.exists()) {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            let old: Kept = serde_json::from_str(&text)
                .map_err(|error| usage(format!("{} is no file of such a run: {error}", file.display())))?;
            if (old.first_seed, old.seeds) != (first_seed, seeds) || old.totals.seeds > seeds {
                return Err(usage(format!(
                    "{} is of a run with --seed {} --seeds {}",
                    file.display(),
                    old.first_seed,
                    old.seeds
                )));
            }
            kept = old;
        }
        let mut account =
            Account { kept, early: BTreeMap::new(), file: file.map(Into::into), written: Instant::now() };
        // A file that cannot be written is reported at once, not after an hour.
        account.write()?;
        Ok(account)
    }

    /// How many of the first seeds have all been run.
    pub(super) fn done(&self) -> u64 {
        self.kept.totals.seeds
    }

    /// The number of all seeds that have been run, for a progress line.
    pub(super) fn run(&self) -> u64 {
        self.done() + self.early.len() as u64
    }

    /// Notes that the seed at a place has kept the promise.
    pub(super) fn add(&mut self, place: u64, report: Report) -> Result<()> {
        self.early.insert(place, report);
        while let Some(report) = self.early.remove(&self.kept.totals.seeds) {
            self.kept.totals.add(&report);
        }
        if self.written.elapsed() < WRITE_EVERY { Ok(()) } else { self.write() }
    }

    /// All sums; the file keeps those over the first seeds without a gap.
    pub(super) fn end(mut self) -> Result<Totals> {
        self.write()?;
        let mut totals = self.kept.totals;
        self.early.values().for_each(|report| totals.add(report));
        Ok(totals)
    }

    /// Writes the file as a whole, or leaves it as it was.
    fn write(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut new = file.clone().into_os_string();
        new.push(".new");
        let text = serde_json::to_string(&self.kept)?;
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, file))
            .with_context(|| file.display().to_string())?;
        self.written = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(committed: usize) -> Report {
        Report { committed, configurations: 1, ..Report::default() }
    }

    #[test]
    fn a_run_goes_on_behind_the_seeds_that_were_all_run() {
        let file = std::env::temp_dir().join(format!("highwire-account-{}.json", std::process::id()));
        let mut account = Account::open(100, 5, Some(&file)).expect("a new file");
        // The third seed is still under way when the run is stopped.
        for place in [1, 0, 3] {
            account.add(place, report(10 + place as usize)).expect("a writable file");
        }
        assert_eq!((account.done(), account.run()), (2, 3));
        assert_eq!(account.end().map(|totals| (totals.seeds, totals.committed)).ok(), Some((3, 34)));
        let mut again = Account::open(100, 5, Some(&file)).expect("the file");
        assert_eq!(again.done(), 2);
        for place in [4, 3, 2] {
            again.add(place, report(10 + place as usize)).expect("a writable file");
        }
        assert_eq!(again.end().map(|totals| (totals.seeds, totals.committed)).ok(), Some((5, 60)));
        for (first, seeds) in [(101, 5), (100, 6)] {
            let error = Account::open(first, seeds, Some(&file)).expect_err("another run");
            assert!(error.to_string().contains("--seed 100 --seeds 5"), "{error}");
        }
        std::fs::write(&file, "{").expect("a writable file");
        let error = Account::open(100, 5, Some(&file)).expect_err("no file of such a run");
        assert!(error.to_string().contains("no file of such a run"), "{error}");
        std::fs::remove_file(&file).expect("it is there");
    }
}
