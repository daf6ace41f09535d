//! Putting a network together, and what can be wrong with its parts.

use std::collections::BTreeMap;
use std::fmt;

use highwire_stdx::Rng;

use super::{Fabric, LARGE_PORTS, Switch, Timer};
use crate::packet::Store;
use crate::parallel::Partition;
use crate::port::{LinkKind, Port, PortCounters};
use crate::queues::Queues;
use crate::time::Pace;
use crate::topology::{Link, LinkSpec, NodeId};
use crate::{
    Buffering, EventQueue, FabricConfig, Forwarding, Host, Observer, Packet, Pfc, PortId, Priorities, Rate,
    Service, Span, Time, Topology,
};

/// Parts that do not make a network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// There are not as many hosts as the topology has places.
    HostCount {
        /// Places.
        places: u32,
        /// Hosts.
        hosts: usize,
    },
    /// The number of priorities is not 1 to 8.
    Priorities(u8),
    /// A value of the configuration is out of range: its name, and what would be right.
    OutOfRange(&'static str, &'static str),
    /// PFC would drop packets: the bytes on the way when an input pauses its peer do not fit into the
    /// headroom.
    Headroom {
        /// The port, by the names of its node and number.
        port: String,
        /// What the configuration sets aside.
        headroom_bytes: u64,
        /// What the link needs.
        needed_bytes: u64,
    },
    /// A buffer is too small for its PFC threshold and headroom.
    BufferTooSmall {
        /// The switch.
        switch: String,
        /// Its size.
        buffer_bytes: u64,
        /// What threshold and headroom need.
        needed_bytes: u64,
    },
    /// More than 2^30 ports, or more than 2^16 kinds of link.
    TooLarge,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::HostCount { places, hosts } => {
                write!(f, "the topology has {places} hosts, but {hosts} were given")
            }
            BuildError::Priorities(n) => write!(f, "{n} priorities; there can be 1 to 8"),
            BuildError::OutOfRange(name, right) => write!(f, "`{name}` is out of range: {right}"),
            BuildError::Headroom { port, headroom_bytes, needed_bytes } => write!(
                f,
                "PFC at {port} leaves {headroom_bytes} bytes of headroom, but its link needs {needed_bytes}: lower xoff_bytes"
            ),
            BuildError::BufferTooSmall { switch, buffer_bytes, needed_bytes } => write!(
                f,
                "the buffer of {switch} has {buffer_bytes} bytes, but PFC's thresholds and headroom need {needed_bytes}"
            ),
            BuildError::TooLarge => write!(f, "a network of more than 2^30 ports or 2^16 kinds of link"),
        }
    }
}

impl std::error::Error for BuildError {}

impl<P: Packet, H: Host<P>> Fabric<P, H> {
    /// A network of this shape and behaviour with these hosts, without an observer.
    ///
    /// # Errors
    /// If the parts do not fit.
    pub fn new(topology: Topology, config: FabricConfig, hosts: Vec<H>) -> Result<Fabric<P, H>, BuildError> {
        Fabric::observed(topology, config, hosts, ())
    }
}

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// A network of this shape and behaviour with these hosts, and an observer.
    ///
    /// # Errors
    /// If the parts do not fit.
    pub fn observed(
        topology: Topology,
        config: FabricConfig,
        hosts: Vec<H>,
        observer: O,
    ) -> Result<Fabric<P, H, O>, BuildError> {
        if topology.host_count() as usize != hosts.len() {
            return Err(BuildError::HostCount { places: topology.host_count(), hosts: hosts.len() });
        }
        let whole = Partition::of(&topology, 1);
        Fabric::part(topology, config, hosts, observer, &whole, 0)
    }

    /// Part `me` of a network: `hosts` are those of this part only.
    pub(crate) fn part(
        topology: Topology,
        config: FabricConfig,
        hosts: Vec<H>,
        observer: O,
        partition: &Partition,
        me: usize,
    ) -> Result<Fabric<P, H, O>, BuildError> {
        check_config(&config)?;
        check_topology(&topology, &config)?;
        let (ports, kinds) = ports_of(&topology, partition);
        if kinds.len() > 1 << 16 {
            return Err(BuildError::TooLarge);
        }
        let rows = |port: &Port| match config.buffering {
            _ if port.switch == u32::MAX => 0,
            Buffering::InputQueued { .. } if config.service == Service::RoundRobin => {
                topology.switch_ports(port.switch)
            }
            _ => 1,
        };
        let count = ports.len();
        Ok(Fabric {
            events: event_queue_for(&topology),
            store: Store::new(),
            counters: vec![PortCounters::default(); count],
            paused_since: vec![Time::ZERO; count],
            switches: switches_of(&topology, &config),
            queues: Queues::new(config.priorities, ports.iter().map(rows)),
            inputs: vec![0; count * (1 + usize::from(config.priorities))],
            timers: vec![Timer { armed: Time::NEVER, spins: 0 }; topology.host_count() as usize],
            hosts,
            first_host: partition.hosts(me).start,
            host_count: topology.host_count(),
            is_mine: (0..count as u32).map(|port| owner_of(partition, &ports, port) == me).collect(),
            is_first: me == 0,
            outbox: Vec::new(),
            faults: Vec::new(),
            fault_kinds: (0..count).map(|_| None).collect(),
            verdicts: None,
            stores_some: config.forwarding != Forwarding::StoreAndForward && has_rates(&topology),
            link_states: vec![true; topology.links().len()],
            ports,
            ecn_of: kinds.iter().filter_map(|kind| Some(config.ecn?.at(kind.rate))).collect(),
            kinds,
            observer,
            violation: None,
            processed: 0,
            verified_at: 0,
            fingerprint: 0,
            is_started: false,
            is_large: topology.port_count() > LARGE_PORTS,
            config,
            topology,
        })
    }
}

/// Whether links have different rates.
fn has_rates(topology: &Topology) -> bool {
    topology.links().windows(2).any(|pair| pair[0].spec.rate != pair[1].spec.rate)
}

fn check_config(config: &FabricConfig) -> Result<(), BuildError> {
    let check = |holds, name, right| if holds { Ok(()) } else { Err(BuildError::OutOfRange(name, right)) };
    if !(1..=8).contains(&config.priorities) {
        return Err(BuildError::Priorities(config.priorities));
    }
    if let Buffering::OutputQueued { alpha_log2, .. } = config.buffering {
        check((-16..=16).contains(&alpha_log2), "alpha_log2", "it lies between -16 and 16")?;
    }
    if let Some(pfc) = config.pfc {
        check(pfc.xon_bytes <= pfc.xoff_bytes, "xon_bytes", "it is at most xoff_bytes")?;
        check(pfc.frame_bytes > 0, "frame_bytes", "a pause frame has a length, usually 64")?;
    }
    if let Some(ecn) = config.ecn {
        check(ecn.min_bytes <= ecn.max_bytes, "min_bytes", "it is at most max_bytes")?;
        let is_probability = (0.0..=1.0).contains(&ecn.max_probability);
        check(is_probability, "max_probability", "it lies between 0 and 1")?;
    }
    if let Some(trimming) = config.trimming {
        let is_modelled = trimming.header_priority < config.priorities;
        check(is_modelled, "header_priority", "it is below the number of priorities")?;
    }
    Ok(())
}

fn check_topology(topology: &Topology, config: &FabricConfig) -> Result<(), BuildError> {
    if topology.port_count() >= 1 << super::KIND_SHIFT {
        return Err(BuildError::TooLarge);
    }
    for link in topology.links() {
        if let Some(pfc) = config.pfc {
            check_headroom(topology, link, pfc)?;
        }
    }
    let Some(pfc) = config.pfc else { return Ok(()) };
    let lossless = lossless_count(pfc.priorities, config.priorities);
    for switch in 0..topology.switch_count() {
        // One priority must be able to reach its threshold while the headroom of all of them stays free.
        let (buffer_bytes, needed_bytes) = match config.buffering {
            Buffering::InputQueued { input_bytes } => {
                (input_bytes, lossless * (pfc.xoff_bytes + pfc.headroom_bytes))
            }
            Buffering::OutputQueued { pool_bytes, .. } => {
                let headroom = u64::from(topology.switch_ports(switch)) * lossless * pfc.headroom_bytes;
                (pool_bytes, headroom + pfc.xoff_bytes)
            }
        };
        if needed_bytes > buffer_bytes {
            let switch = topology.node_name(NodeId::Switch(switch)).to_owned();
            return Err(BuildError::BufferTooSmall { switch, buffer_bytes, needed_bytes });
        }
    }
    Ok(())
}

/// Only hosts know how long their longest packet is, so this checks only the part of the headroom that the
/// link itself fills. If a longer packet does not fit, the run stops with a violation.
fn check_headroom(topology: &Topology, link: &Link, pfc: Pfc) -> Result<(), BuildError> {
    let needed_bytes = Pfc::headroom_needed(link.spec.rate, link.spec.delay, 64, pfc.frame_bytes);
    if pfc.headroom_bytes >= needed_bytes {
        return Ok(());
    }
    let end = link.ends.iter().find(|e| matches!(e.0, NodeId::Switch(_))).unwrap_or(&link.ends[0]);
    let port = format!("{} port {}", topology.node_name(end.0), end.1);
    Err(BuildError::Headroom { port, headroom_bytes: pfc.headroom_bytes, needed_bytes })
}

fn lossless_count(lossless: Priorities, priorities: u8) -> u64 {
    u64::from((0..priorities).map(|p| u8::from(lossless.contains(p))).sum::<u8>())
}

fn owner_of(partition: &Partition, ports: &[Port], port: u32) -> usize {
    match ports[port as usize].switch {
        u32::MAX => partition.part(NodeId::Host(port)),
        switch => partition.part(NodeId::Switch(switch)),
    }
}

fn ports_of(topology: &Topology, partition: &Partition) -> (Vec<Port>, Vec<LinkKind>) {
    let bases = topology.switch_bases();
    let number = |(node, port): (NodeId, u16)| match node {
        NodeId::Host(h) => h,
        NodeId::Switch(s) => bases[s as usize] + u32::from(port),
    };
    let mut kinds: Vec<LinkKind> = Vec::new();
    let mut known: BTreeMap<(Rate, Span, bool), u16> = BTreeMap::new();
    let mut ports: Vec<Option<Port>> = (0..topology.port_count()).map(|_| None).collect();
    for link in topology.links() {
        let is_cut = partition.part(link.ends[0].0) != partition.part(link.ends[1].0);
        let LinkSpec { rate, delay } = link.spec;
        let kind = *known.entry((rate, delay, is_cut)).or_insert_with(|| {
            kinds.push(LinkKind { is_cut, rate, pace: Pace::new(rate), delay });
            (kinds.len() - 1) as u16
        });
        for (end, other) in [(link.ends[0], link.ends[1]), (link.ends[1], link.ends[0])] {
            let switch = if let NodeId::Switch(s) = end.0 { s } else { u32::MAX };
            ports[number(end) as usize] = Some(Port::new(number(other), switch, kind));
        }
    }
    (ports.into_iter().map(|p| p.expect("every port has a link")).collect(), kinds)
}

fn switches_of(topology: &Topology, config: &FabricConfig) -> Vec<Switch> {
    let mut seeds = Rng::new(config.seed);
    let bases = topology.switch_bases();
    let headroom =
        config.pfc.map_or(0, |pfc| lossless_count(pfc.priorities, config.priorities) * pfc.headroom_bytes);
    let switches = bases.into_iter().enumerate().map(|(s, base)| {
        let ports = u64::from(topology.switch_ports(s as u32));
        let shared_bytes = match config.buffering {
            Buffering::InputQueued { .. } => 0,
            Buffering::OutputQueued { pool_bytes, .. } => pool_bytes - ports * headroom,
        };
        let mut rng = seeds.fork(s as u64);
        let (factor, salt) = (rng.next_u64() | 1, rng.next_u64());
        Switch { base, dead_ports: 0, factor, salt, used_bytes: 0, shared_bytes, rng }
    });
    switches.collect()
}

/// Buckets so narrow that few events share one, and so many that a wire's delay lies within the ring. In a large network more
/// events share a bucket: the next events are known only within a bucket, and their memory is prefetched.
fn event_queue_for(topology: &Topology) -> EventQueue {
    let transmission = topology.links().iter().map(|l| l.spec.rate.span_of(1600)).max().unwrap_or_default();
    let ahead = (topology.delay_max() + transmission).as_ps().max(1);
    let count_log2 = match topology.port_count() {
        ports if ports > 20_000 => 14,
        ports if ports > LARGE_PORTS => 12,
        _ => 14,
    };
    let width_log2 = (ahead >> count_log2).max(1).ilog2() + 1;
    EventQueue::new(width_log2.min(32), count_log2)
}

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// The name of a port: its node's, and its number there.
    pub fn port_name(&self, port: PortId) -> String {
        let switch = self.ports[port.0 as usize].switch;
        if switch == u32::MAX {
            return format!("host {}", self.topology.node_name(NodeId::Host(port.0)));
        }
        let local = port.0 - self.switches[switch as usize].base;
        format!("switch {} port {local}", self.topology.node_name(NodeId::Switch(switch)))
    }
}
