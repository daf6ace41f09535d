//! Shortest ways on any graph: per switch and host, the ports that lead one step nearer.
//!
//! Many hosts share one set of ports, so a table entry is the number of a set. Links that are down count as absent, which
//! is how routes are computed anew after a failure.

use std::collections::{BTreeMap, VecDeque};

use super::{NodeId, Router, Topology};

/// Next hops of all switches of one network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    hosts: usize,
    /// Per switch and host, a set's number.
    sets_of: Vec<u32>,
    /// Per set, its first port in `ports` and how many there are.
    sets: Vec<(u32, u32)>,
    ports: Vec<u16>,
}

impl Tables {
    /// The ports of `switch` on the shortest ways to `host`; empty if there is none.
    #[inline]
    pub(crate) fn ways(&self, switch: u32, host: u32) -> &[u16] {
        let (first, count) = self.sets[self.sets_of[switch as usize * self.hosts + host as usize] as usize];
        &self.ports[first as usize..(first + count) as usize]
    }

    fn set(&mut self, known: &mut BTreeMap<Vec<u16>, u32>, ports: Vec<u16>) -> u32 {
        if let Some(&number) = known.get(&ports) {
            return number;
        }
        let number = self.sets.len() as u32;
        self.sets.push((self.ports.len() as u32, ports.len() as u32));
        self.ports.extend(&ports);
        known.insert(ports, number);
        number
    }

    /// Computes the shortest ways of `topology` over the links for which `is_alive` holds.
    pub(crate) fn shortest(topology: &Topology, is_alive: impl Fn(usize) -> bool) -> Tables {
        let (hosts, switches) = (topology.host_count() as usize, topology.switch_count() as usize);
        let neighbours = topology.neighbours();
        let mut tables = Tables { hosts, sets_of: vec![0; switches * hosts], ..Tables::default() };
        let mut known = BTreeMap::new();
        tables.set(&mut known, Vec::new());
        for edge in 0..switches {
            let attached: Vec<(u16, u32)> = (neighbours[hosts + edge].iter().enumerate())
                .filter_map(|(port, &(node, link))| match node {
                    NodeId::Host(host) if is_alive(link) => Some((port as u16, host)),
                    _ => None,
                })
                .collect();
            if attached.is_empty() {
                continue;
            }
            let distances = distances_to(edge, &neighbours[hosts..], &is_alive);
            for switch in (0..switches).filter(|&s| s != edge && distances[s] != u32::MAX) {
                let nearer = neighbours[hosts + switch].iter().enumerate();
                let nearer = nearer.filter(|&(_, &(node, link))| {
                    let NodeId::Switch(next) = node else { return false };
                    is_alive(link) && distances[next as usize] == distances[switch] - 1
                });
                let set = nearer.map(|(port, _)| port as u16).collect();
                let set = tables.set(&mut known, set);
                attached.iter().for_each(|&(_, h)| tables.sets_of[switch * hosts + h as usize] = set);
            }
            for &(port, host) in &attached {
                let set = tables.set(&mut known, vec![port]);
                tables.sets_of[edge * hosts + host as usize] = set;
            }
        }
        tables
    }
}

/// Steps from each switch to `target`; `u32::MAX` where there is no way.
fn distances_to(
    target: usize,
    switches: &[Vec<(NodeId, usize)>],
    is_alive: &impl Fn(usize) -> bool,
) -> Vec<u32> {
    let mut distances = vec![u32::MAX; switches.len()];
    distances[target] = 0;
    let mut queue = VecDeque::from([target]);
    while let Some(at) = queue.pop_front() {
        for &(node, link) in &switches[at] {
            let NodeId::Switch(next) = node else { continue };
            let next = next as usize;
            if is_alive(link) && distances[next] == u32::MAX {
                distances[next] = distances[at] + 1;
                queue.push_back(next);
            }
        }
    }
    distances
}

impl Topology {
    /// Routes by tables from now on, over the links for which `is_alive` holds.
    pub(crate) fn route_by_tables(&mut self, is_alive: impl Fn(usize) -> bool) {
        self.tables = Tables::shortest(self, is_alive);
        self.routers.fill(Router::Table);
    }
}
