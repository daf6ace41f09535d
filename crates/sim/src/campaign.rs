//! Playing all runs of plans: on several threads, in shards on several machines, with the same bytes in the end.
//!
//! Runs are independent, so a thread takes the next one when it has finished the last. Results are kept by place, never by time.
//! Runs with the same parameters and seed, in one plan or in several, are played once; runs that an
//! [`Archive`] has are not played.

mod archive;
mod shard;
mod witness;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use highwire_fabric::Span;

use crate::plan::{PARAMETERS, Plan, Run, is_used};
use crate::report::Measures;
use crate::{Outcome, RunError, Scenario, Tick};

pub use archive::Archive;
pub use shard::{MergeError, Merged, Part, Shard, merge};
pub use witness::Witness;

/// Runs of one or several plans.
#[derive(Debug)]
pub struct Campaign<'p> {
    plans: &'p [Plan],
    /// Per plan, its runs and for each of them the job that plays it.
    runs: Vec<(Vec<Run>, Vec<usize>)>,
    /// Plan and run.
    jobs: Vec<(usize, usize)>,
    /// About how long each takes, in any unit.
    weights: Vec<u64>,
    archive: &'p dyn Archive,
    witness: &'p dyn Witness,
    /// Each job's measures, if the archive has them.
    kept: Vec<Option<Measures>>,
    /// Whether runs that the archive lacks are left out.
    is_only_kept: bool,
}

/// How far a campaign is, without the runs from an archive.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Work that is done, by the bytes that flows carry.
    pub done: u64,
    /// Work in all.
    pub total: u64,
    /// Runs that are over.
    pub runs: usize,
}

/// A plan whose last run is over.
#[derive(Clone, Debug)]
pub struct Played {
    /// The runs that have an outcome, in the plan's order.
    pub runs: Vec<Run>,
    /// Their measures.
    pub measures: Vec<Measures>,
    /// The runs that have none, each by its place among the plan's runs.
    pub failures: Vec<(usize, CampaignError)>,
}

impl Played {
    /// The measures of all runs.
    ///
    /// # Errors
    /// The first run that has no outcome.
    pub fn whole(self) -> Result<Vec<Measures>, CampaignError> {
        match self.failures.into_iter().next() {
            None => Ok(self.measures),
            Some((_, failure)) => Err(failure),
        }
    }
}

/// A run that has no outcome.
#[derive(Clone, Debug)]
pub struct CampaignError {
    /// The plan's name.
    pub plan: String,
    /// The scheme, the points, the seed.
    pub run: String,
    /// Why.
    pub error: RunError,
}

impl std::fmt::Display for CampaignError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.plan, self.run, self.error)
    }
}

impl std::error::Error for CampaignError {}

impl<'p> Campaign<'p> {
    /// Lists the runs of `plans` that belong to a shard.
    pub fn new(plans: &'p [Plan], shard: Shard) -> Campaign<'p> {
        let mut jobs = Vec::new();
        let mut known: BTreeMap<String, Vec<(Film, usize)>> = BTreeMap::new();
        let mut runs = Vec::new();
        for (plan_index, plan) in plans.iter().enumerate() {
            let mut all = plan.runs();
            all.retain(|run| shard.has(run.index));
            let mut played_by = Vec::new();
            for (place, run) in all.iter().enumerate() {
                let same = known.entry(key(plan, run)).or_default();
                let found = same
                    .iter_mut()
                    .find(|(film, _)| *film == run.film || film.is_none() || run.film.is_none());
                if let Some((film, job)) = found {
                    // Filming changes nothing else, so one run serves those that want a film and those that do not.
                    if film.is_none() && run.film.is_some() {
                        *film = run.film;
                        jobs[*job] = (plan_index, place);
                    }
                    played_by.push(*job);
                    continue;
                }
                same.push((run.film, jobs.len()));
                played_by.push(jobs.len());
                jobs.push((plan_index, place));
            }
            runs.push((all, played_by));
        }
        let weights = vec![1; jobs.len()];
        let kept = vec![None; jobs.len()];
        Campaign { plans, runs, jobs, weights, archive: &(), witness: &(), kept, is_only_kept: false }
    }

    /// Takes measures from `archive`, and adds those of the runs that are played.
    pub fn with_archive(mut self, archive: &'p dyn Archive) -> Campaign<'p> {
        self.archive = archive;
        self.kept = self.jobs.iter().map(|&job| archive.find(&self.key(job))).collect();
        self
    }

    /// Shows every run that is played to `witness`, once for each plan that has it.
    pub fn with_witness(mut self, witness: &'p dyn Witness) -> Campaign<'p> {
        self.witness = witness;
        self
    }

    /// Plays nothing: runs that the archive lacks are left out of the results, and are no failures.
    pub fn only_kept(mut self) -> Campaign<'p> {
        self.is_only_kept = true;
        self
    }

    /// How many runs are played or taken from an archive: fewer than the plans have, if some are the same.
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// How many jobs are taken from an archive.
    pub fn kept_count(&self) -> usize {
        self.kept.iter().flatten().count()
    }

    /// Builds every scenario and plays none. Then every run is possible, and the amount of work is known.
    ///
    /// # Errors
    /// The first run that is impossible.
    pub fn check(&mut self) -> Result<(), CampaignError> {
        self.check_while(|| true)
    }

    /// The same, as long as `goes_on` returns true: it is asked before each scenario.
    ///
    /// # Errors
    /// The first run that is impossible.
    pub fn check_while(&mut self, mut goes_on: impl FnMut() -> bool) -> Result<(), CampaignError> {
        for place in self.open().collect::<Vec<_>>() {
            if !goes_on() {
                break;
            }
            let job = self.jobs[place];
            let (plan, run) = self.job(job);
            let scenario = run.scenario(plan).map_err(|error| self.failed(job, RunError::Scenario(error)))?;
            self.weights[place] = 1 + (scenario.flows.iter().map(|flow| flow.bytes).sum::<u64>() >> 16);
        }
        Ok(())
    }

    /// The work left, in the unit of [`Status`]; known once the campaign has been checked.
    pub fn work(&self) -> u64 {
        self.open().map(|place| self.weights[place]).sum()
    }

    /// The jobs that are to be played.
    fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.jobs.len()).filter(|&place| self.kept[place].is_none() && !self.is_only_kept)
    }

    /// Plays everything on `threads` threads. `observe` is called now and then with the progress. `finished`
    /// is called for each plan as soon as its last run is over. A run that fails keeps no other from being played.
    pub fn play(&self, threads: usize, mut observe: impl FnMut(Status), finished: impl FnMut(usize, Played)) {
        let observe = |status: Status| {
            observe(status);
            true
        };
        self.play_while(threads, observe, finished);
    }

    /// The same, as long as `observe` returns true. Once it does not, the runs under way end without a result, and so do
    /// the plans that they belong to.
    pub fn play_while(
        &self,
        threads: usize,
        mut observe: impl FnMut(Status) -> bool,
        mut finished: impl FnMut(usize, Played),
    ) {
        let open: Vec<usize> = self.open().collect();
        let next = AtomicUsize::new(0);
        let (sender, receiver) = channel();
        let mut shares = vec![0u64; self.jobs.len()];
        let mut results: Vec<Option<Result<Measures, RunError>>> =
            self.kept.iter().map(|kept| kept.clone().map(Ok)).collect();
        let mut is_pending = vec![true; self.plans.len()];
        let (total, mut runs) = (self.work(), 0);
        self.report(&results, &mut is_pending, &mut finished);
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, open.len().max(1)) {
                let sender = sender.clone();
                scope.spawn(|| self.play_next(&open, &next, sender));
            }
            drop(sender);
            for news in receiver {
                match news {
                    News::Share(job, share) => shares[job] = share * self.weights[job] / 1000,
                    News::Done(job, result) => {
                        results[job] = Some(*result);
                        shares[job] = self.weights[job];
                        runs += 1;
                        self.report(&results, &mut is_pending, &mut finished);
                    }
                }
                // Without a receiver the threads end at their next news.
                if !observe(Status { done: shares.iter().sum(), total, runs }) {
                    break;
                }
            }
        });
    }

    /// Hands over the plans whose last run is over.
    fn report(
        &self,
        results: &[Option<Result<Measures, RunError>>],
        is_pending: &mut [bool],
        finished: &mut impl FnMut(usize, Played),
    ) {
        for (plan, is_pending) in is_pending.iter_mut().enumerate().filter(|(_, pending)| **pending) {
            if let Some(result) = self.collect(plan, results) {
                *is_pending = false;
                finished(plan, result);
            }
        }
    }

    /// The result of a plan, if all of its runs are over.
    fn collect(&self, plan: usize, results: &[Option<Result<Measures, RunError>>]) -> Option<Played> {
        let (runs, jobs) = &self.runs[plan];
        if !self.is_only_kept && jobs.iter().any(|&job| results[job].is_none()) {
            return None;
        }
        let mut played = Played { runs: Vec::new(), measures: Vec::new(), failures: Vec::new() };
        for (place, (run, &job)) in runs.iter().zip(jobs).enumerate() {
            let Some(result) = &results[job] else { continue };
            match result {
                Ok(measures) => {
                    let mut measures = measures.clone();
                    measures.film = measures.film.filter(|_| run.film.is_some());
                    played.runs.push(run.clone());
                    played.measures.push(measures);
                }
                Err(error) => played.failures.push((run.index, self.failed((plan, place), error.clone()))),
            }
        }
        Some(played)
    }

    /// Takes the next job until there is none.
    fn play_next(&self, open: &[usize], next: &AtomicUsize, news: Sender<News>) {
        while let Some(&index) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (plan, run) = self.job(self.jobs[index]);
            let mut progress = |tick: &Tick| {
                let share = 1000 * tick.received / tick.flows.max(1);
                news.send(News::Share(index, share)).is_ok()
            };
            let result = play_seen(plan, run, &mut progress, |scenario, outcome| {
                for (plan, run) in self.players(index) {
                    self.witness.on_outcome(plan, run, scenario, outcome);
                }
            });
            if let Ok(measures) = &result {
                self.keep(self.jobs[index], measures);
            }
            if news.send(News::Done(index, Box::new(result))).is_err() {
                break;
            }
        }
    }

    /// The plans' runs that a job plays.
    fn players(&self, job: usize) -> Vec<(&'p Plan, &Run)> {
        let mut players = Vec::new();
        for (plan, (runs, jobs)) in self.plans.iter().zip(&self.runs) {
            players.extend(runs.iter().zip(jobs).filter(|(_, of)| **of == job).map(|(run, _)| (plan, run)));
        }
        players
    }

    fn job(&self, (plan, place): (usize, usize)) -> (&'p Plan, &Run) {
        (&self.plans[plan], &self.runs[plan].0[place])
    }

    fn key(&self, job: (usize, usize)) -> String {
        let (plan, run) = self.job(job);
        filmed_key(run.film, plan, run)
    }

    /// Measures of a filmed run also serve readers that want no film.
    fn keep(&self, job: (usize, usize), measures: &Measures) {
        let (plan, run) = self.job(job);
        self.archive.keep(&filmed_key(run.film, plan, run), measures);
        if run.film.is_some() {
            let mut unfilmed = measures.clone();
            unfilmed.film = None;
            self.archive.keep(&filmed_key(None, plan, run), &unfilmed);
        }
    }

    /// The runs of a plan, in its order: those of this shard.
    pub fn runs(&self, plan: usize) -> &[Run] {
        &self.runs[plan].0
    }

    fn failed(&self, job: (usize, usize), error: RunError) -> CampaignError {
        let (plan, run) = self.job(job);
        let mut name = format!("scheme {}", plan.schemes[run.scheme].name);
        if !run.points.is_empty() {
            name += &format!(" at {}", plan.point_name(&run.points));
        }
        CampaignError { plan: plan.name.clone(), run: format!("{name}, seed {}", run.seed), error }
    }
}

enum News {
    Share(usize, u64),
    Done(usize, Box<Result<Measures, RunError>>),
}

/// Plays one run.
///
/// # Errors
/// [`RunError`].
pub fn play(plan: &Plan, run: &Run, progress: &mut dyn crate::Progress) -> Result<Measures, RunError> {
    play_seen(plan, run, progress, |_, _| ())
}

fn play_seen(
    plan: &Plan,
    run: &Run,
    progress: &mut dyn crate::Progress,
    see: impl FnOnce(&Scenario, &Outcome),
) -> Result<Measures, RunError> {
    let scenario = run.scenario(plan)?;
    let outcome = crate::run(&scenario, progress)?;
    see(&scenario, &outcome);
    let mut measures = Measures::of(&scenario, &outcome);
    if let (Some(film), Some((_, Some(until)))) = (&mut measures.film, run.film) {
        film.cut(until);
    }
    Ok(measures)
}

/// How often, and until when.
type Film = Option<(Span, Option<Span>)>;

fn filmed_key(film: Film, plan: &Plan, run: &Run) -> String {
    format!("film {film:?}\n{}", key(plan, run))
}

/// Runs with the same key have the same outcome, but perhaps for a film. Parameters that a run does not look at are no part
/// of it: RoCE is the same run at every value of a parameter of IRN's.
fn key(plan: &Plan, run: &Run) -> String {
    let mut key = format!("seed {}", run.seed);
    for (parameter, value) in PARAMETERS.iter().zip(run.params.values()) {
        key.push('\n');
        if is_used(parameter.name, &run.params) {
            key.push_str(&value.to_string());
        }
    }
    for text in plan.source.files.values() {
        key.push('\n');
        key.push_str(text);
    }
    key
}
