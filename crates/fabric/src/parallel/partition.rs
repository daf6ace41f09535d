//! Cutting a network into parts of about equal work with few links between them.
//!
//! Hosts are cut into equal runs of numbers, where possible between two edge switches. A switch joins the
//! part of most of its neighbours; switches that are connected to all parts alike are dealt out in turn.

use std::ops::Range;

use crate::{NodeId, Topology};

/// Which part each node belongs to.
pub(crate) struct Partition {
    /// The first host of each part, and the number of hosts.
    host_starts: Vec<u32>,
    of_switch: Vec<usize>,
}

impl Partition {
    /// `topology` in `parts` parts.
    pub(crate) fn of(topology: &Topology, parts: usize) -> Partition {
        let hosts = topology.host_count();
        let mut host_starts: Vec<u32> = (0..parts).map(|i| edge_near(topology, hosts, parts, i)).collect();
        host_starts.push(hosts);
        let of_switch = vec![usize::MAX; topology.switch_count() as usize];
        let mut partition = Partition { host_starts, of_switch };
        if parts == 1 {
            partition.of_switch.fill(0);
        } else {
            partition.deal_switches(topology);
        }
        partition
    }

    pub(crate) fn parts(&self) -> usize {
        self.host_starts.len() - 1
    }

    /// The hosts of a part.
    pub(crate) fn hosts(&self, part: usize) -> Range<u32> {
        self.host_starts[part]..self.host_starts[part + 1]
    }

    /// The part of a node.
    pub(crate) fn part(&self, node: NodeId) -> usize {
        match node {
            NodeId::Host(host) => {
                self.host_starts.partition_point(|&start| start <= host).min(self.parts()) - 1
            }
            NodeId::Switch(switch) => self.of_switch[switch as usize],
        }
    }

    fn deal_switches(&mut self, topology: &Topology) {
        let switches = &topology.neighbours()[topology.host_count() as usize..];
        loop {
            // One tier after the other: a tier counts only neighbours in tiers that were dealt before.
            let before = self.of_switch.clone();
            for (switch, neighbours) in switches.iter().enumerate().filter(|&(s, _)| before[s] == usize::MAX)
            {
                let mut votes = vec![0; self.parts()];
                for &(node, _) in neighbours {
                    let part = match node {
                        NodeId::Host(_) => self.part(node),
                        NodeId::Switch(other) => before[other as usize],
                    };
                    votes.iter_mut().skip(part).take(1).for_each(|v| *v += 1);
                }
                let most = votes.iter().copied().max().unwrap_or(0);
                let best: Vec<usize> = (0..votes.len()).filter(|&p| votes[p] == most).collect();
                if most > 0 {
                    self.of_switch[switch] = best[switch % best.len()];
                }
            }
            if self.of_switch == before {
                break;
            }
        }
        self.of_switch.iter_mut().filter(|p| **p == usize::MAX).for_each(|p| *p = 0);
    }
}

/// Where part `i` begins: at its share of the hosts, or a little later if an edge switch ends there.
fn edge_near(topology: &Topology, hosts: u32, parts: usize, i: usize) -> u32 {
    let at = |i: usize| (u64::from(hosts) * i as u64 / parts as u64) as u32;
    let (start, next) = (at(i), at(i + 1));
    let switch = |host: u32| topology.neighbours()[host as usize][0].0;
    let aligned =
        (start..start + (next - start) / 4 + 1).find(|&h| h > 0 && h < hosts && switch(h) != switch(h - 1));
    if i == 0 { 0 } else { aligned.unwrap_or(start) }
}
