//! A film of a network: the queue behind every port and the ports that are paused, picture by picture.
//!
//! Pictures hold only ports with a queue or a pause. Queues are in kilobytes.

use highwire_fabric::{NodeId, Span, Time, Topology};
use serde::{Deserialize, Serialize};

use crate::{Outcome, Scenario};

/// Queues and pauses over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Film {
    /// The nodes: hosts, then switches.
    pub nodes: Vec<Node>,
    /// By port: the node that it belongs to and the node that its link leads to, as places in `nodes`.
    pub ports: Vec<(u32, u32)>,
    /// The size of a full queue, in kilobytes.
    pub full_kb: u32,
    /// The pictures, earliest first.
    pub pictures: Vec<Picture>,
}

/// A host or a switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// 0 for hosts, then the distance to the nearest host.
    pub tier: u32,
}

/// A moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Picture {
    /// When, in microseconds.
    pub at_us: f64,
    /// Ports behind which a kilobyte or more waits, and how many.
    pub queues: Vec<(u32, u32)>,
    /// Ports that are paused.
    pub paused: Vec<u32>,
}

/// Pictures beyond this are not kept.
const PICTURES_MAX: usize = 240;

impl Film {
    /// The film of a run, if one was taken.
    pub(super) fn of(scenario: &Scenario, outcome: &Outcome) -> Option<Film> {
        if outcome.samples.is_empty() {
            return None;
        }
        let topology = scenario.network.topology().ok()?;
        let ports = ports(&topology);
        let pictures = outcome.samples.iter().take(PICTURES_MAX).map(|sample| Picture {
            at_us: sample.at.since(Time::ZERO).as_us_f64(),
            queues: (0..)
                .zip(&sample.queue_bytes)
                .map(|(port, bytes)| (port, bytes / 1000))
                .filter(|(_, kb)| *kb > 0)
                .collect(),
            paused: sample.paused.clone(),
        });
        Some(Film {
            nodes: nodes(&topology),
            ports,
            full_kb: full_kb(scenario),
            pictures: pictures.collect(),
        })
    }

    /// Keeps the pictures up to `until`.
    pub(crate) fn cut(&mut self, until: Span) {
        self.pictures.retain(|picture| picture.at_us <= until.as_us_f64());
    }
}

fn full_kb(scenario: &Scenario) -> u32 {
    use highwire_fabric::Buffering::{InputQueued, OutputQueued};
    let bytes = match scenario.network.buffering {
        InputQueued { input_bytes } => input_bytes,
        OutputQueued { pool_bytes, .. } => pool_bytes,
    };
    u32::try_from(bytes / 1000).unwrap_or(u32::MAX)
}

/// A node's place among all: hosts first.
fn place(topology: &Topology, node: NodeId) -> u32 {
    match node {
        NodeId::Host(host) => host,
        NodeId::Switch(switch) => topology.host_count() + switch,
    }
}

/// Both ends of every port, in the order of global port numbers.
fn ports(topology: &Topology) -> Vec<(u32, u32)> {
    let mut base = vec![topology.host_count()];
    for switch in 0..topology.switch_count() {
        base.push(base[switch as usize] + u32::from(topology.switch_ports(switch)));
    }
    let number = |(node, port): (NodeId, u16)| match node {
        NodeId::Host(host) => host,
        NodeId::Switch(switch) => base[switch as usize] + u32::from(port),
    };
    let mut ports = vec![(0, 0); topology.port_count() as usize];
    for link in topology.links() {
        let [a, b] = link.ends;
        ports[number(a) as usize] = (place(topology, a.0), place(topology, b.0));
        ports[number(b) as usize] = (place(topology, b.0), place(topology, a.0));
    }
    ports
}

fn nodes(topology: &Topology) -> Vec<Node> {
    let hosts = topology.host_count();
    let count = hosts + topology.switch_count();
    let mut tiers: Vec<u32> = (0..count).map(|node| if node < hosts { 0 } else { u32::MAX }).collect();
    let edges: Vec<(usize, usize)> = ports(topology).iter().map(|&(a, b)| (a as usize, b as usize)).collect();
    // Relaxation: there are as many rounds as tiers.
    let mut has_changed = true;
    while has_changed {
        has_changed = false;
        for &(from, to) in &edges {
            if tiers[from] != u32::MAX && tiers[to] > tiers[from] + 1 {
                tiers[to] = tiers[from] + 1;
                has_changed = true;
            }
        }
    }
    let name = |node: u32| {
        let id = if node < hosts { NodeId::Host(node) } else { NodeId::Switch(node - hosts) };
        topology.node_name(id).to_owned()
    };
    (0..count).map(|node| Node { name: name(node), tier: tiers[node as usize] }).collect()
}
