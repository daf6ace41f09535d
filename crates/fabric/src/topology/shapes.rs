//! The regular topologies.
//!
//! The order in which links are added gives the ports their numbers, and the routers' arithmetic relies on it: first
//! downwards, then upwards.

use std::fmt;

use super::route::{EDGES_MAX, PODS_MAX, SLOTS_MAX, TreeRouter, address};
use super::{LinkSpec, NodeId, Topology};

/// A regular topology that cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShapeError {
    /// A number is out of range.
    OutOfRange {
        /// Which.
        what: &'static str,
        /// What was asked for.
        value: u32,
        /// The smallest possible.
        low: u32,
        /// The largest possible.
        high: u32,
    },
    /// A fat tree's `k` is odd.
    OddFatTree(u32),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::OutOfRange { what, value, low, high } => {
                write!(f, "{what} is {value}, but must lie between {low} and {high}")
            }
            ShapeError::OddFatTree(k) => {
                write!(f, "a fat tree's k is the ports of a switch, half of them up: {k} is odd")
            }
        }
    }
}

impl std::error::Error for ShapeError {}

fn within(what: &'static str, value: u32, low: u32, high: u32) -> Result<(), ShapeError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(ShapeError::OutOfRange { what, value, low, high })
}

impl Topology {
    /// One switch with `hosts` hosts.
    ///
    /// # Errors
    /// If there are fewer than 2 or more than 4095 hosts.
    pub fn star(hosts: u32, link: LinkSpec) -> Result<Topology, ShapeError> {
        within("the number of hosts of a star", hosts, 2, SLOTS_MAX - 1)?;
        let mut t = Topology::new(format!("star, {hosts} hosts"), hosts);
        let switch = t.add_switch("s0".into(), TreeRouter::edge(0, 0, 0, 0));
        t.attach_hosts(0, 0, 0..hosts, switch, link);
        Ok(t)
    }

    /// Two switches joined by one trunk, with `left` and `right` hosts (numbered in this order).
    ///
    /// # Errors
    /// If a side has no host or more than 4094.
    pub fn dumbbell(left: u32, right: u32, link: LinkSpec, trunk: LinkSpec) -> Result<Topology, ShapeError> {
        within("the number of hosts on the left", left, 1, SLOTS_MAX - 2)?;
        within("the number of hosts on the right", right, 1, SLOTS_MAX - 2)?;
        let mut t = Topology::new(format!("dumbbell, {left} and {right} hosts"), left + right);
        let a = t.add_switch("left".into(), TreeRouter::edge(0, 0, left, 1));
        let b = t.add_switch("right".into(), TreeRouter::edge(0, 1, right, 1));
        t.attach_hosts(0, 0, 0..left, a, link);
        t.attach_hosts(0, 1, left..left + right, b, link);
        t.connect(a, b, trunk);
        Ok(t)
    }

    /// `leaves` leaf switches with `hosts_per_leaf` hosts each, every one connected to each of `spines` spine switches.
    ///
    /// # Errors
    /// If a number is zero or too large for an address.
    pub fn leaf_spine(
        leaves: u32,
        spines: u32,
        hosts_per_leaf: u32,
        link: LinkSpec,
        uplink: LinkSpec,
    ) -> Result<Topology, ShapeError> {
        within("the number of leaves", leaves, 1, EDGES_MAX)?;
        within("the number of spines", spines, 1, EDGES_MAX)?;
        within("the number of hosts per leaf", hosts_per_leaf, 1, SLOTS_MAX - EDGES_MAX)?;
        within("the number of hosts", leaves * hosts_per_leaf, 2, 1 << 22)?;
        let hosts = leaves * hosts_per_leaf;
        let name = format!("leaf-spine, {leaves} leaves, {spines} spines, {hosts} hosts");
        let mut t = Topology::new(name, hosts);
        for leaf in 0..leaves {
            let router = TreeRouter::edge(0, leaf, hosts_per_leaf, spines);
            let switch = t.add_switch(format!("leaf{leaf}"), router);
            t.attach_hosts(0, leaf, leaf * hosts_per_leaf..(leaf + 1) * hosts_per_leaf, switch, link);
        }
        for spine in 0..spines {
            t.add_switch(format!("spine{spine}"), TreeRouter::aggregation(0, 0, 0));
        }
        for leaf in 0..leaves {
            for spine in 0..spines {
                t.connect(NodeId::Switch(leaf), NodeId::Switch(leaves + spine), uplink);
            }
        }
        Ok(t)
    }

    /// A three-tier fat tree of `k`-port switches: `k` pods of `k/2` edge and `k/2` aggregation switches, `k*k/4` cores,
    /// `k*k*k/4` hosts, full bisection. k=6 has 54 hosts, k=8 128, k=10 250, k=16 1024.
    ///
    /// # Errors
    /// If `k` is odd or not between 2 and 128.
    pub fn fat_tree(k: u32, link: LinkSpec) -> Result<Topology, ShapeError> {
        within("a fat tree's k", k, 2, PODS_MAX / 8)?;
        if !k.is_multiple_of(2) {
            return Err(ShapeError::OddFatTree(k));
        }
        let half = k / 2;
        let hosts = k * half * half;
        let mut t = Topology::new(format!("fat tree k={k}, {hosts} hosts"), hosts);
        for pod in 0..k {
            for edge in 0..half {
                let router = TreeRouter::edge(pod, edge, half, half);
                let switch = t.add_switch(format!("edge{pod}.{edge}"), router);
                let first = (pod * half + edge) * half;
                t.attach_hosts(pod, edge, first..first + half, switch, link);
            }
        }
        for pod in 0..k {
            for aggregation in 0..half {
                t.add_switch(format!("agg{pod}.{aggregation}"), TreeRouter::aggregation(pod, half, half));
            }
        }
        for core in 0..half * half {
            t.add_switch(format!("core{core}"), TreeRouter::core());
        }
        let edge_at = |pod, edge| NodeId::Switch(pod * half + edge);
        let aggregation_at = |pod, aggregation| NodeId::Switch(k * half + pod * half + aggregation);
        let core_at = |core| NodeId::Switch(k * k + core);
        for pod in 0..k {
            for edge in 0..half {
                for aggregation in 0..half {
                    t.connect(edge_at(pod, edge), aggregation_at(pod, aggregation), link);
                }
            }
        }
        for pod in 0..k {
            for aggregation in 0..half {
                for core in 0..half {
                    t.connect(aggregation_at(pod, aggregation), core_at(aggregation * half + core), link);
                }
            }
        }
        Ok(t)
    }

    fn attach_hosts(
        &mut self,
        pod: u32,
        edge: u32,
        hosts: std::ops::Range<u32>,
        switch: NodeId,
        link: LinkSpec,
    ) {
        for (slot, host) in hosts.enumerate() {
            self.addresses[host as usize] = address(pod, edge, slot as u32);
            self.connect(NodeId::Host(host), switch, link);
        }
    }
}
