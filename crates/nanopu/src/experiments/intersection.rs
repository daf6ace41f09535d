//! Set intersection on four cores behind JBSQ(2).
//!
//! The published workload is not known. Ours: 200 lists of 100 documents out of 1,000, and queries for two to four lists. So loads are
//! shares of what four cores can bear, and times multiples of a query's.

use std::collections::BTreeSet;

use highwire_stdx::Rng;

use super::service::{LINK_CYCLES, arrivals, expect, play, service_ns, testbed};
use super::{Chart, Experiment, ExperimentError, Outcome, Row, Series, Settings, figure};
use crate::testbed::{Request, Testbed, address};

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "intersection", title: "Set intersection on four cores", run };

const LISTS: u64 = 200;
const ELEMENTS: usize = 100;
const DOCUMENTS: u64 = 1_000;
const APPEND: u64 = 1;
const INTERSECT: u64 = 2;
const CORES: usize = 4;
/// The load that the prototype bears, in millions of requests per second.
const PUBLISHED_LIMIT: f64 = 7.0;
/// The published 99th percentile: millions of requests per second, microseconds.
const PUBLISHED: [(f64, f64); 8] =
    [(3.0, 1.61), (3.3, 1.71), (3.9, 1.91), (4.5, 1.99), (5.1, 2.27), (5.6, 2.57), (6.2, 3.71), (6.8, 5.99)];

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(settings.seed);
    let lists: Vec<BTreeSet<u64>> = (0..LISTS).map(|_| list(&mut rng)).collect();
    let rounds = if settings.is_quick { 5 } else { 25 };
    let mut one_core = filled(settings, &lists, 1)?;
    let service = service_ns(&mut one_core, rounds, |at| request(at, &query(&mut rng)))? / 1000.0;
    let limit = CORES as f64 / service;
    let published_service = CORES as f64 / PUBLISHED_LIMIT;
    outcome.report(EXPERIMENT.name, "a query on one core, in the mean", format!("{} µs", figure(service)));
    let mut testbed = filled(settings, &lists, CORES)?;
    let count = if settings.is_quick { 2_000 } else { 10_000 };
    let (mut points, mut paper) = (Vec::new(), Vec::new());
    for (step, (mrps, published)) in PUBLISHED.into_iter().enumerate() {
        (settings.progress)((step + 1) as f64 / 9.0);
        let share = mrps / PUBLISHED_LIMIT;
        let sent = arrivals(&mut rng, testbed.cycle() + 10_000, count, share * limit, LINK_CYCLES);
        let queries: Vec<Vec<u64>> = sent.iter().map(|_| query(&mut rng)).collect();
        let requests = sent.iter().zip(&queries).map(|(&at, query)| request(at, query));
        let times = play(&mut testbed, requests.collect(), |number, answer| {
            let common = common(&lists, &queries[number]);
            answer.first() == Some(&0) && answer.get(2..) == Some(&common[..])
        })?;
        let p99 = times.percentile_ns(0.99) / 1000.0;
        points.push((times.mrps / limit, p99 / service));
        paper.push((share, published / published_service));
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!(
                "p99 at {:.0} % of the limit, in queries; another workload than published",
                100.0 * share
            ),
            paper: format!("{} ({published} µs)", figure(published / published_service)),
            here: format!("{} ({} µs)", figure(p99 / service), figure(p99)),
            inside: None,
        });
    }
    outcome.charts.push(Chart {
        title: "Set intersection on four cores: 99th percentile over load".to_string(),
        across: "share of the load that saturates".to_string(),
        up: "multiples of a query".to_string(),
        is_log: true,
        series: vec![
            Series { name: "here".to_string(), is_paper: false, points },
            Series { name: "published, another workload".to_string(), is_paper: true, points: paper },
        ],
    });
    Ok(outcome)
}

/// Four cores, or one, with all lists.
fn filled(
    settings: &Settings<'_>,
    lists: &[BTreeSet<u64>],
    cores: usize,
) -> Result<Testbed, ExperimentError> {
    let mut testbed = testbed(settings, &["intersection"], cores, LINK_CYCLES)?;
    for (number, list) in (0..).zip(lists) {
        let words: Vec<u64> = [APPEND, number].into_iter().chain(list.iter().copied()).collect();
        expect(&mut testbed, 0, &words, &[0])?;
    }
    Ok(testbed)
}

fn query(rng: &mut Rng) -> Vec<u64> {
    (0..rng.between(2, 4)).map(|_| rng.below(LISTS)).collect()
}

fn request(sent: u64, query: &[u64]) -> Request {
    let words: Vec<u64> = [INTERSECT].into_iter().chain(query.iter().copied()).collect();
    Request::of_words(sent, address(0), 0, &words)
}

fn list(rng: &mut Rng) -> BTreeSet<u64> {
    let mut list = BTreeSet::new();
    while list.len() < ELEMENTS {
        list.insert(rng.below(DOCUMENTS));
    }
    list
}

fn common(lists: &[BTreeSet<u64>], query: &[u64]) -> Vec<u64> {
    let others = |element: &u64| query.iter().all(|&list| lists[list as usize].contains(element));
    lists[query[0] as usize].iter().copied().filter(others).collect()
}
