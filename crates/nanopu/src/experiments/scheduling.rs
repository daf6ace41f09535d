//! Two threads on one core: the scheduler in hardware against one in software that a timer calls (nanoPU §5.3).

use super::load::{Contexts, Load, ROUND_CYCLES, Service, Work};
use super::replay;
use super::serve::{Responses, Server};
use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings, prototype};

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
/// The program of the published measurements, step by step, and ours, which does the same with less.
const PUBLISHED_PROGRAM: &str = "service_replay";
const OUR_PROGRAM: &str = "service";
/// A scheduler is saturated when its 99th percentile is beyond this, in microseconds.
const SATURATED: f64 = 50.0;

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    switches(settings, &mut outcome)?;
    let hardware = sweep(settings, PUBLISHED_PROGRAM, 0.0)?;
    let timer = sweep(settings, "service_timer", 0.4)?;
    for (responses, &(_, urgent, other)) in hardware.iter().zip(&points(settings)) {
        let load = responses.load();
        if let Some(published) = urgent {
            outcome.check(
                EXPERIMENT.name,
                format!("urgent thread, p99 at {load:.2} M requests/s"),
                format!("{published:.2} µs"),
                responses.p99_of(0),
                "µs",
                settings.around_printed(published),
            );
        }
        if let Some(published) = other {
            outcome.check(
                EXPERIMENT.name,
                format!("other thread, p99 at {load:.2} M requests/s"),
                format!("{published} µs (read off a figure)"),
                responses.p99_of(1),
                "µs",
                settings.around_read_off(published),
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
    tails(settings, &mut outcome, &hardware, &timer);
    let ours = sweep(settings, OUR_PROGRAM, 0.8)?;
    let every = if settings.is_quick { 1 } else { 4 };
    for (responses, published) in ours.iter().zip(hardware.iter().step_by(every)) {
        let claim = format!(
            "our own thread switch and loop: urgent thread, p99 at {:.2} M requests/s",
            responses.load()
        );
        let here = super::figure(responses.p99_of(0));
        let theirs = super::figure(published.p99_of(0));
        outcome.report(EXPERIMENT.name, claim, format!("{here} µs; {theirs} with their steps"));
    }
    replay::rows(settings, EXPERIMENT.name, &mut outcome)?;
    outcome.charts.push(chart(&hardware, &timer, &points(settings)));
    Ok(outcome)
}

/// How long a switch of threads takes: the time of an urgent request in the middle of another request's work,
/// and alone.
fn switches(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    // Idle threads take turns, so only some of the lonely requests find their own thread on the core.
    let at = |rounds: u64, context| Work { sent: rounds * ROUND_CYCLES, context, cycles: 1600 };
    let lonely = 8;
    let works: Vec<Work> = (0..lonely)
        .map(|i| at(23 * i, 0))
        .chain([at(23 * (lonely + 1), 1), at(23 * (lonely + 1) + 5, 0)])
        .collect();
    let cycles = |program| {
        let responses = Server::new(settings, program, prototype())?.play(works.clone())?;
        let (alone, rest) = responses.cycles.split_at(lonely as usize);
        let alone = alone.iter().copied().fold(f64::INFINITY, f64::min);
        Ok::<f64, ExperimentError>(rest.last().copied().unwrap_or(f64::NAN) - alone)
    };
    outcome.check(
        EXPERIMENT.name,
        "a switch of threads, with their handler's steps",
        "142 cycles (131 to 148 in the recordings)",
        cycles(PUBLISHED_PROGRAM)?,
        "cycles",
        (131.0, 148.0),
    );
    let ours = cycles(OUR_PROGRAM)?;
    outcome.report(EXPERIMENT.name, "a switch of threads, our handler", format!("{ours:.0} cycles"));
    Ok(())
}

/// The urgent thread's tail under either scheduler, load by load, and the gain at 80 % of the hardware's highest load.
fn tails(settings: &Settings<'_>, outcome: &mut Outcome, hardware: &[Responses], timer: &[Responses]) {
    /// The point of 80 % load, and the gain that the authors' recordings show there at least.
    const POINT: u64 = 2000;
    const GAIN: f64 = 20.0;
    for ((with, without), (mean, ..)) in hardware.iter().zip(timer).zip(points(settings)) {
        let (load, fast, slow) = (with.load(), with.p99_of(0), without.p99_of(0));
        let ratio = slow / fast;
        if mean == POINT {
            outcome.check(
                EXPERIMENT.name,
                format!("urgent thread, p99 of the timer over hardware at {load:.2} M requests/s"),
                format!("more than {GAIN}"),
                ratio,
                "×",
                (GAIN, f64::INFINITY),
            );
        } else {
            outcome.report(
                EXPERIMENT.name,
                format!("urgent thread, p99 of hardware and timer at {load:.2} M requests/s"),
                both_tails(fast, slow),
            );
        }
    }
}

/// Two tails in microseconds. One is infinite where requests never get an answer, and then there is no ratio.
fn both_tails(fast: f64, slow: f64) -> String {
    let words = |tail: f64| match tail.is_finite() {
        true => format!("{} µs", super::figure(tail)),
        false => "requests without an answer".to_string(),
    };
    let both = format!("{}; {}", words(fast), words(slow));
    match fast.is_finite() && slow.is_finite() {
        true => format!("{both}, {} times as long", super::figure(slow / fast)),
        false => both,
    }
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
    let server = Server::new(settings, program, prototype())?;
    let load = Load::new(Service::Fixed(1600), Contexts::Random(2));
    let mut wanted = points(settings);
    if program == OUR_PROGRAM {
        // This program is compared with the other one, not with published figures.
        wanted = PUBLISHED.into_iter().step_by(4).collect();
    }
    let wanted: Vec<u64> = wanted.iter().map(|point| point.0).collect();
    let most = if settings.is_quick { 3_000 } else { usize::MAX };
    let progress = |share| (settings.progress)(begun + 0.4 * share);
    server.sweep(load, &PUBLISHED.map(|point| point.0), &wanted, most, progress)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_without_end_is_said_in_words() {
        assert_eq!(both_tails(2.0, 8.0), "2.00 µs; 8.00 µs, 4.00 times as long");
        assert_eq!(both_tails(2.0, f64::INFINITY), "2.00 µs; requests without an answer");
        assert_eq!(both_tails(f64::INFINITY, f64::INFINITY).matches("without an answer").count(), 2);
    }
}
