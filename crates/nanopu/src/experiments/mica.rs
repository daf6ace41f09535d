//! A key-value store after MICA: responses over load on one core, and on four with core selection against a fixed core per key.

use highwire_stdx::Rng;

use super::service::{LINK_CYCLES, Times, arrivals, expect, play, service_ns, testbed};
use super::{Chart, Experiment, ExperimentError, Outcome, Row, Series, Settings, figure};
use crate::testbed::{Request, Testbed, address};

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "mica", title: "Key-value store: 10,000 items, 512-byte values, half reads", run };

const ITEMS: u64 = 10_000;
const VALUE_WORDS: u64 = 64;
const GET: u64 = 1;
const SET: u64 = 2;
/// The published 99th percentile on one core: millions of requests per second, microseconds.
const ONE_CORE: [(f64, f64); 11] = [
    (0.98, 0.94),
    (1.25, 1.05),
    (1.49, 1.22),
    (1.71, 1.36),
    (1.91, 1.50),
    (2.03, 1.71),
    (2.17, 2.07),
    (2.33, 2.36),
    (2.53, 3.11),
    (2.73, 3.48),
    (2.96, 7.95),
];
/// On four cores: load, then the 99th percentile with JBSQ and with a fixed core.
const FOUR_CORES: [(f64, f64, f64); 4] =
    [(0.89, 0.592, 0.823), (6.80, 1.1, 2.96), (7.53, 1.4, 4.10), (8.48, 2.7, 10.14)];

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    one_core(settings, &mut outcome)?;
    four_cores(settings, &mut outcome)?;
    Ok(outcome)
}

/// The client's hash of a key.
fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) ^ mixed >> 33
}

fn request(sent: u64, is_static: bool, key: u64, is_set: bool) -> Request {
    let context = if is_static { (hash(key) >> 32) as u16 % 4 } else { 0 };
    let mut words = vec![if is_set { SET } else { GET }, hash(key), key, !key];
    if is_set {
        words.extend((key << 32..).take(VALUE_WORDS as usize));
    }
    Request::of_words(sent, address(0), context, &words)
}

/// A store with all its items.
fn filled(settings: &Settings<'_>, program: &str, cores: usize) -> Result<Testbed, ExperimentError> {
    let mut testbed = testbed(settings, &[program], cores, LINK_CYCLES)?;
    expect(&mut testbed, 0, &[0], &[2])?;
    let is_static = program != "mica";
    let start = testbed.cycle() + 20_000;
    let pause = if cores > 1 { 600 } else { 1_600 };
    let sets = (0..ITEMS).map(|key| request(start + pause * key, is_static, key, true));
    play(&mut testbed, sets.collect(), |_, answer| answer == [0])?;
    Ok(testbed)
}

fn measure(
    settings: &Settings<'_>,
    testbed: &mut Testbed,
    is_static: bool,
    mrps: f64,
) -> Result<Times, ExperimentError> {
    let count = if settings.is_quick { 2_000 } else { 10_000 };
    let mut rng = Rng::new(settings.seed);
    let sent = arrivals(&mut rng, testbed.cycle() + 20_000, count, mrps, LINK_CYCLES);
    let asked: Vec<(u64, bool)> = sent.iter().map(|_| (rng.below(ITEMS), rng.chance(0.5))).collect();
    let requests = sent.iter().zip(&asked).map(|(&at, &(key, is_set))| request(at, is_static, key, is_set));
    play(testbed, requests.collect(), |number, answer| {
        let (key, is_set) = asked[number];
        let is_value = || {
            answer.len() as u64 == 1 + VALUE_WORDS && answer[1..].iter().copied().eq((key << 32..).take(64))
        };
        answer.first() == Some(&0) && (is_set || is_value())
    })
}

fn one_core(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut testbed = filled(settings, "mica", 1)?;
    let mut rng = Rng::new(settings.seed);
    let rounds = if settings.is_quick { 20 } else { 100 };
    let service =
        service_ns(&mut testbed, rounds, |at| request(at, false, rng.below(ITEMS), rng.chance(0.5)))?;
    outcome.rows.push(Row {
        experiment: EXPERIMENT.name,
        claim: "one core, the load that saturates it".to_string(),
        paper: "about 3.0 M/s".to_string(),
        here: format!("{} M/s, {} ns a request", figure(1000.0 / service), figure(service)),
        inside: None,
    });
    let mut points = Vec::new();
    for (step, (mrps, published)) in ONE_CORE.into_iter().enumerate() {
        (settings.progress)(0.1 + 0.4 * step as f64 / ONE_CORE.len() as f64);
        let times = measure(settings, &mut testbed, false, mrps)?;
        let p99 = times.percentile_ns(0.99) / 1000.0;
        points.push((times.mrps, p99));
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!("one core, p99 at {mrps} M/s, two links of 140 cycles among it"),
            paper: format!("{published} µs"),
            here: format!("{} µs at {} M/s", figure(p99), figure(times.mrps)),
            inside: None,
        });
    }
    chart(outcome, "One core", vec![("here", false, points), ("published", true, ONE_CORE.to_vec())]);
    Ok(())
}

fn four_cores(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut found = Vec::new();
    for (case, program) in ["mica", "mica_static"].into_iter().enumerate() {
        let mut testbed = filled(settings, program, 4)?;
        for (step, (mrps, jbsq, fixed)) in FOUR_CORES.into_iter().enumerate() {
            (settings.progress)(0.5 + (4 * case + step) as f64 / 16.0);
            let times = measure(settings, &mut testbed, case == 1, mrps)?;
            let p99 = times.percentile_ns(0.99) / 1000.0;
            let (how, published) =
                if case == 0 { ("JBSQ(2)", jbsq) } else { ("a fixed core per key", fixed) };
            found.push((case, times.mrps, p99));
            outcome.rows.push(Row {
                experiment: EXPERIMENT.name,
                claim: format!("four cores, {how}, mean and p99 at {mrps} M/s"),
                paper: format!("p99 {published} µs"),
                here: format!(
                    "{} and {} µs at {} M/s",
                    figure(times.mean_ns() / 1000.0),
                    figure(p99),
                    figure(times.mrps)
                ),
                inside: None,
            });
        }
    }
    let of = |case| found.iter().filter(|point| point.0 == case).map(|&(_, x, y)| (x, y)).collect::<Vec<_>>();
    let (jbsq, fixed) = (of(0), of(1));
    let gain = fixed[3].1 / jbsq[3].1;
    outcome.check(
        EXPERIMENT.name,
        "four cores, 8.48 M/s: p99 of a fixed core per key over that of JBSQ(2)",
        "3.8",
        gain,
        "",
        (1.0, f64::INFINITY),
    );
    let published =
        |pick: fn(&(f64, f64, f64)) -> f64| FOUR_CORES.iter().map(|row| (row.0, pick(row))).collect();
    chart(
        outcome,
        "Four cores",
        vec![
            ("JBSQ(2), here", false, jbsq),
            ("JBSQ(2), published", true, published(|row| row.1)),
            ("fixed, here", false, fixed),
            ("fixed, published", true, published(|row| row.2)),
        ],
    );
    Ok(())
}

/// A line of a chart: its name, whether it is the paper's, and its points.
type Line<'a> = (&'a str, bool, Vec<(f64, f64)>);

fn chart(outcome: &mut Outcome, title: &str, series: Vec<Line<'_>>) {
    let series = series.into_iter().map(|(name, is_paper, points)| Series {
        name: name.to_string(),
        is_paper,
        points,
    });
    outcome.charts.push(Chart {
        title: format!("Key-value store, {title}: 99th percentile over load"),
        across: "million requests per second".to_string(),
        up: "microseconds".to_string(),
        is_log: true,
        series: series.collect(),
    });
}
