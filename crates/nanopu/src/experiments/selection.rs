//! Core selection: RSS, JBSQ with bounds of one, two and four, and JBSQ with preemption, over load (nanoPU §5.2).

use super::load::{Contexts, Load, Service};
use super::serve::{Responses, Server};
use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings, prototype};
use crate::nic::Selection;
use crate::node::NodeConfig;

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "core-selection", title: "Core selection: RSS, JBSQ(n) and preemption", run };

/// A way to spread messages over four cores.
struct Scheme {
    name: &'static str,
    program: &'static str,
    selection: Selection,
    contexts: Contexts,
    /// Microseconds by point of the sweep, read off a figure; nothing where no curve can be read.
    published: [Option<f64>; 12],
}

/// Mean cycles between requests.
const MEANS: [u64; 12] = [900, 850, 800, 750, 700, 650, 600, 550, 500, 450, 400, 350];

const NONE: [Option<f64>; 12] = [None; 12];

const fn known(values: [f64; 12]) -> [Option<f64>; 12] {
    let mut all = NONE;
    let mut place = 0;
    while place < 12 {
        if values[place] > 0.0 {
            all[place] = Some(values[place]);
        }
        place += 1;
    }
    all
}

const SCHEMES: [Scheme; 5] = [
    Scheme {
        name: "RSS",
        program: "service_rss",
        selection: Selection::Rss,
        contexts: Contexts::Random(4),
        published: known([5.06, 5.12, 5.34, 5.40, 5.51, 5.51, 6.18, 6.95, 7.73, 7.07, 14.75, 0.0]),
    },
    Scheme {
        name: "JBSQ(1)",
        program: "service_jbsq",
        selection: Selection::Jbsq(1),
        contexts: Contexts::One,
        published: NONE,
    },
    Scheme {
        name: "JBSQ(2)",
        program: "service_jbsq",
        selection: Selection::Jbsq(2),
        contexts: Contexts::One,
        published: known([1.1, 1.1, 1.15, 1.2, 1.4, 1.3, 2.11, 3.22, 2.89, 3.11, 4.73, 0.0]),
    },
    Scheme {
        name: "JBSQ(4)",
        program: "service_jbsq",
        selection: Selection::Jbsq(4),
        contexts: Contexts::One,
        published: NONE,
    },
    Scheme {
        name: "JBSQ-PRE",
        program: "service_replay",
        selection: Selection::Jbsq(2),
        contexts: Contexts::ByService,
        published: known([1.16, 1.11, 1.16, 1.16, 1.16, 1.16, 1.22, 1.28, 1.33, 1.50, 2.06, 6.65]),
    },
];

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let mut series = Vec::new();
    for (number, scheme) in SCHEMES.iter().enumerate() {
        let found = sweep(settings, scheme, number)?;
        for (place, responses) in &found {
            let (load, here) = (responses.load(), responses.p99());
            let claim = format!("{}, p99 at {load:.2} M requests/s", scheme.name);
            match scheme.published[*place] {
                Some(published) => outcome.check(
                    EXPERIMENT.name,
                    claim,
                    format!("{published:.2} µs (read off a figure)"),
                    here,
                    "µs",
                    settings.around_read_off(published),
                ),
                None => {
                    outcome.report(EXPERIMENT.name, claim, format!("{} µs", super::figure(here)));
                }
            }
        }
        let is_shown = |point: &(f64, f64)| point.1 < 100.0;
        let points = found.iter().map(|(_, here)| (here.load(), here.p99())).filter(is_shown).collect();
        series.push(Series { name: scheme.name.to_string(), is_paper: false, points });
        let paper: Vec<(f64, f64)> =
            found.iter().filter_map(|(place, here)| Some((here.load(), scheme.published[*place]?))).collect();
        if !paper.is_empty() {
            series.push(Series {
                name: format!("{}, published", scheme.name),
                is_paper: true,
                points: paper,
            });
        }
    }
    outcome.charts.push(Chart {
        title: "99th percentile of the response by load, four cores".to_string(),
        across: "M requests/s".to_string(),
        up: "µs".to_string(),
        is_log: true,
        series,
    });
    Ok(outcome)
}

fn sweep(
    settings: &Settings<'_>,
    scheme: &Scheme,
    number: usize,
) -> Result<Vec<(usize, Responses)>, ExperimentError> {
    let mut config = NodeConfig { cores: 4, ..prototype() };
    config.nic.selection = scheme.selection;
    let server = Server::new(settings, scheme.program, config)?;
    let mut load = Load::new(Service::Bimodal, scheme.contexts);
    let mut found = Vec::new();
    for (place, mean) in MEANS.into_iter().enumerate() {
        let done = number as f64 + place as f64 / MEANS.len() as f64;
        (settings.progress)(done / SCHEMES.len() as f64);
        let mut works = load.point(20_000, mean);
        if settings.is_quick {
            if place % 10 != 0 {
                continue;
            }
            works.truncate(10_000);
        }
        found.push((place, server.play(works)?));
    }
    Ok(found)
}
