//! Core selection for more than 32 cores: one row of comparators against two levels, both with estimates of
//! selection's time, against one queue for all cores that takes none.

use super::super::load::{Contexts, Load, Service, Work};
use super::super::{Chart, ExperimentError, Outcome, Series, Settings, figure};
use super::EXPERIMENT;
use crate::client::{Client, Request};
use crate::nic::{NicConfig, Selection, TreeShape};
use crate::node::{Node, NodeConfig};
use crate::queueing::{self, Job, percentile, response_cycles, response_times};

/// Words on the wire of a message of two words: no two come sooner.
const MESSAGE_CYCLES: u64 = 10;
const LOADS: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
/// Where claims are made.
const HIGH: [f64; 3] = [0.8, 0.9, 0.95];

const fn tree(cores_per_group: u32) -> Selection {
    Selection::Tree(TreeShape { cores_per_group, per_core: 1, per_group: 1 })
}

const SCHEMES: [(&str, Selection); 4] = [
    ("JBSQ(1)", Selection::Jbsq(1)),
    ("JBSQ(2)", Selection::Jbsq(2)),
    ("tree of 16", tree(16)),
    ("tree of 32", tree(32)),
];
/// Of those, the ones that programs are run on.
const RUN: [usize; 2] = [1, 3];

/// See the module.
pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let count = if settings.is_quick { 100_000 } else { 400_000 };
    let works = Load::new(Service::Bimodal, Contexts::One).point(count, 1000);
    for (cores, stretch) in [(64, 1), (128, 1), (256, 2)] {
        ideal_cores(&works, cores, stretch, outcome);
    }
    let count = if settings.is_quick { 8_000 } else { 40_000 };
    for load in [0.8, 0.9] {
        programs(settings, &works[..count], 64, load, outcome)?;
    }
    Ok(())
}

/// The authors' requests, with their gaps shortened to `load` of so many cores and their work made `stretch` times as long.
fn jobs(works: &[Work], cores: usize, stretch: u64, load: f64) -> Vec<Job> {
    let work = works.iter().map(|work| (work.cycles * stretch) as f64).sum::<f64>() / works.len() as f64;
    let gap = works.last().map_or(1.0, |work| work.sent as f64) / works.len() as f64;
    let scale = work / (load * cores as f64) / gap;
    let mut free = 0;
    let job = |work: &Work| {
        let arrival = u64::max(free, (work.sent as f64 * scale) as u64);
        free = arrival + MESSAGE_CYCLES;
        Job { arrival, service: work.cycles * stretch }
    };
    works.iter().map(job).collect()
}

/// The 99th percentile behind one queue that costs nothing.
fn one_queue(jobs: &[Job], cores: usize, extra: u64) -> f64 {
    let ideal: Vec<_> = jobs
        .iter()
        .map(|job| queueing::Request {
            arrival: job.arrival as f64,
            service: (job.service + extra) as f64,
            hash: 0,
        })
        .collect();
    percentile(&response_times(Selection::Jbsq(1), cores, &ideal), 0.99)
}

fn config(selection: Selection) -> NicConfig {
    // A message that waits holds a buffer, and so does one that is not yet acknowledged.
    NicConfig { selection, selection_slows: true, buffers: [512, 64], ..NicConfig::default() }
}

/// With the NIC's own selector and buses, and cores that take exactly their service time.
fn ideal_cores(works: &[Work], cores: usize, stretch: u64, outcome: &mut Outcome) {
    let mut lines = vec![Vec::new(); SCHEMES.len() + 1];
    let mut off = vec![Vec::new(); SCHEMES.len()];
    for load in LOADS {
        let jobs = jobs(works, cores, stretch, load);
        let one = one_queue(&jobs, cores, 0);
        lines[0].push((load, one / 3200.0));
        for (number, &(_, selection)) in SCHEMES.iter().enumerate() {
            let cycles = response_cycles(&config(selection), cores, &jobs);
            let p99 = percentile(&cycles.into_iter().map(|it| it as f64).collect::<Vec<_>>(), 0.99);
            lines[number + 1].push((load, p99 / 3200.0));
            if HIGH.contains(&load) {
                off[number].push(100.0 * (p99 / one - 1.0));
            }
        }
    }
    for ((name, selection), off) in SCHEMES.iter().zip(&off) {
        let claim =
            format!("{name}, {cores} ideal cores: p99 over that of one queue, at 0.8 · 0.9 · 0.95 load");
        let text = off.iter().map(|off| format!("{off:+.1}")).collect::<Vec<_>>().join(" · ");
        outcome.report(EXPERIMENT.name, claim, format!("{text} %"));
        if *selection == tree(32) {
            let worst = off.iter().copied().fold(f64::MIN, f64::max);
            let claim = format!("{name}, {cores} ideal cores: the most over one queue");
            outcome.check(EXPERIMENT.name, claim, "5 % hoped for", worst, "%", (-5.0, 5.0));
        }
    }
    let names = std::iter::once("one queue").chain(SCHEMES.iter().map(|(name, _)| *name));
    outcome.charts.push(Chart {
        title: format!("{cores} ideal cores: 99th percentile of the response by load"),
        across: "load".to_string(),
        up: "µs".to_string(),
        is_log: false,
        series: names
            .zip(lines)
            .map(|(name, points)| Series { name: name.to_string(), is_paper: false, points })
            .collect(),
    });
}

/// The same with cores that execute a program, and a NIC with everything else in it.
fn programs(
    settings: &Settings<'_>,
    works: &[Work],
    cores: usize,
    load: f64,
    outcome: &mut Outcome,
) -> Result<(), ExperimentError> {
    // Cycles that a core adds to the work of a message, and the network to its response: as in the test with
    // four cores.
    let (core, network) = (27, 20.0);
    let jobs = jobs(works, cores, 1, load);
    let one = one_queue(&jobs, cores, core) + network;
    for (name, selection) in RUN.map(|number| SCHEMES[number]) {
        let p99 = play(settings, selection, cores, &jobs)?;
        let claim = format!("{name}, {cores} cores that run a program, {load} load: p99, and over one queue");
        let off = 100.0 * (p99 / one - 1.0);
        outcome.report(EXPERIMENT.name, claim, format!("{} µs, {off:+.1} %", figure(p99 / 3200.0)));
    }
    Ok(())
}

fn play(
    settings: &Settings<'_>,
    selection: Selection,
    cores: usize,
    jobs: &[Job],
) -> Result<f64, ExperimentError> {
    const PROGRAM: &str = "service4";
    const START: u64 = 20_000;
    /// Rounds in which each core gets a message, for its caches.
    const WARM: u64 = 4;
    let program = settings.files.program(PROGRAM)?;
    let config = NodeConfig { cores, nic: config(selection), ..NodeConfig::default() };
    let mut node = Node::new(&program, &config)
        .map_err(|error| ExperimentError::NoProgram(PROGRAM.to_string(), error.to_string()))?;
    let request = |sent: u64, work: u64| Request {
        sent,
        context: 0,
        payload: [work.to_be_bytes(), sent.to_be_bytes()].concat(),
    };
    // All cores have a message before the first is done.
    let span = (cores as u64 + 20) * MESSAGE_CYCLES;
    let warm = (0..WARM * cores as u64).map(|number| {
        let (round, place) = (number / cores as u64, number % cores as u64);
        request(START + round * 4 * span + place * MESSAGE_CYCLES, 2 * span)
    });
    let start = START + WARM * 4 * span;
    let counted = WARM as usize * cores;
    let requests: Vec<_> =
        warm.chain(jobs.iter().map(|job| request(start + job.arrival, job.service))).collect();
    let answers = Client::new(0x0a00_0001, config.nic.address, 0)
        .play(&mut node, &requests, 2_000_000, |_, _| {})
        .map_err(|event| ExperimentError::trapped(PROGRAM, &event))?;
    let cycles: Vec<f64> = answers
        .iter()
        .zip(&requests)
        .skip(counted)
        .map(|(answer, request)| {
            answer.as_ref().map_or(f64::INFINITY, |it| (it.received - request.sent) as f64)
        })
        .collect();
    Ok(percentile(&cycles, 0.99))
}
