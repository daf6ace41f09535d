//! Chain replication: how long until three nodes have a write.

use highwire_stdx::Rng;

use super::service::{LINK_CYCLES, Times, arrivals, expect, play, testbed};
use super::{CYCLES_PER_NANOSECOND, Experiment, ExperimentError, Outcome, Row, Settings, figure};
use crate::testbed::{Request, Testbed, address};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chain",
    title: "Chain replication on three nodes: 16-byte keys, 64-byte values",
    run,
};

const REPLICAS: usize = 3;
const PROXY: usize = 3;
const KEYS: u64 = 1_000;
const MRPS: f64 = 0.64;
const WRITE: u64 = 1;
const READ: u64 = 2;
const CONFIGURE: u64 = 4;
const REPLY: u64 = 6;

/// A way to ask: what it is called, the links that a request and its answer cross, and the published mean and 99th percentile in
/// microseconds.
const WAYS: [(&str, u64, f64, f64); 3] = [
    ("write, asked at the head", 6, 0.967, 1.308),
    ("write, asked through a proxy", 10, 1.097, 1.445),
    ("read, asked through a proxy", 6, 0.802, 1.638),
];

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let mut testbed = chain(settings)?;
    for (step, (way, links, mean, p99)) in WAYS.into_iter().enumerate() {
        (settings.progress)(step as f64 / WAYS.len() as f64);
        let times = measure(settings, &mut testbed, step)?;
        let (here_mean, here_p99) = (times.mean_ns() / 1000.0, times.percentile_ns(0.99) / 1000.0);
        let links_us = (links * LINK_CYCLES) as f64 / CYCLES_PER_NANOSECOND / 1000.0;
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!("{way}, {MRPS} M/s: mean and p99, {links} links of 140 cycles among it"),
            paper: format!("{mean} and {p99} µs"),
            here: format!("{} and {} µs", figure(here_mean), figure(here_p99)),
            inside: None,
        });
        outcome.report(
            EXPERIMENT.name,
            format!("{way}: mean without links"),
            format!("{} µs", figure(here_mean - links_us)),
        );
        if step == 1 {
            outcome.check(
                EXPERIMENT.name,
                "a write on three replicas through a proxy takes no longer than claimed",
                "1.1 µs",
                here_mean,
                "µs",
                (0.0, 1.1),
            );
        }
    }
    Ok(outcome)
}

fn chain(settings: &Settings<'_>) -> Result<Testbed, ExperimentError> {
    let mut testbed = testbed(settings, &["chain", "chain", "chain", "chain_proxy"], 1, LINK_CYCLES)?;
    let at = |number: usize| u64::from(address(number));
    for number in 0..REPLICAS {
        let before = if number == 0 { 0 } else { at(number - 1) };
        let behind = if number + 1 == REPLICAS { 0 } else { at(number + 1) };
        expect(&mut testbed, number, &[CONFIGURE, 0, before, behind], &[REPLY, 0, 0])?;
    }
    expect(&mut testbed, PROXY, &[CONFIGURE, at(0), at(REPLICAS - 1)], &[0])?;
    let start = testbed.cycle();
    let writes = (0..KEYS).map(|key| request(start + 1_000 * key, 0, key));
    play(&mut testbed, writes.collect(), |_, answer| answer.get(2) == Some(&0))?;
    Ok(testbed)
}

fn request(sent: u64, way: usize, key: u64) -> Request {
    let words: Vec<u64> = match way {
        0 => [WRITE, 0, key, !key].into_iter().chain((key..).take(8)).collect(),
        1 => [WRITE, key, !key].into_iter().chain((key..).take(8)).collect(),
        _ => vec![READ, key, !key],
    };
    Request::of_words(sent, address(if way == 0 { 0 } else { PROXY }), 0, &words)
}

fn measure(settings: &Settings<'_>, testbed: &mut Testbed, way: usize) -> Result<Times, ExperimentError> {
    let count = if settings.is_quick { 400 } else { 4_000 };
    let mut rng = Rng::new(settings.seed);
    let sent = arrivals(&mut rng, testbed.cycle() + 10_000, count, MRPS, LINK_CYCLES);
    let keys: Vec<u64> = sent.iter().map(|_| rng.below(KEYS)).collect();
    let requests = sent.iter().zip(&keys).map(|(&at, &key)| request(at, way, key));
    play(testbed, requests.collect(), |number, answer| match way {
        0 => answer.get(2) == Some(&0),
        1 => answer.first() == Some(&0),
        _ => answer.first() == Some(&0) && answer.get(2) == Some(&keys[number]),
    })
}
