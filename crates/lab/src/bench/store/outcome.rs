//! The results of the loads: figures of the whole cluster, and the checks of them.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use highwire_store::bench::{Benchmark, Requests, Tally, Turn};
use serde::Serialize;

use super::super::served::histogram;
use super::cluster::{Audited, Memory, Played};

/// One benchmark on one cluster.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    pub(super) workload: String,
    pub(super) nodes: u16,
    pub(super) replicas: u16,
    pub(super) link: String,
    /// Bytes in the nodes' journals at the end; without `--data` there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) journal_bytes: Option<u64>,
    /// Of each node.
    pub(super) workers: u16,
    pub(super) seed: u64,
    pub(super) memory: Memory,
    /// Sums of all balances, and the change that the transactions reported.
    pub(super) balance_before: i64,
    pub(super) balance_after: i64,
    pub(super) money: i64,
    pub(super) outcomes: Vec<Outcome>,
    /// Properties that should hold and do not.
    pub(super) problems: Vec<String>,
}

/// One load.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) load: String,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) committed_by_node: Vec<u64>,
    pub(super) total: Counts,
    pub(super) committed_per_second: f64,
    pub(super) committed_per_cpu_second: f64,
    /// The share of attempts that met another transaction.
    pub(super) abort_rate: f64,
    pub(super) latency_ns: Latency,
    /// Requests between nodes, and the forecast of their number.
    pub(super) requests: Requests,
    pub(super) forecast: Requests,
    pub(super) requests_per_commit: f64,
    /// FaSST's formula, which knows no key at home and no transaction that fails.
    pub(super) requests_per_commit_of_paper: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) open_loop: Option<OpenLoop>,
    pub(super) kinds: Vec<Kind>,
    /// Attempts that a new configuration ended, transactions that were given up, and those of unknown outcome.
    pub(super) interrupted: u64,
    pub(super) given_up: u64,
    pub(super) unknown: u64,
    pub(super) money: i64,
}

/// Transactions.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Counts {
    pub(super) begun: u64,
    pub(super) commits: u64,
    pub(super) refusals: u64,
    pub(super) conflicts: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
}

/// How an open loop went.
#[derive(Debug, Serialize)]
pub(super) struct OpenLoop {
    /// Transactions per second that should have begun.
    pub(super) offered_per_second: f64,
    /// Those that had ended when no further one began.
    pub(super) done_per_second: f64,
    /// Those that never began, because the nodes were too far behind.
    pub(super) never_begun: u64,
    /// Whether the nodes kept up.
    pub(super) is_kept: bool,
}

/// One kind of transaction.
#[derive(Debug, Serialize)]
pub(super) struct Kind {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// Its share of the begun transactions, and the share that the benchmark demands.
    pub(super) share: f64,
    pub(super) share_expected: Option<f64>,
    /// The share of its begun transactions that committed, and the expected share.
    pub(super) success: f64,
    pub(super) success_expected: f64,
}

impl From<Tally> for Counts {
    fn from(tally: Tally) -> Counts {
        let Tally { begun, commits, refusals, conflicts } = tally;
        Counts { begun, commits, refusals, conflicts }
    }
}

fn ratio(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

impl Outcome {
    /// Computes the outcome from the nodes' reports.
    pub(super) fn of(load: String, benchmark: Benchmark, turn: &Turn, played: Played) -> Result<Outcome> {
        let Played { reports, cpu } = played;
        if let Some(failure) = reports.iter().find_map(|report| report.failure.as_ref()) {
            bail!("{load}: a transaction failed: {failure}");
        }
        let mut latencies: Histogram<u64> = histogram()?;
        let (mut requests, mut forecast) = (Requests::default(), Requests::default());
        let mut kinds: BTreeMap<String, Tally> = BTreeMap::new();
        let mut total = Tally::default();
        for report in &reports {
            for &(ns, count) in &report.latencies {
                latencies.saturating_record_n(ns, count);
            }
            requests.add(&report.requests);
            forecast.add(&report.forecast);
            total.add(&report.total());
            for (name, tally) in &report.kinds {
                kinds.entry(name.clone()).or_default().add(tally);
            }
        }
        let sum = |of: fn(&highwire_store::bench::TurnReport) -> u64| reports.iter().map(of).sum::<u64>();
        let elapsed_ns = reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0);
        let seconds = (elapsed_ns as f64 / 1e9).max(1e-9);
        let cpu_seconds = cpu.as_secs_f64().max(1e-9);
        let interrupted = sum(|report| report.interrupted);
        let workload = benchmark.workload();
        let kind = |(name, tally): (String, Tally)| {
            let share = workload.mix().iter().find(|(kind, _)| *kind == name);
            Kind {
                share: ratio(tally.begun, total.begun),
                share_expected: share.map(|(_, percent)| *percent as f64 / 100.0),
                success: ratio(tally.commits, tally.begun),
                success_expected: workload.success(&name),
                counts: tally.into(),
                name,
            }
        };
        let (behind, never_begun) = (sum(|report| report.behind), sum(|report| report.never));
        let open_loop = turn.rate.map(|rate| {
            let length = turn.length_ns as f64 / 1e9;
            let offered = total.begun + never_begun;
            let workers = u64::from(turn.workers) * reports.len() as u64;
            OpenLoop {
                offered_per_second: rate * reports.len() as f64,
                done_per_second: total.begun.saturating_sub(behind) as f64 / length,
                never_begun,
                // As many transactions may be in flight as there are workers, or as begin within a hundredth
                // of the time.
                is_kept: behind + never_begun <= workers.min(offered / 10).max(offered / 100),
            }
        });
        Ok(Outcome {
            load,
            seconds,
            cpu_seconds,
            committed_by_node: reports.iter().map(|report| report.total().commits).collect(),
            committed_per_second: total.commits as f64 / seconds,
            committed_per_cpu_second: total.commits as f64 / cpu_seconds,
            abort_rate: ratio(total.conflicts, total.begun + total.conflicts + interrupted),
            latency_ns: Latency {
                p50: latencies.value_at_quantile(0.5),
                p99: latencies.value_at_quantile(0.99),
                p999: latencies.value_at_quantile(0.999),
            },
            requests_per_commit: ratio(requests.total(), total.commits),
            requests_per_commit_of_paper: ratio(sum(|report| report.of_paper), total.commits),
            requests,
            forecast,
            open_loop,
            kinds: kinds.into_iter().map(kind).collect(),
            interrupted,
            given_up: sum(|report| report.given_up),
            unknown: sum(|report| report.unknown),
            money: reports.iter().map(|report| report.money).sum(),
            total: total.into(),
        })
    }

    /// Transactions per second that ended for good, whether they committed or found nothing to do.
    pub(super) fn finished_per_second(&self) -> f64 {
        (self.total.commits + self.total.refusals) as f64 / self.seconds
    }
}

/// The properties that should hold and do not.
pub(super) fn problems(outcomes: &[Outcome], before: &Audited, after: &Audited, money: i64) -> Vec<String> {
    let mut problems = Vec::new();
    for outcome in outcomes {
        let load = &outcome.load;
        if outcome.interrupted == 0 && outcome.unknown == 0 && outcome.requests != outcome.forecast {
            problems.push(format!(
                "{load}: requests between nodes were {:?}, and should have been {:?}",
                outcome.requests, outcome.forecast
            ));
        }
        if let Some(node) = outcome.committed_by_node.iter().position(|&commits| commits == 0) {
            problems.push(format!("{load}: node {node} has committed nothing"));
        }
    }
    let is_known = outcomes.iter().all(|outcome| outcome.unknown == 0);
    if is_known && after.balance != before.balance + money {
        problems.push(format!("money: {} before, {money} made, and {} after", before.balance, after.balance));
    }
    for audit in [before, after] {
        if audit.regions_that_differ > 0 {
            problems.push(format!("copies of regions differ, {} times", audit.regions_that_differ));
        }
        if audit.locks > 0 {
            problems.push(format!("{} locks are held, and nobody works", audit.locks));
        }
    }
    problems
}
