//! Playing all runs of plans: on several threads, in shards on several machines, with the same bytes in the end.
//!
//! Runs are independent, so a thread takes the next one when it has finished the last. Results are kept by place, never by time.
//! Runs with the same parameters and seed, in one plan or in several, are played once.

mod shard;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use crate::plan::{Plan, Run};
use crate::report::Measures;
use crate::{RunError, Tick};

pub use shard::{MergeError, Merged, Part, Shard, merge};

/// Runs of one or several plans.
#[derive(Debug)]
pub struct Campaign<'p> {
    plans: &'p [Plan],
    /// Per plan, its runs and for each of them the job that plays it.
    runs: Vec<(Vec<Run>, Vec<usize>)>,
    /// Plan and run.
    jobs: Vec<(usize, usize)>,
}

/// How far a campaign is.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Thousandths of runs that are done.
    pub done: u64,
    /// Thousandths of runs in all.
    pub total: u64,
}

/// A run that has no outcome.
#[derive(Debug)]
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
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let mut runs = Vec::new();
        for (plan_index, plan) in plans.iter().enumerate() {
            let mut all = plan.runs();
            all.retain(|run| shard.has(run.index));
            let mut played_by = Vec::new();
            for (place, run) in all.iter().enumerate() {
                let job = *known.entry(key(plan, run)).or_insert_with(|| {
                    jobs.push((plan_index, place));
                    jobs.len() - 1
                });
                played_by.push(job);
            }
            runs.push((all, played_by));
        }
        Campaign { plans, runs, jobs }
    }

    /// How many runs are played: fewer than the plans have, if some are the same.
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// Builds every scenario and plays none: a plan that passes can be run.
    ///
    /// # Errors
    /// The first run that is impossible.
    pub fn check(&self) -> Result<(), CampaignError> {
        self.jobs.iter().try_for_each(|&job| {
            let (plan, run) = self.job(job);
            run.scenario(plan).map(drop).map_err(|error| self.failed(job, RunError::Scenario(error)))
        })
    }

    /// Plays everything on `threads` threads. `observe` is told now and then how far it is, and `finished` of each plan as
    /// soon as its last run is over: the measures in the order of its runs, whatever the number of threads, or the first of
    /// its runs that has no outcome. A plan that fails does not keep others from being played.
    pub fn play(
        &self,
        threads: usize,
        mut observe: impl FnMut(Status),
        mut finished: impl FnMut(usize, Result<Vec<Measures>, CampaignError>),
    ) {
        let next = AtomicUsize::new(0);
        let (sender, receiver) = channel();
        let mut shares = vec![0u64; self.jobs.len()];
        let mut results: Vec<Option<Result<Measures, RunError>>> = Vec::new();
        results.resize_with(self.jobs.len(), || None);
        let mut is_pending = vec![true; self.plans.len()];
        let total = 1000 * self.jobs.len() as u64;
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.jobs.len().max(1)) {
                let sender = sender.clone();
                scope.spawn(|| self.work(&next, sender));
            }
            drop(sender);
            for news in receiver {
                let (job, share) = match news {
                    News::Share(job, share) => (job, share),
                    News::Done(job, result) => {
                        results[job] = Some(*result);
                        (job, 1000)
                    }
                };
                shares[job] = share;
                observe(Status { done: shares.iter().sum(), total });
                for (plan, is_pending) in is_pending.iter_mut().enumerate().filter(|(_, pending)| **pending) {
                    if let Some(result) = self.collect(plan, &results) {
                        *is_pending = false;
                        finished(plan, result);
                    }
                }
            }
        });
    }

    /// What came of a plan, if all of its runs are over.
    fn collect(
        &self,
        plan: usize,
        results: &[Option<Result<Measures, RunError>>],
    ) -> Option<Result<Vec<Measures>, CampaignError>> {
        let (_, jobs) = &self.runs[plan];
        if jobs.iter().any(|&job| results[job].is_none()) {
            return None;
        }
        let measures = jobs.iter().enumerate().filter_map(|(place, &job)| match results[job].as_ref()? {
            Ok(measures) => Some(Ok(measures.clone())),
            Err(error) => Some(Err(self.failed((plan, place), error.clone()))),
        });
        Some(measures.collect())
    }

    /// Takes the next job until there is none.
    fn work(&self, next: &AtomicUsize, news: Sender<News>) {
        while let Some((index, &job)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, self.jobs.get(index)?)))
        {
            let (plan, run) = self.job(job);
            let mut progress = |tick: &Tick| {
                let share = 1000 * tick.received / tick.flows.max(1);
                news.send(News::Share(index, share)).is_ok()
            };
            let result = play(plan, run, &mut progress);
            if news.send(News::Done(index, Box::new(result))).is_err() {
                break;
            }
        }
    }

    fn job(&self, (plan, place): (usize, usize)) -> (&'p Plan, &Run) {
        (&self.plans[plan], &self.runs[plan].0[place])
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
    let scenario = run.scenario(plan)?;
    let outcome = crate::run(&scenario, progress)?;
    let mut measures = Measures::of(&scenario, &outcome);
    if let (Some(film), Some((_, Some(until)))) = (&mut measures.film, run.film) {
        film.cut(until);
    }
    Ok(measures)
}

/// Runs with the same key have the same outcome.
fn key(plan: &Plan, run: &Run) -> String {
    let mut key = format!("{} {:?}", run.seed, run.film);
    for value in run.params.values() {
        key.push('\n');
        key.push_str(&value.to_string());
    }
    for text in plan.source.files.values() {
        key.push('\n');
        key.push_str(text);
    }
    key
}
