//! Banks of registers, between which the scheduler switches, against the handler of its interrupt; with threads that poll and threads
//! that wait in the read.

use super::EXPERIMENT;
use crate::client::{Client, Request};
use crate::experiments::load::{Contexts, Load, Service, Work};
use crate::experiments::replay;
use crate::experiments::serve::{Responses, Server};
use crate::experiments::{Chart, ExperimentError, Outcome, Series, Settings, figure};
use crate::node::{Node, NodeConfig};
use crate::queueing::percentile;

/// The work of a request in the published experiments, and the link to the generator.
const WORK_CYCLES: u64 = 1_600;
const LINK_CYCLES: u64 = 140;
/// Cycles of a switch. A thread that polls may take none or fewer: it goes on just behind its last look, and one that has not left the core
/// is somewhere in its loop.
const SWITCH_BAND: (f64, f64) = (f64::NEG_INFINITY, 10.0);
/// Mean cycles between requests: the published sweep.
const SWEEP: [u64; 9] = [3200, 3000, 2800, 2600, 2400, 2200, 2000, 1800, 1600];

/// A way to switch and to wait.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    has_banks: bool,
    blocks: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: "handler", has_banks: false, blocks: false },
    Variant { name: "handler, reads wait", has_banks: false, blocks: true },
    Variant { name: "banks", has_banks: true, blocks: false },
    Variant { name: "banks, reads wait", has_banks: true, blocks: true },
];

impl Variant {
    fn config(self) -> NodeConfig {
        NodeConfig { context_banks: self.has_banks, blocking_reads: self.blocks, ..NodeConfig::default() }
    }

    fn pick(self, polls: &'static str, waits: &'static str) -> &'static str {
        if self.blocks { waits } else { polls }
    }
}

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    switches(settings, outcome)?;
    under_load(settings, outcome)?;
    bounded(settings, outcome)?;
    replayed(settings, outcome)
}

/// The prototype's recorded requests, against its recorded responses.
fn replayed(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    for load in [50, 80] {
        let Some(recorded) = replay::recorded(settings, load)? else { continue };
        for variant in VARIANTS {
            let works = recorded.iter().map(|(work, _)| *work).collect();
            let server =
                Server::new(settings, variant.pick("service", "service_blocking"), variant.config())?;
            let responses = server.play(works)?;
            let mut off: Vec<f64> =
                responses.cycles.iter().zip(&recorded).map(|(here, (_, there))| here - there).collect();
            off.sort_by(f64::total_cmp);
            outcome.report(
                EXPERIMENT.name,
                format!(
                    "recorded requests at {load} % load, ours minus theirs, median; p99 urgent, other: {}",
                    variant.name
                ),
                format!(
                    "{} cycles; {}, {} µs",
                    figure(percentile(&off, 0.5)),
                    figure(responses.p99_of(0)),
                    figure(responses.p99_of(1))
                ),
            );
        }
    }
    Ok(())
}

/// The cost of a switch, measured as in the recordings: the response to a request that interrupts the other
/// thread's work, minus that to one that finds its own thread on the core.
fn switches(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    for variant in VARIANTS {
        let [alone, preempting] = isolated(settings, variant)?;
        let median = |sorted: &[f64]| sorted[sorted.len() / 2];
        let here = median(&preempting) - median(&alone);
        let range = format!(
            "cycles (over work and links: {} to {} alone, {} to {} preempting)",
            alone[0],
            alone[alone.len() - 1],
            preempting[0],
            preempting[preempting.len() - 1]
        );
        let claim = format!("a switch to the urgent thread, isolated: {}", variant.name);
        match variant.has_banks {
            true => outcome.check(
                EXPERIMENT.name,
                claim,
                "< 10 hoped for; handler 142",
                here,
                &range,
                SWITCH_BAND,
            ),
            false => outcome.report(EXPERIMENT.name, claim, format!("{} {range}", figure(here))),
        }
    }
    Ok(())
}

/// Cycles over work and links, in order, of urgent requests that find their own thread on the core, and of those that interrupt the
/// other's work; at many phases of the thread's loop.
fn isolated(settings: &Settings<'_>, variant: Variant) -> Result<[Vec<f64>; 2], ExperimentError> {
    const PAIRS: u64 = 56;
    const WARM: u64 = 8;
    let name = variant.pick("service", "service_blocking");
    let program = settings.files.program(name)?;
    let config = variant.config();
    let mut node = Node::new(&program, &config)
        .map_err(|error| ExperimentError::NoProgram(name.to_string(), error.to_string()))?;
    let work = |sent, context| Work { sent, context, cycles: WORK_CYCLES }.request(0);
    // The first request of an even pair is done before the second comes, and its thread has not been idle for
    // long enough to lose its turn.
    let pair = |number: u64| {
        let sent = 30_000 + 16_000 * number;
        match number % 2 {
            0 => [work(sent, 0), work(sent + 3_000 + number, 0)],
            _ => [work(sent, 1), work(sent + 700 + number, 0)],
        }
    };
    let requests: Vec<Request> = (0..PAIRS).flat_map(pair).collect();
    let answers = Client::new(0x0a00_0001, config.nic.address, LINK_CYCLES)
        .play(&mut node, &requests, 400_000, |_, _| {})
        .map_err(|event| ExperimentError::trapped(name, &event))?;
    let over = |number: usize| {
        let answer = answers[number].as_ref()?;
        Some((answer.received - requests[number].sent - WORK_CYCLES - 2 * LINK_CYCLES) as f64)
    };
    Ok([0, 1].map(|kind| {
        let second = (WARM..PAIRS).filter(|number| number % 2 == kind).map(|number| 2 * number as usize + 1);
        let mut found: Vec<f64> = second.filter_map(over).collect();
        found.sort_by(f64::total_cmp);
        found
    }))
}

/// The published sweep, once for each way.
fn under_load(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut found: [Vec<Responses>; 4] = Default::default();
    for (mean, works) in points(settings) {
        for (place, variant) in VARIANTS.into_iter().enumerate() {
            let server =
                Server::new(settings, variant.pick("service", "service_blocking"), variant.config())?;
            found[place].push(server.play(works.clone())?);
        }
        let tails = |context| {
            let of = |(variant, responses): (Variant, &Vec<Responses>)| {
                let p99 = responses.last().map_or(0.0, |responses| responses.p99_of(context));
                format!("{} {}", variant.name, figure(p99))
            };
            VARIANTS.into_iter().zip(&found).map(of).collect::<Vec<_>>().join(" · ")
        };
        if [3200, 2400, 1600].contains(&mean) {
            let load = found[0].last().map_or(0.0, Responses::load);
            for (thread, context) in [("urgent", 0), ("other", 1)] {
                outcome.report(
                    EXPERIMENT.name,
                    format!("{thread} thread, p99 at {load:.2} M requests/s, µs"),
                    tails(context),
                );
            }
        }
    }
    let line = |(variant, all): (Variant, &Vec<Responses>)| Series {
        name: variant.name.to_string(),
        is_paper: false,
        points: all.iter().map(|responses| (responses.load(), responses.p99_of(0))).collect(),
    };
    outcome.charts.push(Chart {
        title: "99th percentile of the urgent thread by load".to_string(),
        across: "M requests/s".to_string(),
        up: "µs".to_string(),
        is_log: false,
        series: VARIANTS.into_iter().zip(&found).map(line).collect(),
    });
    Ok(())
}

/// The authors' requests at each point that is played. Their engines go on through the whole sweep.
fn points(settings: &Settings<'_>) -> Vec<(u64, Vec<Work>)> {
    let mut load = Load::new(Service::Fixed(WORK_CYCLES), Contexts::Random(2));
    let mut all = Vec::new();
    for mean in SWEEP {
        let mut works = load.point(20_000, mean);
        if settings.is_quick {
            works.truncate(3_000);
        }
        if !settings.is_quick || [3200, 2400, 1600].contains(&mean) {
            all.push((mean, works));
        }
    }
    all
}

/// Bounded processing time: the switch is part of what the bound costs.
fn bounded(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    for (mean, works) in points(settings) {
        if ![3200, 1600].contains(&mean) {
            continue;
        }
        let mut load = 0.0;
        let mut tails = [Vec::new(), Vec::new()];
        for variant in VARIANTS {
            // Its threads poll where reads do not wait.
            let server = Server::new(settings, "service_bounded_blocking", variant.config())?;
            let responses = server.play(works.clone())?;
            load = responses.load();
            for (context, tails) in tails.iter_mut().enumerate() {
                tails.push(format!("{} {}", variant.name, figure(responses.p99_of(context as u16))));
            }
        }
        for (thread, tails) in ["well-behaved", "misbehaving"].into_iter().zip(tails) {
            let claim = format!("bounded, {thread} thread, p99 at {load:.2} M requests/s, µs");
            outcome.report(EXPERIMENT.name, claim, tails.join(" · "));
        }
    }
    Ok(())
}
