//! Shared parts of experiments with applications: nodes around a switch, arrivals, and times of response.

use highwire_stdx::Rng;

use super::{CYCLES_PER_NANOSECOND, ExperimentError, Settings, prototype};
use crate::node::{Node, NodeConfig};
use crate::testbed::{Request, Testbed, TestbedError, address};

/// The load generator's links unless an experiment says otherwise, in cycles: 43.75 ns.
pub(super) const LINK_CYCLES: u64 = 140;
/// How long to wait for answers behind the last request.
const PATIENCE_CYCLES: u64 = 2_000_000;
/// Time enough for every program to start.
const START_CYCLES: u64 = 20_000_000;
/// The authors' timeout in the experiments with applications.
const TIMEOUT_CYCLES: u64 = 4480;

/// Nodes that run these programs, in the order of their addresses, each on so many cores.
pub(super) fn testbed(
    settings: &Settings<'_>,
    programs: &[&str],
    cores: usize,
    link_cycles: u64,
) -> Result<Testbed, ExperimentError> {
    let nodes = programs.iter().enumerate().map(|(number, name)| {
        let mut config = NodeConfig { cores, ..prototype() };
        config.nic.address = address(number);
        config.nic.timeout_cycles = TIMEOUT_CYCLES;
        Node::new(&settings.files.program(name)?, &config)
            .map_err(|error| ExperimentError::NoProgram(name.to_string(), error.to_string()))
    });
    Testbed::new(nodes.collect::<Result<_, _>>()?, link_cycles).map_err(broken)
}

/// Asks a node once and expects these words.
pub(super) fn expect(
    testbed: &mut Testbed,
    node: usize,
    words: &[u64],
    answer: &[u64],
) -> Result<(), ExperimentError> {
    let got = testbed.call(address(node), 0, words, START_CYCLES).map_err(broken)?.words();
    match got == answer {
        true => Ok(()),
        false => Err(ExperimentError::Broken(format!("node {node} answers {words:?} with {got:?}"))),
    }
}

pub(super) fn broken(error: TestbedError) -> ExperimentError {
    ExperimentError::Broken(error.to_string())
}

/// Cycles at which requests are sent: Poisson, and as the authors' generator has it on whole links, one at most in each.
pub(super) fn arrivals(rng: &mut Rng, start: u64, count: usize, mrps: f64, link_cycles: u64) -> Vec<u64> {
    let mean_cycles = 1000.0 * CYCLES_PER_NANOSECOND / mrps;
    let mut now = start as f64;
    let mut last = start;
    (0..count)
        .map(|_| {
            now += -(1.0 - rng.unit()).ln() * mean_cycles;
            last = (now as u64).max(last + link_cycles).next_multiple_of(link_cycles);
            last
        })
        .collect()
}

/// Times of response.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    sorted_ns: Vec<f64>,
    /// Requests that were sent per microsecond.
    pub(super) mrps: f64,
}

impl Times {
    pub(super) fn of_cycles(cycles: impl IntoIterator<Item = u64>) -> Times {
        let to_ns = |cycles: u64| cycles as f64 / CYCLES_PER_NANOSECOND;
        let mut sorted_ns: Vec<f64> = cycles.into_iter().map(to_ns).collect();
        sorted_ns.sort_by(f64::total_cmp);
        Times { sorted_ns, mrps: 0.0 }
    }

    /// The time that `share` of the responses do not exceed.
    pub(super) fn percentile_ns(&self, share: f64) -> f64 {
        crate::queueing::percentile(&self.sorted_ns, share)
    }

    pub(super) fn mean_ns(&self) -> f64 {
        self.sorted_ns.iter().sum::<f64>() / self.sorted_ns.len().max(1) as f64
    }
}

/// Plays requests, checks every answer, and takes the times. A request without an answer counts as infinitely
/// long.
pub(super) fn play(
    testbed: &mut Testbed,
    requests: Vec<Request>,
    mut check: impl FnMut(usize, &[u64]) -> bool,
) -> Result<Times, ExperimentError> {
    let sent: Vec<u64> = requests.iter().map(|request| request.sent).collect();
    let base = testbed.requests();
    let responses = testbed.play(requests, PATIENCE_CYCLES).map_err(broken)?;
    for number in 0..responses.len() {
        let Some(answer) = testbed.answer(base + number) else { continue };
        let words = answer.words();
        if !check(number, &words) {
            return Err(ExperimentError::Broken(format!("request {number} got the wrong answer: {words:?}")));
        }
    }
    let mut times = Times::of_cycles(responses.iter().flatten().copied());
    times.sorted_ns.resize(responses.len(), f64::INFINITY);
    let span = sent.last().zip(sent.first()).map_or(0, |(last, first)| last - first);
    times.mrps = (sent.len().max(1) - 1) as f64 * 1000.0 * CYCLES_PER_NANOSECOND / span.max(1) as f64;
    Ok(times)
}

/// How long a request occupies the nodes, in nanoseconds: from answer to answer while more wait. `request` makes one that is sent in
/// the given cycle.
pub(super) fn service_ns(
    testbed: &mut Testbed,
    rounds: usize,
    mut request: impl FnMut(u64) -> Request,
) -> Result<f64, ExperimentError> {
    // No more than the NIC has buffers for.
    const BURST: usize = 40;
    let mut cycles = 0;
    for _ in 0..rounds {
        let start = testbed.cycle() + 1_000;
        let requests = (0..BURST).map(|_| request(start));
        let times = testbed.play(requests.collect(), PATIENCE_CYCLES).map_err(broken)?;
        if times.contains(&None) {
            return Err(ExperimentError::Broken("a request stayed without an answer".to_string()));
        }
        let (first, last) = (times.iter().flatten().min(), times.iter().flatten().max());
        cycles += last.zip(first).map_or(0, |(last, first)| last - first);
    }
    Ok(cycles as f64 / (rounds * (BURST - 1)) as f64 / CYCLES_PER_NANOSECOND)
}
