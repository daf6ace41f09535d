//! Which hosts and switches are connected, and which way packets go.
//!
//! A topology is plain data: hosts with one port each, switches, and full-duplex links. Ports have global numbers: host
//! `h` has port `h`, switches follow. Regular topologies route by arithmetic on an address that names pod, edge and slot
//! (`shapes`); any other graph, read from text (`parse`), by tables of shortest ways (`tables`).

mod hops;
mod parse;
mod route;
mod shapes;
mod tables;

use std::sync::OnceLock;

use crate::{HostId, Rate, Span};

pub use hops::Hop;
pub use parse::{ParseError, ParseProblem, parse_rate, parse_span};
pub(crate) use route::{Router, Ways};
pub use shapes::ShapeError;
pub(crate) use tables::Tables;

/// What a link can do, the same in both directions.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSpec {
    /// How fast bits enter it.
    pub rate: Rate,
    /// How long a bit travels.
    pub delay: Span,
}

/// A port's global number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(pub u32);

/// What a port belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeId {
    /// A host, by its number.
    Host(u32),
    /// A switch, by its number.
    Switch(u32),
}

/// One full-duplex link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its two ends: node and the port's number within the node.
    pub ends: [(NodeId, u16); 2],
    /// Its rate and delay.
    pub spec: LinkSpec,
}

/// A network's shape and its routes.
#[derive(Clone, Debug)]
pub struct Topology {
    name: String,
    host_names: Vec<String>,
    switch_names: Vec<String>,
    /// Per host, the address from which switches compute the next hop.
    pub(crate) addresses: Vec<u32>,
    pub(crate) routers: Vec<Router>,
    pub(crate) tables: Tables,
    port_counts: Vec<u16>,
    links: Vec<Link>,
    /// For each node, hosts first: each port's neighbour and link. Computed on first use.
    neighbours: OnceLock<Vec<Vec<(NodeId, usize)>>>,
}

impl Topology {
    /// `hosts` unconnected hosts.
    fn new(name: String, hosts: u32) -> Topology {
        Topology {
            name,
            host_names: (0..hosts).map(|h| format!("h{h}")).collect(),
            switch_names: Vec::new(),
            addresses: vec![0; hosts as usize],
            routers: Vec::new(),
            tables: Tables::default(),
            port_counts: Vec::new(),
            links: Vec::new(),
            neighbours: OnceLock::new(),
        }
    }

    fn add_switch(&mut self, name: String, router: Router) -> NodeId {
        self.switch_names.push(name);
        self.routers.push(router);
        self.port_counts.push(0);
        NodeId::Switch((self.routers.len() - 1) as u32)
    }

    /// Connects two nodes; each takes its next free port.
    fn connect(&mut self, a: NodeId, b: NodeId, spec: LinkSpec) {
        let mut end = |node| match node {
            NodeId::Host(_) => (node, 0),
            NodeId::Switch(s) => {
                let count = &mut self.port_counts[s as usize];
                *count += 1;
                (node, *count - 1)
            }
        };
        let ends = [end(a), end(b)];
        self.links.push(Link { ends, spec });
        self.neighbours = OnceLock::new();
    }

    /// A short description: `fat tree k=6, 54 hosts`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many hosts there are.
    pub fn host_count(&self) -> u32 {
        self.host_names.len() as u32
    }

    /// How many switches there are.
    pub fn switch_count(&self) -> u32 {
        self.routers.len() as u32
    }

    /// How many ports there are, those of hosts included.
    pub fn port_count(&self) -> u32 {
        self.host_count() + self.port_counts.iter().map(|&n| u32::from(n)).sum::<u32>()
    }

    /// How many ports switch `switch` has.
    pub fn switch_ports(&self, switch: u32) -> u16 {
        self.port_counts[switch as usize]
    }

    /// All links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// A node's name.
    pub fn node_name(&self, node: NodeId) -> &str {
        match node {
            NodeId::Host(h) => &self.host_names[h as usize],
            NodeId::Switch(s) => &self.switch_names[s as usize],
        }
    }

    /// The host of this name.
    pub fn host_named(&self, name: &str) -> Option<HostId> {
        self.host_names.iter().position(|n| n == name).map(|i| HostId(i as u32))
    }

    /// The link between two nodes, if there is one: its index in [`Topology::links`].
    pub fn link_between(&self, a: NodeId, b: NodeId) -> Option<usize> {
        self.links.iter().position(|l| {
            let ends = (l.ends[0].0, l.ends[1].0);
            ends == (a, b) || ends == (b, a)
        })
    }

    /// The first port of each switch in global numbers.
    pub(crate) fn switch_bases(&self) -> Vec<u32> {
        let bases = self.port_counts.iter().scan(self.host_count(), |next, &n| {
            let base = *next;
            *next += u32::from(n);
            Some(base)
        });
        bases.collect()
    }

    pub(crate) fn neighbours(&self) -> &[Vec<(NodeId, usize)>] {
        self.neighbours.get_or_init(|| {
            let hosts = self.host_count() as usize;
            let index = |node| match node {
                NodeId::Host(h) => h as usize,
                NodeId::Switch(s) => hosts + s as usize,
            };
            let mut all: Vec<Vec<(NodeId, usize)>> = vec![Vec::new(); hosts + self.routers.len()];
            // Links were added in the order of the ports of each node, so pushing keeps that order.
            for (number, link) in self.links.iter().enumerate() {
                let [a, b] = link.ends;
                all[index(a.0)].push((b.0, number));
                all[index(b.0)].push((a.0, number));
            }
            all
        })
    }

    /// The link on which a host hangs.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host_link(&self, host: HostId) -> LinkSpec {
        self.links[self.neighbours()[host.0 as usize][0].1].spec
    }

    /// Takes the delay off a host's link, and returns it: for hosts that model their own link's delay, so that they may run ahead of
    /// the network by as much.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn take_host_delay(&mut self, host: HostId) -> Span {
        let link = self.neighbours()[host.0 as usize][0].1;
        std::mem::take(&mut self.links[link].spec.delay)
    }

    /// One of the shortest ways from `source` to `destination`: the links that a packet crosses.
    ///
    /// `pick` chooses among that many equally good ones. `None` if the two are not connected or are the same.
    pub fn path(
        &self,
        source: HostId,
        destination: HostId,
        mut pick: impl FnMut(usize) -> usize,
    ) -> Option<Vec<LinkSpec>> {
        if source == destination {
            return None;
        }
        let neighbours = self.neighbours();
        let hosts = self.host_count() as usize;
        let (mut node, mut link) = *neighbours.get(source.0 as usize)?.first()?;
        let mut path = vec![self.links[link].spec];
        let address = *self.addresses.get(destination.0 as usize)?;
        while let NodeId::Switch(switch) = node {
            let ways = self.routers[switch as usize].ways(&self.tables, switch, address, destination.0);
            let count = ways.count();
            if count == 0 || path.len() > self.routers.len() + 1 {
                return None;
            }
            let port = ways.nth(pick(count).min(count - 1));
            (node, link) = neighbours[hosts + switch as usize][usize::from(port)];
            path.push(self.links[link].spec);
        }
        (node == NodeId::Host(destination.0)).then_some(path)
    }

    /// How long one packet of `bytes` takes over `path` in an empty network: every node stores and forwards.
    pub fn latency(path: &[LinkSpec], bytes: u32) -> Span {
        path.iter().fold(Span::ZERO, |sum, l| sum + l.rate.span_of(u64::from(bytes)) + l.delay)
    }

    /// The longest delay of a link.
    pub(crate) fn delay_max(&self) -> Span {
        self.links.iter().map(|l| l.spec.delay).max().unwrap_or(Span::ZERO)
    }
}
