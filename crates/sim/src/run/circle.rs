//! Links that wait for each other: what keeps a lossless network from moving.
//!
//! A link is paused because the node at its end has no room, and that node has none because it waits for a paused link of
//! its own. If such a chain closes, it may never open again.

use std::collections::BTreeMap;

use highwire_fabric::{NodeId, PortId};

use super::Net;
use crate::stamped::Wire;

/// The nodes along a circle of paused links, the first one again at the end; empty without one.
pub(super) fn waiting_circle<W: Wire>(net: &Net<W>) -> Vec<String> {
    let ends = |port: PortId| (net.node_of(port), net.node_of(net.peer(port)));
    let paused: Vec<PortId> = (0..net.port_count()).map(PortId).filter(|port| net.is_paused(*port)).collect();
    let links: Vec<(NodeId, NodeId)> = paused.into_iter().map(ends).collect();
    let circle = circle(&links);
    let name = |node: NodeId| net.topology().node_name(node).to_owned();
    circle.iter().chain(circle.first()).map(|&link| name(links[link].0)).collect()
}

/// The places of links that form a circle. Each leads to where the next one begins, and none leads back to where the one
/// before came from: packets do not turn round, so the two directions of a link do not wait for each other.
fn circle<N: Copy + Ord>(links: &[(N, N)]) -> Vec<usize> {
    let mut leaving: BTreeMap<N, Vec<usize>> = BTreeMap::new();
    for (place, (from, _)) in links.iter().enumerate() {
        leaving.entry(*from).or_default().push(place);
    }
    let next = |link: usize| {
        let (from, to) = links[link];
        let on = leaving.get(&to).into_iter().flatten().copied();
        on.filter(|&other| links[other].1 != from).collect::<Vec<_>>()
    };
    // Depth first, without recursion: a link that is met again while it is on the way closes a circle.
    let mut is_known = vec![false; links.len()];
    for start in 0..links.len() {
        if std::mem::replace(&mut is_known[start], true) {
            continue;
        }
        let mut way = vec![(start, next(start))];
        while let Some((_, rest)) = way.last_mut() {
            let Some(other) = rest.pop() else {
                way.pop();
                continue;
            };
            if let Some(first) = way.iter().position(|(link, _)| *link == other) {
                return way[first..].iter().map(|(link, _)| *link).collect();
            }
            if !std::mem::replace(&mut is_known[other], true) {
                way.push((other, next(other)));
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(links: &[(u32, u32)], expected: &[(u32, u32)]) {
        let mut found: Vec<(u32, u32)> = circle(links).iter().map(|&link| links[link]).collect();
        // A circle begins anywhere.
        let least = found.iter().enumerate().min_by_key(|(_, link)| **link).map_or(0, |(place, _)| place);
        found.rotate_left(least);
        assert_eq!(found, expected, "{links:?}");
    }

    #[test]
    fn a_circle_of_paused_links_is_found_and_a_chain_is_none() {
        check(&[], &[]);
        check(&[(1, 2), (2, 3)], &[]);
        check(&[(1, 2), (2, 3), (3, 1)], &[(1, 2), (2, 3), (3, 1)]);
        // Beside chains that lead to it and away from it.
        check(&[(9, 1), (2, 8), (3, 1), (2, 3), (1, 2), (8, 7)], &[(1, 2), (2, 3), (3, 1)]);
        // Two links between the same nodes in one direction.
        check(&[(1, 2), (1, 2), (2, 3)], &[]);
    }

    #[test]
    fn the_two_directions_of_a_link_do_not_wait_for_each_other() {
        check(&[(1, 2), (2, 1)], &[]);
        check(&[(1, 2), (2, 1), (2, 3), (3, 2)], &[]);
        check(&[(1, 2), (2, 1), (2, 3), (3, 2), (3, 1)], &[(1, 2), (2, 3), (3, 1)]);
    }
}
