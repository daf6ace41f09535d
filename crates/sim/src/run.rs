//! Playing a scenario.
//!
//! The run goes in steps of virtual time. After each step the runner looks at the hosts for a broken
//! invariant, at the flows that are over, and whether a sample is due. Steps lie on a fixed grid and do not
//! change the fabric's run, so they do not show in the outcome.

mod circle;
pub(crate) mod collect;
mod error;

use highwire_fabric::{
    DropReason, Fabric, HostId, NodeId, Observer, ParallelFabric, PortId, Rerouting, Span, Time, Topology,
    Violation, ViolationKind,
};
use std::sync::Arc;

pub use error::{BUILT_FROM, RunError};

use crate::host::SimHost;
use crate::parcel::Parcel;
use crate::scenario::{Stop, Transport};
use crate::stamped::{Stamped, Wire};
use crate::world::World;
use crate::{FlowId, Outcome, Progress, Sample, Scenario, ScenarioError, Tick};

/// Plays a scenario on one thread.
///
/// # Errors
/// [`RunError`]; there is no partial outcome.
pub fn run(scenario: &Scenario, progress: &mut dyn Progress) -> Result<Outcome, RunError> {
    run_on(scenario, 1, progress)
}

/// Plays a scenario on so many threads, with the same outcome as on one.
///
/// # Errors
/// [`RunError`]; there is no partial outcome.
///
/// # Panics
/// If there is to be no thread.
pub fn run_on(scenario: &Scenario, threads: usize, progress: &mut dyn Progress) -> Result<Outcome, RunError> {
    if scenario.network.telemetry {
        return play::<Stamped>(scenario, threads, progress);
    }
    play::<Parcel>(scenario, threads, progress)
}

fn play<W: Wire>(
    scenario: &Scenario,
    threads: usize,
    progress: &mut dyn Progress,
) -> Result<Outcome, RunError> {
    let mut run = Run::<W>::new(scenario, threads)?;
    run.play(progress)?;
    Ok(run.outcome())
}

/// The network with its hosts.
pub(crate) type Net<W> = ParallelFabric<W, SimHost, Eyes>;

/// Memory that a packet in flight occupies.
pub const BYTES_PER_PACKET: usize = Fabric::<Parcel, SimHost, Eyes>::bytes_per_packet();

/// A run under way.
pub(crate) struct Run<'a, W: Wire> {
    scenario: &'a Scenario,
    world: Arc<World>,
    pub(crate) net: Net<W>,
    /// The switches' ports, for samples.
    ports: Vec<PortId>,
    samples: Vec<Sample>,
}

/// Counts events that the ports' counters do not tell apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Eyes {
    dropped_data: u64,
}

impl<W: Wire> Observer<W> for Eyes {
    fn on_drop(&mut self, _now: Time, _port: PortId, reason: DropReason, packet: &W) {
        self.dropped_data += u64::from(packet.parcel().is_data() && reason == DropReason::BufferFull);
    }
}

/// The length of a step.
const STEP: Span = Span::from_us(50);

impl<'a, W: Wire> Run<'a, W> {
    pub(crate) fn new(scenario: &'a Scenario, threads: usize) -> Result<Run<'a, W>, ScenarioError> {
        let topology = scenario.network.topology()?;
        check_record(scenario)?;
        let (world, shares) = World::new(scenario, &topology)?;
        let config = scenario.network.config(
            &topology,
            scenario.seed,
            priorities(scenario, &world),
            world.packet_bytes_max(),
        )?;
        let world = Arc::new(world);
        let hosts = (0..).zip(&shares).map(|(host, share)| SimHost::new(host, &world, share));
        let hosts: Vec<SimHost> = hosts.collect();
        let links = topology.links().len();
        let observers = vec![Eyes::default(); threads.max(1)];
        let mut net =
            ParallelFabric::new(topology, config, hosts, observers).map_err(ScenarioError::Build)?;
        break_links(scenario, links, &mut net)?;
        let is_switch = |port: &PortId| matches!(net.node_of(*port), NodeId::Switch(_));
        let ports = (0..net.port_count()).map(PortId).filter(is_switch).collect();
        Ok(Run { scenario, world, net, ports, samples: Vec::new() })
    }

    /// Runs to the scenario's end.
    pub(crate) fn play(&mut self, progress: &mut dyn Progress) -> Result<(), RunError> {
        let end = match self.scenario.stop {
            Stop::At(time) => time,
            Stop::WhenDone | Stop::WhenReceived(_) => self.scenario.time_limit,
        };
        let mut next_step = Time::ZERO + STEP;
        let mut next_sample =
            self.scenario.record.sample_every.map_or(Time::NEVER, |every| Time::ZERO + every);
        loop {
            let now = next_step.min(next_sample).min(end);
            self.net.run_until(now)?;
            if now == next_sample {
                self.sample(now);
                next_sample += self.scenario.record.sample_every.unwrap_or(STEP);
            }
            if now != next_step && now != end {
                continue;
            }
            next_step = now + STEP;
            self.check()?;
            if self.is_over() || now == end {
                break;
            }
            if !progress.tick(&self.tick()) {
                return Err(RunError::Cancelled);
            }
            if self.net.is_at_rest() {
                break;
            }
        }
        self.end(end)
    }

    /// Checks the invariants of the end.
    fn end(&mut self, end: Time) -> Result<(), RunError> {
        match self.scenario.stop {
            Stop::At(_) => self.net.verify()?,
            Stop::WhenReceived(_) => {
                self.net.verify()?;
                self.expect_over(self.received(), self.world.awaited, |f| f < self.world.awaited)?;
            }
            Stop::WhenDone => {
                if self.net.now() < end {
                    self.net.run_to_rest().map_err(|violation| self.stuck(violation))?;
                    self.check()?;
                }
                let all = self.world.flows.len() as u32;
                let unfinished: u32 = self.net.hosts().map(|h| h.ledger.unfinished).sum();
                self.expect_over(all - unfinished, all, |_| true)?;
            }
        }
        self.check_times()
    }

    /// No flow is faster than an empty network would make it.
    fn check_times(&self) -> Result<(), RunError> {
        // A detour around a dead link may have more links, and faster ones.
        let network = &self.scenario.network;
        if network.rerouting == Rerouting::Global && !network.events.is_empty() {
            return Ok(());
        }
        for (flow, route) in self.world.flows.iter().enumerate() {
            let send = self.net.host(HostId(route.source)).ledger.sends[route.outgoing as usize];
            let at = self.net.host(HostId(route.destination)).ledger.receives[route.incoming as usize].at;
            if at != Time::NEVER && at < send.start + route.ideal {
                let (took, ideal) = (at.since(send.start), route.ideal);
                let problem = format!("flow {flow} took {took}, which is less than its ideal {ideal}");
                return Err(RunError::Host {
                    seed: self.scenario.seed,
                    at,
                    host: route.destination,
                    problem,
                });
            }
        }
        Ok(())
    }

    fn expect_over(&self, over: u32, of: u32, is_meant: impl Fn(u32) -> bool) -> Result<(), RunError> {
        if over == of {
            return Ok(());
        }
        let is_open = |flow: &u32| {
            let route = &self.world.flows[*flow as usize];
            let host = self.net.host(HostId(route.source));
            is_meant(*flow) && host.ledger.sends[route.outgoing as usize].acknowledged == Time::NEVER
        };
        let first = (0..self.world.flows.len() as u32).find(is_open).unwrap_or(0);
        Err(RunError::Unfinished {
            seed: self.scenario.seed,
            at: self.net.now(),
            flows: u64::from(of - over),
            first: FlowId(first),
            limit: Some(self.scenario.time_limit).filter(|limit| self.net.now() >= *limit),
            has_no_timeouts: self.repeats_nothing(),
            circle: circle::waiting_circle(&self.net),
        })
    }

    /// A broken invariant; of a deadlock also which links wait for each other.
    fn stuck(&self, violation: Violation) -> RunError {
        if !matches!(violation.kind, ViolationKind::Deadlock { .. }) {
            return violation.into();
        }
        RunError::Deadlock { circle: circle::waiting_circle(&self.net), violation: Box::new(violation) }
    }

    /// Whether packets were lost on links that no timeout repeats.
    fn repeats_nothing(&self) -> bool {
        let has_none =
            matches!(&self.world.scheme.transport, Transport::GoBackN(roce) if roce.timeout.is_none());
        has_none && self.net.totals().lost.packets > 0
    }

    fn received(&self) -> u32 {
        self.net.hosts().map(|h| h.ledger.awaited_received).sum()
    }

    fn is_over(&self) -> bool {
        match self.scenario.stop {
            Stop::At(_) => false,
            Stop::WhenReceived(_) => self.received() >= self.world.awaited,
            Stop::WhenDone => self.net.hosts().all(|h| h.ledger.unfinished == 0),
        }
    }

    /// The earliest broken invariant of a host.
    fn check(&self) -> Result<(), RunError> {
        let problems = self.net.hosts().filter_map(|h| {
            let (at, problem) = h.ledger.problem.as_ref()?;
            Some((*at, h.ledger.host, problem))
        });
        match problems.min() {
            None => Ok(()),
            Some((at, host, problem)) => {
                let seed = self.scenario.seed;
                Err(RunError::Host { seed, at, host, problem: problem.clone() })
            }
        }
    }

    fn tick(&self) -> Tick {
        Tick {
            now: self.net.now(),
            received: self.net.hosts().map(|h| u64::from(h.ledger.received)).sum(),
            flows: self.world.flows.len() as u64,
            packet_hops: self.net.packet_hops(),
        }
    }

    fn sample(&mut self, at: Time) {
        let bytes = |p: &PortId| u32::try_from(self.net.queue_bytes(*p)).unwrap_or(u32::MAX);
        let queue_bytes = self.ports.iter().map(bytes).collect();
        let all = (0..self.net.port_count()).map(PortId);
        let paused = all.filter(|p| self.net.is_paused(*p)).map(|p| p.0).collect();
        self.samples.push(Sample { at, queue_bytes, paused });
    }
}

/// Priorities that the network needs: the headers of trimmed packets may have one of their own.
fn priorities(scenario: &Scenario, world: &World) -> u8 {
    let headers = scenario.network.trimming.map_or(0, |trimming| trimming.header_priority + 1);
    world.priorities().max(headers)
}

fn check_record(scenario: &Scenario) -> Result<(), ScenarioError> {
    if scenario.record.sample_every == Some(Span::ZERO) {
        let problem = "samples need a distance".into();
        return Err(ScenarioError::Value { field: "record.sample_every", problem });
    }
    Ok(())
}

fn break_links<W: Wire>(scenario: &Scenario, links: usize, net: &mut Net<W>) -> Result<(), ScenarioError> {
    let network = &scenario.network;
    let wrong = |field, problem: String| ScenarioError::Value { field, problem };
    for event in &network.events {
        if event.link as usize >= links {
            return Err(wrong(
                "network.events",
                format!("there are {links} links, and no link {}", event.link),
            ));
        }
        net.schedule_link(event.at, event.link as usize, event.is_up);
    }
    for fault in &network.faults {
        let probabilities = [fault.bit_error_rate, fault.packet_loss];
        if !probabilities.iter().all(|p| (0.0..=1.0).contains(p)) {
            return Err(wrong("network.faults", "probabilities lie between 0 and 1".into()));
        }
        let one = fault.link.map(|link| link as usize);
        if one.is_some_and(|link| link >= links) {
            return Err(wrong("network.faults", format!("there are {links} links, and no link {one:?}")));
        }
        for link in one.map_or(0..links, |link| link..link + 1) {
            net.set_link_errors(link, fault.bit_error_rate, fault.packet_loss);
        }
    }
    Ok(())
}

/// The names of a topology's ports, in the order of their numbers: the node, and where the link leads.
fn port_names<W: Wire>(net: &Net<W>, topology: &Topology) -> Vec<String> {
    let name = |port| topology.node_name(net.node_of(port)).to_owned();
    (0..net.port_count()).map(PortId).map(|p| format!("{} -> {}", name(p), name(net.peer(p)))).collect()
}
