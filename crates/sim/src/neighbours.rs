//! RNICs and nanoPUs as neighbours, and cores with a DMA NIC: hosts of one network, on one clock.
//!
//! A [`Scenario`] gives network, scheme and flows as usual; [`Seat`]s say which of its hosts are not RNICs.
//! Frames of nanoPUs and packets of RNICs meet in the same queues, either in one queue per port or with
//! priorities: bulk, then RPCs, then their control packets.
//!
//! Invariant: RNICs and nanoPUs affect each other only through the queues that they share.

mod experiment;
mod shared;

use std::fmt;
use std::sync::Arc;

use highwire_fabric::{Host, HostId, Observer, Priorities, Time};
use highwire_nanopu::Node;
use highwire_nanopu::client::{Answer, Request};
use highwire_nanopu::dma::DmaNode;
use highwire_nanopu::network::{Generator, Network, NetworkError, Place};
use highwire_nanopu::nic::Ndp;

pub use experiment::EXPERIMENT;
use shared::Cargo;
pub use shared::Shared;

use crate::host::SimHost;
use crate::parcel::Parcel;
use crate::run::collect::flow_record;
use crate::world::World;
use crate::{FlowRecord, Scenario, ScenarioError};

/// The machine on a host.
pub enum Seat {
    /// An RNIC; the scenario's flows run between RNICs.
    Rnic,
    /// A nanoPU; its address is the host's ([`highwire_nanopu::network::address`]).
    Node(Box<Node>),
    /// A core with a DMA NIC.
    Dma(Box<DmaNode>),
    /// A generator of requests to either kind of node.
    Generator(Vec<(HostId, Request)>),
}

/// Why the network cannot be built, or cannot go on.
#[derive(Clone, PartialEq, Debug)]
pub enum NeighboursError {
    /// The scenario is impossible.
    Scenario(ScenarioError),
    /// A flow begins or ends at a host that is no RNIC.
    NoRnic(HostId),
    /// A request is for a host that is neither a nanoPU nor a core with a DMA NIC.
    NoNode(HostId),
    /// The nanoPUs or the network came to an end.
    Network(NetworkError),
    /// An invariant of an RNIC did not hold.
    Host(HostId, String),
}

/// A host that is no nanoPU.
pub(crate) enum Other {
    Rnic(Box<SimHost>),
    Generator(Box<Generator>),
}

/// The network with both. `ABOVE`: whether nanoPUs' packets have priorities above RNICs'.
pub struct Neighbours<const ABOVE: bool, O = ()> {
    scenario: Scenario,
    world: Arc<World>,
    network: Network<Ndp, Other, Shared<ABOVE>, O>,
}

impl<const ABOVE: bool, O: Observer<Shared<ABOVE>>> Neighbours<ABOVE, O> {
    /// Puts `seats` into the scenario's network, in the order of hosts.
    ///
    /// # Errors
    /// [`NeighboursError`].
    pub fn new(
        scenario: &Scenario,
        seats: Vec<Seat>,
        observer: O,
    ) -> Result<Neighbours<ABOVE, O>, NeighboursError> {
        check(scenario, &seats)?;
        let topology = scenario.network.topology().map_err(NeighboursError::Scenario)?;
        let (world, shares) = World::new(scenario, &topology).map_err(NeighboursError::Scenario)?;
        let priorities = if ABOVE { Shared::<ABOVE>::PRIORITIES } else { 1 };
        let config = scenario
            .network
            .config(&topology, scenario.seed, priorities, world.packet_bytes_max())
            .map_err(NeighboursError::Scenario)?;
        let world = Arc::new(world);
        let places = seats.into_iter().zip(&shares).zip(0..).map(|((seat, share), host)| match seat {
            Seat::Rnic => Place::Other(Other::Rnic(Box::new(SimHost::new(host, &world, share)))),
            Seat::Generator(requests) => {
                Place::Other(Other::Generator(Box::new(Generator::new(HostId(host), requests))))
            }
            Seat::Node(node) => Place::Node(node),
            Seat::Dma(node) => Place::Dma(node),
        });
        let network = Network::observed(topology, config, places.collect(), observer)
            .map_err(NeighboursError::Network)?;
        Ok(Neighbours { scenario: scenario.clone(), world, network })
    }

    /// Lets so many threads run the nanoPUs. Results do not depend on it.
    pub fn use_threads(&mut self, threads: usize) {
        self.network.use_threads(threads);
    }

    /// Runs up to a cycle of the nanoPUs, 312.5 ps each.
    ///
    /// # Errors
    /// [`NeighboursError::Network`] and [`NeighboursError::Host`].
    pub fn run_until(&mut self, cycle: u64) -> Result<(), NeighboursError> {
        self.network.run_until(cycle).map_err(NeighboursError::Network)?;
        let problems =
            self.rnics().filter_map(|rnic| Some((rnic.ledger.host, rnic.ledger.problem.clone()?.1)));
        match problems.min() {
            Some((host, problem)) => Err(NeighboursError::Host(HostId(host), problem)),
            None => Ok(()),
        }
    }

    /// The record of each flow so far.
    pub fn flows(&self) -> Vec<FlowRecord> {
        let record = |number: usize| {
            let route = self.world.flows[number];
            let send = self.rnic(route.source)?.ledger.sends[route.outgoing as usize];
            let receive = self.rnic(route.destination)?.ledger.receives[route.incoming as usize];
            Some(flow_record(&self.world, &self.scenario.flows, number as u32, send, receive))
        };
        (0..self.world.flows.len()).filter_map(record).collect()
    }

    /// A generator's answers so far, by request.
    pub fn answers(&self, host: HostId) -> &[Option<Answer>] {
        match self.network.other(host) {
            Some(Other::Generator(generator)) => generator.answers(),
            _ => &[],
        }
    }

    /// The nanoPU on a host, if one is there.
    pub fn node(&self, host: HostId) -> Option<&Node> {
        self.network.node(host)
    }

    /// The core with a DMA NIC on a host, if one is there.
    pub fn dma_node(&self, host: HostId) -> Option<&DmaNode> {
        self.network.dma_node(host)
    }

    /// Its observer.
    pub fn observer(&self) -> &O {
        self.network.fabric().observer()
    }

    /// A sum over all events: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.network.fabric().fingerprint()
    }

    /// Packets that the network dropped, of either kind.
    pub fn dropped(&self) -> u64 {
        self.network.fabric().totals().dropped.packets
    }

    fn rnic(&self, host: u32) -> Option<&SimHost> {
        match self.network.other(HostId(host)) {
            Some(Other::Rnic(rnic)) => Some(rnic),
            _ => None,
        }
    }

    fn rnics(&self) -> impl Iterator<Item = &SimHost> {
        (0..self.network.fabric().topology().host_count()).filter_map(|host| self.rnic(host))
    }
}

fn check(scenario: &Scenario, seats: &[Seat]) -> Result<(), NeighboursError> {
    let is = |host: HostId, kind: fn(&Seat) -> bool| seats.get(host.0 as usize).is_some_and(kind);
    let ends = scenario.flows.iter().flat_map(|flow| [flow.source, flow.destination]);
    if let Some(host) = ends.into_iter().find(|&host| !is(host, |seat| matches!(seat, Seat::Rnic))) {
        return Err(NeighboursError::NoRnic(host));
    }
    let requests = seats.iter().flat_map(|seat| match seat {
        Seat::Generator(requests) => requests.as_slice(),
        _ => &[],
    });
    let mut nodes = requests.map(|&(node, _)| node);
    match nodes.find(|&host| !is(host, |seat| matches!(seat, Seat::Node(_) | Seat::Dma(_)))) {
        Some(host) => Err(NeighboursError::NoNode(host)),
        None => Ok(()),
    }
}

impl<const ABOVE: bool> Host<Shared<ABOVE>> for Other {
    fn handle_packet(&mut self, now: Time, packet: Shared<ABOVE>) {
        match (self, packet.cargo()) {
            (Other::Rnic(rnic), Cargo::Parcel(parcel)) => rnic.handle_packet(now, *parcel),
            (Other::Generator(generator), Cargo::Frame(_)) => generator.handle_packet(now, packet),
            // A program may send anywhere; an RNIC throws away packets that are not RoCE.
            (Other::Rnic(_), Cargo::Frame(_)) | (Other::Generator(_), Cargo::Parcel(_)) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Other::Rnic(rnic) => Host::<Parcel>::handle_timeout(&mut **rnic, now),
            Other::Generator(generator) => Host::<Shared<ABOVE>>::handle_timeout(&mut **generator, now),
        }
    }

    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<Shared<ABOVE>> {
        match self {
            Other::Rnic(rnic) => rnic.poll_transmit(now, open).map(Shared::from_parcel),
            Other::Generator(generator) => generator.poll_transmit(now, open),
        }
    }

    fn poll_timeout(&self) -> Time {
        match self {
            Other::Rnic(rnic) => Host::<Parcel>::poll_timeout(&**rnic),
            Other::Generator(generator) => Host::<Shared<ABOVE>>::poll_timeout(&**generator),
        }
    }
}

impl fmt::Display for NeighboursError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NeighboursError::Scenario(error) => write!(f, "{error}"),
            NeighboursError::NoRnic(host) => {
                write!(f, "a flow begins or ends at host {}, which is no RNIC", host.0)
            }
            NeighboursError::NoNode(host) => {
                write!(
                    f,
                    "a request is for host {}, which is neither a nanoPU nor a core with a DMA NIC",
                    host.0
                )
            }
            NeighboursError::Network(error) => write!(f, "{error}"),
            NeighboursError::Host(host, problem) => write!(f, "host {}: {problem}", host.0),
        }
    }
}

impl std::error::Error for NeighboursError {}
