//! nanoPUs on a fabric: any topology, trimming switches, and other hosts beside them.
//!
//! Cores tick in cycles, the fabric in picoseconds. A node models its own link's delay, in both directions,
//! so it hands a packet to the fabric one delay before the packet is at the switch, and the fabric hands it
//! one a delay before the packet arrives. Both may therefore run ahead of each other in turns of two delays,
//! and no event is ever late: the coupling is exact.
//!
//! Host *h* has the address 10.0.0.1 + *h*.

mod dock;
mod endpoint;
mod frame;
mod generator;
mod machine;

use std::fmt;

use highwire_fabric::{
    Buffering, BuildError, Fabric, FabricConfig, Host, LinkSpec, Observer, Rate, Span, Time, Trimming,
    Verdict, Violation,
};
use highwire_riscv::Trap;

use crate::dma::DmaNode;
use crate::nic::{Ndp, Transport};
use crate::node::Node;
use crate::packet::Packet;

pub use dock::{Dock, Station};
pub use endpoint::{Arrived, Endpoint, Sending};
pub use frame::{CONTROL_PRIORITY, Carrier, DATA_PRIORITY, Frame};
pub use generator::Generator;
pub use highwire_fabric::{HostId, Topology};
use machine::{Machine, MachineEvent};

/// Two cycles in picoseconds: one lasts 312.5.
const TWO_CYCLES_PS: u64 = 625;
const FIRST_ADDRESS: u32 = 0x0a00_0001;

/// The rate of the interface: eight bytes a cycle, 204.8 Gb/s.
pub const INTERFACE_RATE: Rate = Rate::from_bps(204_800_000_000);

/// The address of a host.
pub const fn address(host: HostId) -> u32 {
    FIRST_ADDRESS.wrapping_add(host.0)
}

/// The host with this address, if any could have it.
pub fn host_of(address: u32) -> Option<HostId> {
    address.checked_sub(FIRST_ADDRESS).filter(|&host| host < 1 << 24).map(HostId)
}

/// When a cycle begins.
pub fn time_of(cycle: u64) -> Time {
    Time::from_ps((cycle / 2).saturating_mul(TWO_CYCLES_PS) + cycle % 2 * (TWO_CYCLES_PS / 2))
}

/// The cycle that begins next to `time`.
///
/// The fabric rounds to picoseconds at every hop; half a cycle is more than it ever adds up to.
pub fn cycle_of(time: Time) -> u64 {
    (2 * time.as_ps() + TWO_CYCLES_PS / 2) / TWO_CYCLES_PS
}

/// A link at the interface's rate that takes so many cycles.
pub fn link(cycles: u64) -> LinkSpec {
    LinkSpec { rate: INTERFACE_RATE, delay: Span::from_ps(time_of(cycles).as_ps()) }
}

/// A switch that cuts payloads off instead of dropping packets, as NDP wants it. The defaults are the prototype's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrimmingSwitch {
    /// Room for data behind one port, in bytes.
    pub data_bytes: u64,
    /// Room for headers and control packets behind one port, in bytes.
    pub control_bytes: u64,
}

impl Default for TrimmingSwitch {
    /// 85 packets each.
    fn default() -> TrimmingSwitch {
        TrimmingSwitch { data_bytes: 92_480, control_bytes: 92_480 }
    }
}

impl TrimmingSwitch {
    /// The fabric's configuration: so much room behind each port, no matter how much the others hold.
    pub fn config(self) -> FabricConfig {
        FabricConfig {
            priorities: 2,
            buffering: Buffering::OutputQueued { pool_bytes: 1 << 40, alpha_log2: 0 },
            trimming: Some(Trimming {
                data_bytes_max: self.data_bytes,
                header_bytes_max: self.control_bytes,
                header_priority: CONTROL_PRIORITY,
            }),
            ..FabricConfig::default()
        }
    }
}

/// A switch that drops packets without room, with priorities, as Homa wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrioritySwitch {
    /// How many, 1 to 8. The highest goes first.
    pub priorities: u8,
    /// Memory, which its ports share: a queue may hold as much as is free.
    pub pool_bytes: u64,
}

impl PrioritySwitch {
    /// The fabric's configuration.
    pub fn config(self) -> FabricConfig {
        FabricConfig {
            priorities: self.priorities,
            buffering: Buffering::OutputQueued { pool_bytes: self.pool_bytes, alpha_log2: 0 },
            ..FabricConfig::default()
        }
    }
}

/// The machine on a host's link.
pub enum Place<T, H> {
    /// A nanoPU; its address must be the host's.
    Node(Box<Node<T>>),
    /// A core with a DMA NIC. Its program names host and address in its frames; those of other protocols end here.
    Dma(Box<DmaNode>),
    /// Anything else.
    Other(H),
}

/// Why there is no network, or why it cannot go on.
#[derive(Clone, PartialEq, Debug)]
pub enum NetworkError {
    /// The parts do not fit.
    Build(BuildError),
    /// A node's link has too little delay for nodes and fabric to run ahead of each other.
    NoDelay {
        /// The node.
        host: HostId,
        /// How many cycles it takes at least.
        least: u64,
    },
    /// A core took a trap that is not an interrupt.
    Trapped {
        /// On which host.
        host: HostId,
        /// Which core.
        core: usize,
        /// Where.
        pc: u64,
        /// Why.
        trap: Trap,
    },
    /// An invariant of the fabric did not hold.
    Violated(Box<Violation>),
}

/// Chooses lost packets, by the cycle in which the switch would have had the first word, and the packet.
pub type Loss = Box<dyn FnMut(u64, &Packet) -> bool + Send>;

/// A fabric with nanoPUs on it.
///
/// `T` is their transport, `H` what the other hosts are, `P` what is carried, `O` an observer of the fabric.
pub struct Network<T = Ndp, H = Generator, P = Frame, O = ()> {
    fabric: Fabric<P, Station<H>, O>,
    nodes: Vec<Berth<T>>,
    /// Where each host's node is in `nodes`.
    berths: Vec<Option<u32>>,
    /// How far the fabric may run ahead of the nodes, in cycles, and how far they may then run themselves.
    fabric_ahead: u64,
    nodes_ahead: u64,
    /// Up to where the nodes have run.
    cycle: u64,
    threads: usize,
}

/// A machine and its link.
struct Berth<T> {
    host: HostId,
    machine: Machine<T>,
    delay: u64,
    /// Packets to addresses that no host has, and frames that do not parse.
    lost: u64,
}

impl<T: Transport + Send, H: Host<P>, P: Carrier> Network<T, H, P> {
    /// Puts `places` on `topology`, in the order of hosts.
    ///
    /// # Errors
    /// [`NetworkError::Build`], [`NetworkError::NoDelay`].
    pub fn new(
        topology: Topology,
        config: FabricConfig,
        places: Vec<Place<T, H>>,
    ) -> Result<Network<T, H, P>, NetworkError> {
        Network::observed(topology, config, places, ())
    }
}

impl<T: Transport + Send, H: Host<P>, P: Carrier, O: Observer<P>> Network<T, H, P, O> {
    /// The same, with an observer of the fabric.
    ///
    /// # Errors
    /// [`NetworkError::Build`], [`NetworkError::NoDelay`].
    pub fn observed(
        mut topology: Topology,
        config: FabricConfig,
        places: Vec<Place<T, H>>,
        observer: O,
    ) -> Result<Network<T, H, P, O>, NetworkError> {
        let (hosts, count) = (topology.host_count(), places.len());
        if hosts as usize != count {
            let error = BuildError::HostCount { places: hosts, hosts: count };
            return Err(NetworkError::Build(error));
        }
        let mut nodes = Vec::new();
        let mut berths = Vec::new();
        let mut stations = Vec::new();
        for (host, place) in (0..).map(HostId).zip(places) {
            let machine = match place {
                Place::Other(other) => {
                    berths.push(None);
                    stations.push(Station::Other(other));
                    continue;
                }
                Place::Node(node) => Machine::Node(node),
                Place::Dma(node) => Machine::Dma(node),
            };
            let delay = cycle_of(Time::ZERO + topology.take_host_delay(host));
            berths.push(Some(nodes.len() as u32));
            stations.push(Station::Node(Dock::default()));
            nodes.push(Berth { host, machine, delay, lost: 0 });
        }
        // All nodes may run ahead by the same time.
        let slack = nodes.iter().map(|berth: &Berth<T>| berth.machine.slack_cycles()).max().unwrap_or(0);
        if let Some(berth) = nodes.iter().find(|berth| berth.delay <= slack) {
            return Err(NetworkError::NoDelay { host: berth.host, least: slack + 1 });
        }
        let ahead = nodes.iter().map(|berth| berth.delay - slack).min().unwrap_or(1 << 20);
        let (fabric_ahead, nodes_ahead) = (ahead, 2 * ahead);
        let fabric = Fabric::observed(topology, config, stations, observer).map_err(NetworkError::Build)?;
        Ok(Network { fabric, nodes, berths, fabric_ahead, nodes_ahead, cycle: 0, threads: 1 })
    }

    /// Up to where the nodes have run.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Runs the nodes up to `limit`, and the fabric as far as they depend on it.
    ///
    /// # Errors
    /// [`NetworkError::Trapped`] and [`NetworkError::Violated`].
    pub fn run_until(&mut self, limit: u64) -> Result<(), NetworkError> {
        while self.cycle < limit {
            // A packet that a node sends from now on reaches its switch one delay later, and a packet that
            // leaves the switch then reaches a node another delay later.
            let ahead = time_of(self.cycle + self.fabric_ahead);
            let before = Time::from_ps(ahead.as_ps().saturating_sub(1));
            self.fabric.run_until(before).map_err(|violation| NetworkError::Violated(Box::new(violation)))?;
            let end = limit.min(self.cycle + self.nodes_ahead);
            (0..self.nodes.len()).for_each(|place| self.take_arrivals(place));
            self.run_nodes(end);
            for place in 0..self.nodes.len() {
                if self.nodes[place].machine.has_events() {
                    self.see_off(place)?;
                }
            }
            self.cycle = end;
        }
        Ok(())
    }

    /// Lets so many threads run the nodes between two meetings with the fabric. Results do not depend on it.
    pub fn use_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
    }

    fn run_nodes(&mut self, end: u64) {
        let share = self.nodes.len().div_ceil(self.threads).max(1);
        let run = |berths: &mut [Berth<T>]| berths.iter_mut().for_each(|berth| berth.machine.run_until(end));
        if self.threads == 1 {
            return run(&mut self.nodes);
        }
        std::thread::scope(|scope| {
            for berths in self.nodes.chunks_mut(share) {
                scope.spawn(move || run(berths));
            }
        });
    }

    fn take_arrivals(&mut self, place: usize) {
        let host = self.nodes[place].host;
        let Station::Node(dock) = self.fabric.host(host) else { return };
        if dock.arrivals.is_empty() {
            return;
        }
        let arrivals = self.fabric.with_host(host, |station, _| match station {
            Station::Node(dock) => std::mem::take(&mut dock.arrivals),
            Station::Other(_) => Vec::new(),
        });
        let berth = &mut self.nodes[place];
        for (at, frame) in arrivals {
            let packet = frame.packet();
            // `at` is the end of the last word's cycle.
            let first = (cycle_of(at) + berth.delay).saturating_sub(packet.wire_words());
            berth.machine.receive(first, packet);
        }
    }

    /// Hands what a node has sent to the fabric.
    fn see_off(&mut self, place: usize) -> Result<(), NetworkError> {
        let berth = &mut self.nodes[place];
        let (host, delay) = (berth.host, berth.delay);
        let mut leaving = Vec::new();
        for event in berth.machine.take_events() {
            match event {
                MachineEvent::Trapped { core, pc, trap } => {
                    return Err(NetworkError::Trapped { host, core, pc, trap });
                }
                MachineEvent::Stranger => berth.lost += 1,
                MachineEvent::Sent(first, packet) => {
                    let known = Frame::new(&packet).filter(|_| {
                        host_of(packet.destination).is_some_and(|to| to.0 < self.berths.len() as u32)
                    });
                    match known {
                        Some(frame) => leaving.push((time_of(first + delay), frame)),
                        None => berth.lost += 1,
                    }
                }
            }
        }
        self.fabric.with_host(host, |station, _| {
            if let Station::Node(dock) = station {
                dock.departures.extend(leaving);
            }
        });
        Ok(())
    }

    /// The node on a host, if one is there.
    pub fn node(&self, host: HostId) -> Option<&Node<T>> {
        match &self.berth(host)?.machine {
            Machine::Node(node) => Some(node),
            Machine::Dma(_) => None,
        }
    }

    /// The core with a DMA NIC on a host, if one is there.
    pub fn dma_node(&self, host: HostId) -> Option<&DmaNode> {
        match &self.berth(host)?.machine {
            Machine::Node(_) => None,
            Machine::Dma(node) => Some(node),
        }
    }

    fn berth(&self, host: HostId) -> Option<&Berth<T>> {
        let place = (*self.berths.get(host.0 as usize)?)?;
        Some(&self.nodes[place as usize])
    }

    /// A node, for a caller that switches its records on.
    pub fn node_mut(&mut self, host: HostId) -> Option<&mut Node<T>> {
        let place = (*self.berths.get(host.0 as usize)?)?;
        match &mut self.nodes[place as usize].machine {
            Machine::Node(node) => Some(node),
            Machine::Dma(_) => None,
        }
    }

    /// All nanoPUs with their hosts.
    pub fn nodes(&self) -> impl Iterator<Item = (HostId, &Node<T>)> {
        self.nodes.iter().filter_map(|berth| match &berth.machine {
            Machine::Node(node) => Some((berth.host, &**node)),
            Machine::Dma(_) => None,
        })
    }

    /// The machine of a host that is no node.
    pub fn other(&self, host: HostId) -> Option<&H> {
        self.fabric.host(host).other()
    }

    /// Lets the caller act on a host that is no node, between two runs; `None` if a node is there.
    pub fn with_other<R>(&mut self, host: HostId, act: impl FnOnce(&mut H) -> R) -> Option<R> {
        self.fabric.with_host(host, |station, _| match station {
            Station::Node(_) => None,
            Station::Other(other) => Some(act(other)),
        })
    }

    /// From now on each packet for which `rule` returns true is lost on its way into a switch; `None` ends
    /// that.
    pub fn lose(&mut self, rule: Option<Loss>) {
        self.fabric.lose_if(rule.map(|mut rule| {
            let of_packet = move |now: Time, packet: &P| {
                packet.frame().is_some_and(|frame| rule(cycle_of(now), &frame.packet()))
            };
            Box::new(of_packet) as Verdict<P>
        }));
    }

    /// Packets of nodes to addresses that no host has, and frames that do not parse.
    pub fn lost(&self) -> u64 {
        self.nodes.iter().map(|berth| berth.lost).sum()
    }

    /// The network itself, for its counters.
    pub fn fabric(&self) -> &Fabric<P, Station<H>, O> {
        &self.fabric
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkError::Build(error) => write!(out, "{error}"),
            NetworkError::NoDelay { host, least } => {
                write!(
                    out,
                    "the link of host {} is too short: here it takes at least {least} cycles",
                    host.0
                )?;
                let is_long = *least > 1;
                out.write_str(if is_long { ", for a node cuts through or has a DMA NIC" } else { "" })
            }
            NetworkError::Trapped { host, core, pc, trap } => {
                write!(out, "core {core} of host {} trapped at {pc:#x}: {trap}", host.0)
            }
            NetworkError::Violated(violation) => write!(out, "{violation}"),
        }
    }
}

impl std::error::Error for NetworkError {}
