//! One-sided operations: how long a program takes to do for another node what an RNIC does.

use highwire_stdx::Rng;

use super::service::{Times, arrivals, broken, expect, play, service_ns, testbed};
use super::{
    CYCLES_PER_NANOSECOND, Chart, Experiment, ExperimentError, Outcome, Row, Series, Settings, around, figure,
};
use crate::testbed::{Request, address};

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "one-sided", title: "One-sided operations on a table of 3.2 MB", run };

/// Name, operation, and the published median and 90th percentile in nanoseconds.
const OPERATIONS: [(&str, u64, f64, f64); 5] = [
    ("READ", 1, 678.1, 679.7),
    ("WRITE", 2, 679.7, 685.9),
    ("CAS", 3, 686.6, 690.3),
    ("FETCH-ADD", 4, 688.1, 691.7),
    ("INDIRECT READ", 5, 691.1, 714.5),
];
/// Client to switch to server and back.
const LATENCY_LINK_CYCLES: u64 = 483;
const LOAD_LINK_CYCLES: u64 = 42;
const SAMPLES: u64 = 200;
const TABLE_WORDS: u64 = 400_000;
/// The published 99th percentile of READ over load: millions of requests per second, nanoseconds.
const READ_OVER_LOAD: [(f64, f64); 7] =
    [(18.7, 134.0), (22.8, 111.0), (28.6, 99.0), (33.0, 103.0), (38.1, 99.0), (47.1, 128.0), (57.9, 330.0)];

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    latency(settings, &mut outcome)?;
    throughput(settings, &mut outcome)?;
    Ok(outcome)
}

fn latency(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut testbed = testbed(settings, &["onesided", "onesided_client"], 1, LATENCY_LINK_CYCLES)?;
    expect(&mut testbed, 0, &[1, 0], &[0, 0])?;
    let links_ns = 4.0 * LATENCY_LINK_CYCLES as f64 / CYCLES_PER_NANOSECOND;
    for (step, (name, operation, median, p90)) in OPERATIONS.into_iter().enumerate() {
        (settings.progress)(step as f64 / 10.0);
        // Addresses of its own for every operation, so that each finds its words where they are at the beginning: in memory.
        let seed = settings.seed.wrapping_mul(7919).wrapping_add(2 * operation) | 1;
        let order = [address(0).into(), operation, SAMPLES, seed];
        let answer = testbed.call(address(1), 0, &order, 1_000_000).map_err(broken)?.words();
        let cycles = answer.get(1..).unwrap_or_default();
        if answer.first() != Some(&0) || cycles.contains(&0) {
            return Err(ExperimentError::Broken(format!("{name}: {answer:?}")));
        }
        let times = Times::of_cycles(cycles.iter().copied());
        outcome.check(
            EXPERIMENT.name,
            format!("{name}, median, four links of 483 cycles among it"),
            format!("{median} ns"),
            times.percentile_ns(0.5),
            "ns",
            around(median, 5.0),
        );
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!("{name}, median without the links; 90th percentile"),
            paper: format!("{} ns; {} ns", figure(median - links_ns), figure(p90 - links_ns)),
            here: format!(
                "{} ns; {} ns",
                figure(times.percentile_ns(0.5) - links_ns),
                figure(times.percentile_ns(0.9) - links_ns)
            ),
            inside: None,
        });
    }
    Ok(())
}

/// READs from the switch, one link away, of words all over the table and of words that a first-level cache holds.
fn throughput(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut testbed = testbed(settings, &["onesided"], 1, LOAD_LINK_CYCLES)?;
    expect(&mut testbed, 0, &[1, 0], &[0, 0])?;
    let mut rng = Rng::new(settings.seed);
    let count = if settings.is_quick { 2_000 } else { 20_000 };
    let mut series = Vec::new();
    for (case, (name, words)) in
        [("cached", 512), ("all over the table", TABLE_WORDS)].into_iter().enumerate()
    {
        let mut points = Vec::new();
        // Words that fit into the cache are in it before the first measured request.
        let start = testbed.cycle();
        let warm_up = (0..words.min(512) / 8)
            .map(|line| Request::of_words(start + 500 * line, address(0), 0, &[1, 64 * line]));
        play(&mut testbed, warm_up.collect(), |_, answer| answer.first() == Some(&0))?;
        let service = service_ns(&mut testbed, 50, |at| {
            Request::of_words(at, address(0), 0, &[1, 8 * rng.below(words)])
        })?;
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!("READ, {name}, the load that saturates a core"),
            paper: "58 to 60 M/s".to_string(),
            here: format!("{} M/s, {} ns a READ", figure(1000.0 / service), figure(service)),
            inside: None,
        });
        for (step, (mrps, published)) in READ_OVER_LOAD.into_iter().enumerate() {
            (settings.progress)(0.5 + (case * READ_OVER_LOAD.len() + step) as f64 / 28.0);
            let sent = arrivals(&mut rng, testbed.cycle() + 10_000, count, mrps, LOAD_LINK_CYCLES);
            let asked: Vec<u64> = sent.iter().map(|_| rng.below(words)).collect();
            let requests = sent.iter().zip(&asked);
            let requests = requests.map(|(&at, word)| Request::of_words(at, address(0), 0, &[1, 8 * word]));
            let times = play(&mut testbed, requests.collect(), |number, answer| {
                answer == [0, asked[number] * 154_321 % TABLE_WORDS * 8]
            })?;
            points.push((times.mrps, times.percentile_ns(0.99)));
            outcome.rows.push(Row {
                experiment: EXPERIMENT.name,
                claim: format!("READ, {name}, p99 at {mrps} M/s, two links of 42 cycles among it"),
                paper: format!("{published} ns"),
                here: format!("{} ns at {} M/s", figure(times.percentile_ns(0.99)), figure(times.mrps)),
                inside: None,
            });
        }
        series.push(Series { name: format!("here, {name}"), is_paper: false, points });
    }
    series.push(Series { name: "published".to_string(), is_paper: true, points: READ_OVER_LOAD.to_vec() });
    outcome.charts.push(Chart {
        title: "READ by one core: 99th percentile over load".to_string(),
        across: "million requests per second".to_string(),
        up: "nanoseconds".to_string(),
        is_log: true,
        series,
    });
    Ok(())
}
