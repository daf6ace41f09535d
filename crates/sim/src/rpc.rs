//! RPC endpoints on simulated RNICs: the endpoints of `highwire-rpc` on UD queue pairs of [`highwire_rnic::Rnic`]s, on a fabric.
//!
//! A [`Cluster`] runs on one thread and is a function of its seed. It loses, duplicates and reorders by that seed, cuts ways in one
//! direction, stops nodes and starts them again with another incarnation, and runs a node's clock fast or slow.

mod node;
mod packet;

pub use highwire_rpc::{Config, Endpoint, Node, Running};
pub use packet::Disturbance;

use crate::fabric::{Fabric, FabricConfig, HostId, LinkSpec, Rate, Span, Time, Topology, Violation};
use highwire_stdx::Rng;
use node::RpcHost;
use packet::{Network, Packet};
use std::cell::RefCell;
use std::rc::Rc;

/// A cluster's configuration.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// How many nodes, 2 at least.
    pub nodes: u16,
    /// The source of everything random.
    pub seed: u64,
    /// How the network disturbs datagrams.
    pub disturbance: Disturbance,
    /// Receives of each queue pair.
    pub receives: u32,
    /// The links of the star that joins the nodes.
    pub link: LinkSpec,
}

impl ClusterConfig {
    /// So many nodes on links of 100 Gb/s and half a microsecond, undisturbed.
    pub fn new(nodes: u16, seed: u64) -> ClusterConfig {
        ClusterConfig {
            nodes,
            seed,
            disturbance: Disturbance::default(),
            receives: 512,
            link: LinkSpec { rate: Rate::from_gbps(100), delay: Span::from_ns(500) },
        }
    }
}

/// Nodes with an endpoint each, on one switch.
pub struct Cluster {
    fabric: Fabric<Packet, RpcHost>,
    network: Rc<RefCell<Network>>,
    /// Changes each node's configuration.
    change: Box<dyn Fn(&mut Config)>,
    nodes: u16,
}

impl Cluster {
    /// Nodes that know each other; `change` sees every configuration, that of a node that starts again too.
    ///
    /// # Panics
    /// With fewer than two nodes, or more than a star has.
    pub fn new(config: &ClusterConfig, change: impl Fn(&mut Config) + 'static) -> Cluster {
        let topology = Topology::star(u32::from(config.nodes), config.link).expect("two nodes at least");
        let mut rng = Rng::new(config.seed);
        let network = Rc::new(RefCell::new(Network::new(config.nodes, config.disturbance)));
        let hosts = (0..config.nodes)
            .map(|node| RpcHost::new(node, config.receives, rng.fork(u64::from(node)), Rc::clone(&network)))
            .collect();
        let fabric_config = FabricConfig { seed: config.seed, ..FabricConfig::default() };
        let fabric = Fabric::new(topology, fabric_config, hosts).expect("a star and its hosts fit");
        let mut cluster = Cluster { fabric, network, change: Box::new(change), nodes: config.nodes };
        (0..config.nodes).for_each(|node| cluster.start(Node(node)));
        cluster
    }

    /// How many nodes there are, running or not.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.fabric.now()
    }

    /// Everything that has happened so far as one number: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.fabric.fingerprint() ^ self.network.borrow().fingerprint
    }

    /// Starts a node that does not run: with nothing but its configuration, a new queue pair and a greater incarnation.
    pub fn start(&mut self, node: Node) {
        let change = &self.change;
        self.fabric.with_host(HostId(u32::from(node.0)), |host, now| host.start(now, change));
        let to = self.network.borrow().address(node.0);
        for other in (0..self.nodes).filter(|&other| other != node.0) {
            let from = self.network.borrow().address(other);
            self.with(node, |endpoint| from.map(|from| endpoint.add_peer(Node(other), from)));
            self.with(Node(other), |endpoint| to.map(|to| endpoint.add_peer(node, to)));
        }
    }

    /// Stops a node: its endpoint is gone, with all of its memory.
    pub fn stop(&mut self, node: Node) {
        self.fabric.with_host(HostId(u32::from(node.0)), |host, _| host.stop());
    }

    /// Does something with a node's endpoint; `None` if it does not run.
    pub fn with<R>(&mut self, node: Node, act: impl FnOnce(&mut Endpoint) -> R) -> Option<R> {
        self.fabric.with_host(HostId(u32::from(node.0)), |host, now| host.with_endpoint(now, act))
    }

    /// Lets a node's clock run `parts_per_million` faster than time, or slower.
    pub fn set_drift(&mut self, node: Node, parts_per_million: i64) {
        self.fabric.with_host(HostId(u32::from(node.0)), |host, now| host.set_drift(now, parts_per_million));
    }

    /// Cuts the way from one node to another, or joins it again. The way back stays as it is.
    pub fn cut(&mut self, from: Node, to: Node, is_cut: bool) {
        self.network.borrow_mut().cut(from.0, to.0, is_cut);
    }

    /// Sets how the network disturbs datagrams from now on.
    pub fn disturb(&mut self, disturbance: Disturbance) {
        self.network.borrow_mut().disturbance = disturbance;
    }

    /// Runs for a while.
    ///
    /// # Errors
    /// The fabric's invariant that did not hold.
    pub fn run_for(&mut self, span: Span) -> Result<(), Violation> {
        let until = self.fabric.now() + span;
        self.fabric.run_until(until)
    }

    /// Runs in steps of ten microseconds until `is_over` says so; false if `span` passes first.
    ///
    /// # Errors
    /// The fabric's invariant that did not hold.
    pub fn run_until(&mut self, span: Span, mut is_over: impl FnMut() -> bool) -> Result<bool, Violation> {
        let until = self.fabric.now() + span;
        while !is_over() {
            if self.fabric.now() >= until {
                return Ok(false);
            }
            self.run_for(Span::from_us(10))?;
        }
        Ok(true)
    }
}
