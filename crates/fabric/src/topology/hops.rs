//! The shortest ways of a topology, as its switches see them: hop by hop, all of them at once.

use super::{LinkSpec, NodeId, Router, Topology};
use crate::HostId;

/// One step of a shortest way: the node it leads to, and the link's place in [`Topology::links`].
pub type Hop = (NodeId, usize);

impl Topology {
    /// Where a packet for `destination` may go from `node`. Empty at the destination, and where there is no way.
    pub fn next_hops(&self, node: NodeId, destination: HostId) -> impl Iterator<Item = Hop> + '_ {
        let hosts = self.host_count() as usize;
        let neighbours = self.neighbours();
        let (at, ways) = match node {
            NodeId::Host(host) => (host as usize, None),
            NodeId::Switch(switch) => {
                let address = self.addresses[destination.0 as usize];
                let router = &self.routers[switch as usize];
                (hosts + switch as usize, Some(router.ways(&self.tables, switch, address, destination.0)))
            }
        };
        let count = match &ways {
            Some(ways) => ways.count(),
            None => usize::from(node != NodeId::Host(destination.0)),
        };
        (0..count).map(move |n| neighbours[at][ways.as_ref().map_or(0, |ways| usize::from(ways.nth(n)))])
    }

    /// Whether all ways between two hosts are alike: the shapes other than graphs.
    pub fn is_regular(&self) -> bool {
        self.routers.iter().all(|router| matches!(router, Router::Tree(_)))
    }

    /// The rate and delay of all links, if they are the same.
    pub fn uniform_link(&self) -> Option<LinkSpec> {
        let first = self.links().first()?.spec;
        self.links().iter().all(|link| link.spec == first).then_some(first)
    }
}
