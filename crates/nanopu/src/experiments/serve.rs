//! Plays requests for work to a program, and takes the time of each response.

use highwire_riscv::Program;

use super::load::{Load, ROUND_CYCLES, Work};
use super::{CYCLES_PER_NANOSECOND, ExperimentError, Settings};
use crate::client::{Client, Request};
use crate::node::{Node, NodeConfig};
use crate::queueing::percentile;

/// Cycles before the first request, for the program to start.
const START_CYCLES: u64 = 143 * ROUND_CYCLES;
/// Requests before those that count, outside of sweeps: so that caches are warm and misbehaving threads
/// demoted.
const WARM_REQUESTS: usize = 400;
const WARM_CYCLES: u64 = 15 * ROUND_CYCLES;
/// How long to wait for answers behind the last request: until no node has anything left to answer.
const PATIENCE_CYCLES: u64 = 2_000_000;

/// A program on a node of some shape.
pub(super) struct Server {
    name: &'static str,
    program: Program,
    config: NodeConfig,
}

/// The response of each request.
pub(super) struct Responses {
    /// The requests.
    pub(super) works: Vec<Work>,
    /// In cycles, from the request's first word out to its answer's first word back; infinite for those without an answer.
    pub(super) cycles: Vec<f64>,
}

impl Server {
    pub(super) fn new(
        settings: &Settings<'_>,
        name: &'static str,
        config: NodeConfig,
    ) -> Result<Server, ExperimentError> {
        Ok(Server { name, program: settings.files.program(name)?, config })
    }

    /// Plays the requests to a node that has served some before.
    pub(super) fn play(&self, works: Vec<Work>) -> Result<Responses, ExperimentError> {
        let warm = works.iter().take(WARM_REQUESTS).enumerate();
        let warm: Vec<_> = warm
            .map(|(number, work)| Work { sent: number as u64 * WARM_CYCLES, ..*work }.request(START_CYCLES))
            .collect();
        let start = START_CYCLES + (warm.len() as u64 + 20) * WARM_CYCLES;
        let start = start.next_multiple_of(ROUND_CYCLES);
        let counted = warm.len();
        let requests: Vec<_> = warm.into_iter().chain(works.iter().map(|work| work.request(start))).collect();
        let cycles = self.start()?.ask(&requests)?.split_off(counted);
        Ok(Responses { works, cycles })
    }

    fn start(&self) -> Result<Session<'_>, ExperimentError> {
        let node = Node::new(&self.program, &self.config)
            .map_err(|error| ExperimentError::NoProgram(self.name.to_string(), error.to_string()))?;
        let client = Client::in_rounds(0x0a00_0001, self.config.nic.address, ROUND_CYCLES);
        Ok(Session { name: self.name, node, client })
    }
}

/// A program that runs, and the client that asks it.
struct Session<'a> {
    name: &'a str,
    node: Node,
    client: Client,
}

impl Session<'_> {
    /// The response time of each request, in cycles.
    fn ask(&mut self, requests: &[Request]) -> Result<Vec<f64>, ExperimentError> {
        let answers = self
            .client
            .play_in_rounds(&mut self.node, requests, PATIENCE_CYCLES)
            .map_err(|event| ExperimentError::trapped(self.name, &event))?;
        let responses = answers.iter().zip(requests).map(|(answer, request)| match answer {
            Some(answer) => (answer.received - request.sent) as f64,
            None => f64::INFINITY,
        });
        Ok(responses.collect())
    }
}

/// The requests of a published point.
const POINT_REQUESTS: usize = 20_000;

impl Server {
    /// Plays those of a sweep's points that are wanted, `most` requests of each. A point is mean cycles
    /// between requests; `progress` is called with the share of points that are done.
    ///
    /// As in the authors' sweeps, generator and program are started once: a point begins when the one before
    /// has all its answers or will get no more, with the program in the state that it has then. A program
    /// that counts messages goes on counting.
    pub(super) fn sweep(
        &self,
        mut load: Load,
        points: &[u64],
        wanted: &[u64],
        most: usize,
        progress: impl Fn(f64),
    ) -> Result<Vec<Responses>, ExperimentError> {
        let mut session = self.start()?;
        let mut found = Vec::new();
        for (step, mean) in points.iter().enumerate() {
            progress(step as f64 / points.len() as f64);
            // The engines go on through the whole sweep, whether or not a point is played.
            let mut works = load.point(POINT_REQUESTS, *mean);
            if wanted.contains(mean) {
                works.truncate(most);
                let start = session.node.cycle().max(START_CYCLES).next_multiple_of(ROUND_CYCLES);
                let requests: Vec<_> = works.iter().map(|work| work.request(start)).collect();
                let cycles = session.ask(&requests)?;
                found.push(Responses { works, cycles });
            }
        }
        Ok(found)
    }
}

impl Responses {
    /// Requests per microsecond, as they were sent.
    pub(super) fn load(&self) -> f64 {
        let last = self.works.last().map_or(0, |work| work.sent).max(1);
        1000.0 * CYCLES_PER_NANOSECOND * self.works.len() as f64 / last as f64
    }

    /// The time that `share` of the requests which `is_meant` do not exceed, in microseconds.
    pub(super) fn tail(&self, share: f64, is_meant: impl Fn(&Work) -> bool) -> f64 {
        let meant = self.works.iter().zip(&self.cycles).filter(|(work, _)| is_meant(work));
        let cycles: Vec<f64> = meant.map(|(_, &cycles)| cycles).collect();
        percentile(&cycles, share) / CYCLES_PER_NANOSECOND / 1000.0
    }

    /// The 99th percentile of context `context`, in microseconds.
    pub(super) fn p99_of(&self, context: u16) -> f64 {
        self.tail(0.99, |work| work.context == context)
    }

    /// The 99th percentile of all, in microseconds.
    pub(super) fn p99(&self) -> f64 {
        self.tail(0.99, |_| true)
    }
}
