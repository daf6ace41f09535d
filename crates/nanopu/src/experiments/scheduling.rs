//! Two threads on one core: the scheduler in hardware against one in software that a timer calls (nanoPU §5.3).

use super::load::{Contexts, Load, Service};
use super::replay;
use super::serve::{Responses, Server};
use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings, around};
use crate::node::NodeConfig;

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "scheduling", title: "Thread scheduling: hardware against a timer", run };

/// The sweep: mean cycles between requests, and the published 99th percentiles of the urgent thread in microseconds.
const PUBLISHED: [(u64, Option<f64>, Option<f64>); 10] = [
    (3200, Some(1.407), Some(3.28)),
    (3000, Some(1.494), None),
    (2800, Some(1.565), None),
    (2600, Some(1.496), None),
    (2400, Some(1.660), None),
    (2200, Some(1.696), None),
    (2000, Some(1.870), None),
    (1800, Some(1.926), Some(11.6)),
    (1600, Some(2.112), Some(17.9)),
    (1400, None, None),
];
/// A scheduler is saturated when its 99th percentile is beyond this, in microseconds.
const SATURATED: f64 = 50.0;

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let hardware = sweep(settings, "service", 0.0)?;
    let timer = sweep(settings, "service_timer", 0.45)?;
    for (responses, &(_, urgent, other)) in hardware.iter().zip(&points(settings)) {
        let load = responses.load();
        if let Some(published) = urgent {
            outcome.check(
                EXPERIMENT.name,
                format!("urgent thread, p99 at {load:.2} M requests/s"),
                format!("{published:.2} µs"),
                responses.p99_of(0),
                "µs",
                around(published, 8.0),
            );
        }
        if let Some(published) = other {
            outcome.check(
                EXPERIMENT.name,
                format!("other thread, p99 at {load:.2} M requests/s"),
                format!("{published:.1} µs"),
                responses.p99_of(1),
                "µs",
                around(published, 20.0),
            );
        }
    }
    if !settings.is_quick {
        saturation(&mut outcome, &hardware, &timer);
    }
    if let (Some(here), Some(there)) = (hardware.first(), timer.first()) {
        let ratio = there.p99_of(0) / here.p99_of(0);
        outcome.check(
            EXPERIMENT.name,
            format!("urgent thread, p99 of the timer over hardware at {:.2} M requests/s", here.load()),
            "about 5",
            ratio,
            "×",
            (4.0, f64::INFINITY),
        );
    }
    replay::rows(settings, EXPERIMENT.name, &mut outcome)?;
    outcome.charts.push(chart(&hardware, &timer, &points(settings)));
    Ok(outcome)
}

/// The loads up to which either scheduler keeps its tail.
fn saturation(outcome: &mut Outcome, hardware: &[Responses], timer: &[Responses]) {
    let best = |all: &[Responses]| {
        let sound = all.iter().filter(|responses| responses.p99() < SATURATED);
        sound.map(Responses::load).fold(0.0, f64::max)
    };
    let (with, without) = (best(hardware), best(timer));
    outcome.check(
        EXPERIMENT.name,
        "timer: highest load below saturation, M requests/s",
        "1.42 to 1.54",
        without,
        "M/s",
        (1.40, 1.55),
    );
    outcome.check(
        EXPERIMENT.name,
        "hardware: highest load below saturation, M requests/s",
        "1.92",
        with,
        "M/s",
        (1.91, 1.93),
    );
}

/// The points of the sweep; fewer if it must be quick.
fn points(settings: &Settings<'_>) -> Vec<(u64, Option<f64>, Option<f64>)> {
    let every = if settings.is_quick { 4 } else { 1 };
    PUBLISHED.into_iter().step_by(every).collect()
}

fn sweep(
    settings: &Settings<'_>,
    program: &'static str,
    begun: f64,
) -> Result<Vec<Responses>, ExperimentError> {
    let server = Server::new(settings, program, NodeConfig::default())?;
    let mut load = Load::new(Service::Fixed(1600), Contexts::Random(2));
    let wanted = points(settings);
    let mut found = Vec::new();
    for (step, (mean, ..)) in PUBLISHED.into_iter().enumerate() {
        (settings.progress)(begun + 0.45 * step as f64 / PUBLISHED.len() as f64);
        // The engines go on through the whole sweep, whether or not a point is played.
        let mut works = load.point(20_000, mean);
        if wanted.iter().any(|point| point.0 == mean) {
            if settings.is_quick {
                works.truncate(3_000);
            }
            found.push(server.play(works)?);
        }
    }
    Ok(found)
}

fn chart(hardware: &[Responses], timer: &[Responses], points: &[(u64, Option<f64>, Option<f64>)]) -> Chart {
    let line = |name: &str, all: &[Responses], context| Series {
        name: name.to_string(),
        is_paper: false,
        points: all
            .iter()
            .map(|responses| (responses.load(), responses.p99_of(context)))
            .filter(|point| point.1 < 2.0 * SATURATED)
            .collect(),
    };
    let loads = hardware.iter().map(Responses::load);
    let paper = loads.zip(points).filter_map(|(load, point)| Some((load, point.1?))).collect();
    Chart {
        title: "99th percentile of the response by load".to_string(),
        across: "M requests/s".to_string(),
        up: "µs".to_string(),
        is_log: true,
        series: vec![
            line("hardware, urgent", hardware, 0),
            Series { name: "hardware, urgent, published".to_string(), is_paper: true, points: paper },
            line("hardware, other", hardware, 1),
            line("timer, urgent", timer, 0),
            line("timer, other", timer, 1),
        ],
    }
}
