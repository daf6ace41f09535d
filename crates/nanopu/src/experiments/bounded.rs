//! Bounded processing time: a thread whose messages sometimes take ten times as long must not hurt the other (nanoPU §5.4).

use highwire_stdx::Rng;

use super::load::{Contexts, Load, Service};
use super::serve::{Responses, Server};
use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings, prototype};

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "bounded", title: "Bounded message processing time", run };

/// Mean cycles between requests, and what is published with the bound, digitised: well-behaved and misbehaving, in microseconds.
const PUBLISHED: [(u64, f64, f64); 9] = [
    (3200, 1.35, 5.40),
    (3000, 1.44, 5.49),
    (2800, 1.53, 5.85),
    (2600, 1.44, 5.85),
    (2400, 1.62, 6.48),
    (2200, 1.71, 7.82),
    (2000, 1.89, 9.33),
    (1800, 1.89, 13.0),
    (1600, 2.10, 26.7),
];

const BOUNDED: &str = "service_bounded";
const UNBOUNDED: &str = "service_unbounded";
/// Points whose requests are drawn again with other seeds: program, mean cycles between requests, whose tail, and what is published.
const DRAWN_AGAIN: [(&str, u64, u16, f64); 5] = [
    (BOUNDED, 2600, 1, 5.85),
    (BOUNDED, 1600, 1, 26.7),
    (UNBOUNDED, 3200, 0, 5.4),
    (UNBOUNDED, 2200, 0, 9.3),
    (UNBOUNDED, 2000, 0, 13.0),
];
const SEEDS: usize = 15;
/// What share of the experiment the sweeps are.
const SWEEPS_SHARE: f64 = 0.2;

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let bounded = sweep(settings, BOUNDED, 0.0)?;
    let unbounded = sweep(settings, UNBOUNDED, 0.5 * SWEEPS_SHARE)?;
    let points = points(settings);
    for (responses, &(mean, behaved, misbehaving)) in bounded.iter().zip(&points) {
        for (who, context, published) in [("well-behaved", 0, behaved), ("misbehaving", 1, misbehaving)] {
            let claim = format!("bounded, {who} thread, p99 at {:.2} M requests/s", responses.load());
            let paper = format!("{published:.2} µs (read off a figure)");
            let here = responses.p99_of(context);
            if settings.is_quick && (mean, context) == (1600, 1) {
                // Near saturation the tail of a part of the requests says nothing of that of all.
                outcome.compare(EXPERIMENT.name, claim, paper, format!("{} µs", super::figure(here)));
            } else {
                let band = settings.around_read_off(published);
                outcome.check(EXPERIMENT.name, claim, paper, here, "µs", band);
            }
        }
    }
    for (responses, (mean, ..)) in unbounded.iter().zip(&points) {
        let claim = format!("unbounded, well-behaved thread, p99 at {:.2} M requests/s", responses.load());
        let here = responses.p99_of(0);
        match mean {
            3200 => {
                outcome.check(EXPERIMENT.name, claim, "5.4 µs", here, "µs", settings.around_read_off(5.4))
            }
            2200 => {
                outcome.check(EXPERIMENT.name, claim, "9.3 µs", here, "µs", settings.around_read_off(9.3))
            }
            2000 => {
                outcome.check(EXPERIMENT.name, claim, "13 µs", here, "µs", settings.around_read_off(13.0))
            }
            1600 => outcome.check(EXPERIMENT.name, claim, "> 30 µs", here, "µs", (30.0, f64::INFINITY)),
            _ => outcome.report(EXPERIMENT.name, claim, format!("{} µs", super::figure(here))),
        }
    }
    if !settings.is_quick {
        drawn_again(settings, &mut outcome)?;
    }
    outcome.charts.push(chart(&bounded, &unbounded, &points));
    Ok(outcome)
}

/// How far the tail of a point depends on which requests were drawn: as many as were published, from other seeds of the same generator.
fn drawn_again(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    for (number, (program, mean, context, published)) in DRAWN_AGAIN.into_iter().enumerate() {
        let server = Server::new(settings, program, prototype())?;
        // The same seeds for every point.
        let mut rng = Rng::new(settings.seed);
        let (mut tails, mut load) = (Vec::new(), 0.0);
        for drawn in 0..SEEDS {
            let done = (number * SEEDS + drawn) as f64 / (DRAWN_AGAIN.len() * SEEDS) as f64;
            (settings.progress)(SWEEPS_SHARE + (1.0 - SWEEPS_SHARE) * done);
            let requests = Load::seeded(rng.next_u32(), Service::Fixed(1600), Contexts::Random(2));
            let responses = server.sweep(requests, &[mean], &[mean], usize::MAX, |_| {})?;
            tails.extend(responses.iter().map(|responses| responses.p99_of(context)));
            load += responses.iter().map(Responses::load).sum::<f64>() / SEEDS as f64;
        }
        tails.sort_by(f64::total_cmp);
        let (least, median, most) = (tails[0], tails[SEEDS / 2], tails[SEEDS - 1]);
        let bound = if program == BOUNDED { "bounded" } else { "unbounded" };
        let who = if context == 0 { "well-behaved" } else { "misbehaving" };
        let verdict = if (least..=most).contains(&published) { "inside" } else { "outside" };
        outcome.compare(
            EXPERIMENT.name,
            format!("{bound}, {who} thread, p99 at {load:.2} M requests/s of {SEEDS} other seeds of the generator: least, median, most"),
            format!("{published} µs, {verdict} them"),
            format!("{} · {} · {} µs", super::figure(least), super::figure(median), super::figure(most)),
        );
    }
    Ok(())
}

fn points(settings: &Settings<'_>) -> Vec<(u64, f64, f64)> {
    PUBLISHED.into_iter().step_by(if settings.is_quick { 4 } else { 1 }).collect()
}

fn sweep(
    settings: &Settings<'_>,
    program: &'static str,
    begun: f64,
) -> Result<Vec<Responses>, ExperimentError> {
    let server = Server::new(settings, program, prototype())?;
    let load = Load::new(Service::Fixed(1600), Contexts::Random(2));
    let wanted: Vec<u64> = points(settings).iter().map(|point| point.0).collect();
    let most = if settings.is_quick { 4_000 } else { usize::MAX };
    let progress = |share| (settings.progress)(begun + 0.5 * SWEEPS_SHARE * share);
    server.sweep(load, &PUBLISHED.map(|point| point.0), &wanted, most, progress)
}

fn chart(bounded: &[Responses], unbounded: &[Responses], points: &[(u64, f64, f64)]) -> Chart {
    let line = |name: &str, all: &[Responses], context| Series {
        name: name.to_string(),
        is_paper: false,
        points: all
            .iter()
            .map(|responses| (responses.load(), responses.p99_of(context)))
            .filter(|point| point.1.is_finite())
            .collect(),
    };
    let paper = |name: &str, pick: fn(&(u64, f64, f64)) -> f64| Series {
        name: name.to_string(),
        is_paper: true,
        points: bounded.iter().zip(points).map(|(here, point)| (here.load(), pick(point))).collect(),
    };
    Chart {
        title: "99th percentile of the response by load".to_string(),
        across: "M requests/s".to_string(),
        up: "µs".to_string(),
        is_log: true,
        series: vec![
            line("bounded, well-behaved", bounded, 0),
            paper("the same, published", |point| point.1),
            line("bounded, misbehaving", bounded, 1),
            paper("the same, published", |point| point.2),
            line("unbounded, well-behaved", unbounded, 0),
            line("unbounded, misbehaving", unbounded, 1),
        ],
    }
}
