//! All shortest ways of a network: how much fits on them, how long they are, how much they carry together.
//!
//! Nothing here depends on the order in which hosts, switches and links are named: every function looks at all equally
//! short ways, and takes the least or the most of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use highwire_fabric::{HostId, LinkSpec, NodeId, Rate, Span, Topology};

/// Hosts that hang on the same switch by the same kind of link have the same ways.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    switch: NodeId,
    rate_bps: u64,
    delay_ps: u64,
}

impl Place {
    pub(crate) fn of(topology: &Topology, host: HostId) -> Place {
        let spec = topology.host_link(host);
        // Any other host will do as a destination: a host has one link.
        let other = HostId(u32::from(host.0 == 0));
        let hop = topology.next_hops(NodeId::Host(host.0), other).next();
        let switch = hop.map_or(NodeId::Host(host.0), |(node, _)| node);
        Place { switch, rate_bps: spec.rate.as_bps(), delay_ps: spec.delay.as_ps() }
    }
}

/// The shortest ways from one host to another, hop by hop.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    /// Per step, every link that one of the ways takes.
    steps: Vec<Vec<Hop>>,
    /// Per step, how many nodes it leads to.
    widths: Vec<usize>,
}

/// A link of a way: the places of its ends among the nodes before and after the step.
#[derive(Clone, Copy, Debug)]
struct Hop {
    from: usize,
    to: usize,
    spec: LinkSpec,
}

impl Ways {
    /// `None` if there is no way.
    pub(crate) fn between(topology: &Topology, source: HostId, destination: HostId) -> Option<Ways> {
        let mut ways = Ways { steps: Vec::new(), widths: Vec::new() };
        let mut nodes = vec![NodeId::Host(source.0)];
        while nodes != [NodeId::Host(destination.0)] {
            let mut next: BTreeMap<NodeId, usize> = BTreeMap::new();
            let mut step = Vec::new();
            for (from, &node) in nodes.iter().enumerate() {
                for (to, link) in topology.next_hops(node, destination) {
                    let place = next.len();
                    let to = *next.entry(to).or_insert(place);
                    step.push(Hop { from, to, spec: topology.links()[link].spec });
                }
            }
            if step.is_empty() || ways.steps.len() > topology.switch_count() as usize {
                return None;
            }
            nodes = vec![NodeId::Host(source.0); next.len()];
            next.iter().for_each(|(&node, &place)| nodes[place] = node);
            ways.widths.push(nodes.len());
            ways.steps.push(step);
        }
        (!ways.steps.is_empty()).then_some(ways)
    }

    /// The links of the ways, if all ways have the same.
    pub(crate) fn single(&self) -> Option<Vec<LinkSpec>> {
        let alike = |step: &Vec<Hop>| {
            let first = step[0].spec;
            step.iter().all(|hop| hop.spec == first).then_some(first)
        };
        self.steps.iter().map(alike).collect()
    }

    /// The first link, which all ways have in common, and the last.
    pub(crate) fn ends(&self) -> (LinkSpec, LinkSpec) {
        let last = self.steps.last().map_or(self.steps[0][0].spec, |step| step[0].spec);
        (self.steps[0][0].spec, last)
    }

    /// Carries a value over every way: `pass` takes it over a link, `join` puts two together that meet at a node.
    pub(crate) fn carry<T: Clone>(
        &self,
        start: T,
        pass: impl Fn(&T, LinkSpec) -> T,
        join: impl Fn(T, T) -> T,
    ) -> T {
        let mut values = vec![Some(start)];
        for (step, &width) in self.steps.iter().zip(&self.widths) {
            let mut next: Vec<Option<T>> = vec![None; width];
            for hop in step {
                let Some(before) = &values[hop.from] else { continue };
                let passed = pass(before, hop.spec);
                let place = &mut next[hop.to];
                *place = Some(match place.take() {
                    None => passed,
                    Some(other) => join(other, passed),
                });
            }
            values = next;
        }
        values.into_iter().flatten().next().expect("the ways lead to the destination")
    }

    /// The least that `of` gives for the links of a way, summed.
    pub(crate) fn shortest(&self, of: impl Fn(LinkSpec) -> Span) -> Span {
        self.carry(Span::ZERO, |&sum, link| sum + of(link), Span::min)
    }

    /// Bits per second that all ways carry together: the smallest cut between the two hosts (the maximum flow).
    pub(crate) fn capacity_bps(&self) -> u64 {
        let bottleneck = |&rate: &u64, link: LinkSpec| rate.min(link.rate.as_bps());
        let widest = self.carry(u64::MAX, bottleneck, u64::max);
        let (first, last) = self.ends();
        let host = first.rate.as_bps().min(last.rate.as_bps());
        if widest >= host {
            return host;
        }
        MaxFlow::new(self).run()
    }
}

/// Edmonds and Karp: along a shortest way with room, as long as there is one.
struct MaxFlow {
    /// Per node, the edges that begin there; an edge and the one back are neighbours.
    edges_of: Vec<Vec<usize>>,
    /// Where an edge leads, and how much more it carries.
    edges: Vec<(usize, u64)>,
}

impl MaxFlow {
    fn new(ways: &Ways) -> MaxFlow {
        let count = 1 + ways.widths.iter().sum::<usize>();
        let mut flow = MaxFlow { edges_of: vec![Vec::new(); count], edges: Vec::new() };
        let mut before = 0;
        let mut after = 1;
        for (step, width) in ways.steps.iter().zip(&ways.widths) {
            for hop in step {
                let (from, to) = (before + hop.from, after + hop.to);
                flow.edges_of[from].push(flow.edges.len());
                flow.edges_of[to].push(flow.edges.len() + 1);
                flow.edges.push((to, hop.spec.rate.as_bps()));
                flow.edges.push((from, 0));
            }
            before = after;
            after += width;
        }
        flow
    }

    fn run(&mut self) -> u64 {
        let mut total = 0;
        while let Some(path) = self.path_with_room() {
            let more = path.iter().map(|&edge| self.edges[edge].1).min().unwrap_or(0);
            for edge in path {
                self.edges[edge].1 -= more;
                self.edges[edge ^ 1].1 += more;
            }
            total += more;
        }
        total
    }

    /// The edges of a way from the first node to the last.
    fn path_with_room(&self) -> Option<Vec<usize>> {
        let target = self.edges_of.len() - 1;
        let mut came_by = vec![usize::MAX; self.edges_of.len()];
        let mut queue = VecDeque::from([0]);
        while let Some(node) = queue.pop_front() {
            for &edge in &self.edges_of[node] {
                let (to, room) = self.edges[edge];
                if room > 0 && to != 0 && came_by[to] == usize::MAX {
                    came_by[to] = edge;
                    queue.push_back(to);
                }
            }
        }
        let (mut path, mut node) = (Vec::new(), target);
        while node != 0 {
            let edge = came_by[node];
            if edge == usize::MAX {
                return None;
            }
            path.push(edge);
            node = self.edges[edge ^ 1].0;
        }
        Some(path)
    }
}

/// Most bytes that fit on a way between two hosts, there and back: what its slowest link carries in a round trip of
/// propagation.
pub(crate) fn bandwidth_delay_product(topology: &Topology) -> u64 {
    let mut product = 0;
    for_each_longest(topology, |rate, delay| product = product.max(rate.bytes_in(delay * 2)));
    product
}

/// The longest propagation between two hosts, one way.
pub(crate) fn longest_delay(topology: &Topology) -> Span {
    let mut longest = Span::ZERO;
    for_each_longest(topology, |_, delay| longest = longest.max(delay));
    longest
}

/// For every two places and every rate, the longest propagation among the ways on which no link is slower.
fn for_each_longest(topology: &Topology, mut see: impl FnMut(Rate, Span)) {
    let hosts = topology.host_count();
    if topology.is_regular() && topology.uniform_link().is_some() {
        // Every host of a regular shape has a longest way, and all its ways are alike.
        for to in 1..hosts {
            let Some(path) = topology.path(HostId(0), HostId(to), |_| 0) else { continue };
            see(path[0].rate, path.iter().fold(Span::ZERO, |sum, link| sum + link.delay));
        }
        return;
    }
    // Two hosts of a place are enough: one sends to the other.
    let mut places: BTreeMap<Place, Vec<HostId>> = BTreeMap::new();
    for host in (0..hosts).map(HostId) {
        let known = places.entry(Place::of(topology, host)).or_default();
        if known.len() < 2 {
            known.push(host);
        }
    }
    if topology.is_regular() {
        // All ways between two hosts are alike.
        for (&from, &to) in
            places.values().flatten().flat_map(|a| places.values().flatten().map(move |b| (a, b)))
        {
            let Some(path) = topology.path(from, to, |_| 0) else { continue };
            let rate = path.iter().map(|link| link.rate).min().expect("a way has links");
            see(rate, path.iter().fold(Span::ZERO, |sum, link| sum + link.delay));
        }
        return;
    }
    let rates: BTreeSet<u64> = topology.links().iter().map(|link| link.spec.rate.as_bps()).collect();
    let rates: Vec<u64> = rates.into_iter().collect();
    for &destination in places.values().flatten() {
        let mut from = Longest { topology, destination, rates: &rates, known: BTreeMap::new() };
        for &source in places.values().flatten().filter(|&&source| source != destination) {
            for (&rate, delay) in rates.iter().zip(from.node(NodeId::Host(source.0))) {
                if let Some(delay) = delay {
                    see(Rate::from_bps(rate), delay);
                }
            }
        }
    }
}

/// The longest propagation to one destination, from anywhere, by the least rate of the links on the way.
struct Longest<'a> {
    topology: &'a Topology,
    destination: HostId,
    rates: &'a [u64],
    known: BTreeMap<NodeId, Vec<Option<Span>>>,
}

impl Longest<'_> {
    fn node(&mut self, node: NodeId) -> Vec<Option<Span>> {
        // A stack of its own: a chain of switches may be long.
        let mut open = vec![node];
        while let Some(&node) = open.last() {
            if self.known.contains_key(&node) {
                open.pop();
                continue;
            }
            let hops: Vec<_> = self.topology.next_hops(node, self.destination).collect();
            let unknown: Vec<NodeId> =
                hops.iter().map(|hop| hop.0).filter(|next| !self.known.contains_key(next)).collect();
            if unknown.is_empty() {
                let value = self.value(node, &hops);
                self.known.insert(node, value);
            }
            open.extend(unknown);
        }
        self.known[&node].clone()
    }

    fn value(&self, node: NodeId, hops: &[highwire_fabric::Hop]) -> Vec<Option<Span>> {
        if node == NodeId::Host(self.destination.0) {
            return vec![Some(Span::ZERO); self.rates.len()];
        }
        let mut value = vec![None; self.rates.len()];
        for (next, link) in hops {
            let LinkSpec { rate, delay } = self.topology.links()[*link].spec;
            let allowed = self.rates.partition_point(|&least| least <= rate.as_bps());
            for (value, rest) in value.iter_mut().zip(&self.known[next]).take(allowed) {
                *value = (*value).max(rest.map(|rest| rest + delay));
            }
        }
        value
    }
}

/// A link in one direction, and what share of it is asked for.
pub(crate) struct Busy {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) share: f64,
}

/// Networks with more links times destinations are not looked at: a look would take longer than it is worth.
const LOOKS_MAX: usize = 50_000_000;

/// The link that is asked for the largest share of what it carries, if every host sends `load` of its link's rate to all
/// others alike, and switches spread packets evenly over equally short ways.
pub(crate) fn busiest_link(topology: &Topology, load: f64) -> Option<Busy> {
    let hosts = topology.host_count();
    let mut groups: BTreeMap<NodeId, Vec<HostId>> = BTreeMap::new();
    for host in (0..hosts).map(HostId) {
        groups.entry(Place::of(topology, host).switch).or_default().push(host);
    }
    if groups.len() * topology.links().len() > LOOKS_MAX {
        return None;
    }
    let rate = |host: HostId| topology.host_link(host).rate.as_bps() as f64;
    // From each switch's hosts to one other host.
    let to_each = |members: &[HostId]| {
        members.iter().map(|&host| load * rate(host)).sum::<f64>() / f64::from(hosts - 1)
    };
    let from_switch: BTreeMap<NodeId, f64> =
        groups.iter().map(|(&switch, members)| (switch, to_each(members))).collect();
    let all: f64 = from_switch.values().sum();
    let mut asked: BTreeMap<(NodeId, usize), f64> = BTreeMap::new();
    for (&target, members) in &groups {
        for &host in members {
            let from_others = all - load * rate(host) / f64::from(hosts - 1);
            let link = topology.next_hops(target, host).next().map(|(_, link)| (target, link));
            link.into_iter().for_each(|link| *asked.entry(link).or_default() += from_others);
        }
        let representative = members[0];
        let mut inflow: BTreeMap<NodeId, f64> = from_switch
            .iter()
            .filter(|(switch, _)| **switch != target)
            .map(|(&switch, bits)| (switch, bits * members.len() as f64))
            .collect();
        for node in order(topology, inflow.keys().copied().collect(), target, representative) {
            let bits = inflow.get(&node).copied().unwrap_or_default();
            let hops: Vec<_> = topology.next_hops(node, representative).collect();
            for (next, link) in &hops {
                let part = bits / hops.len() as f64;
                *asked.entry((node, *link)).or_default() += part;
                *inflow.entry(*next).or_default() += part;
            }
        }
    }
    let shares = asked.into_iter().map(|((from, link), bits)| {
        let link = &topology.links()[link];
        let to = if link.ends[0].0 == from { link.ends[1].0 } else { link.ends[0].0 };
        (bits / link.spec.rate.as_bps() as f64, from, to)
    });
    let (share, from, to) = shares.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let name = |node| topology.node_name(node).to_owned();
    Some(Busy { from: name(from), to: name(to), share })
}

/// The switches on the ways from `sources` to `target`, each before those behind it.
fn order(topology: &Topology, sources: Vec<NodeId>, target: NodeId, host: HostId) -> Vec<NodeId> {
    let mut done: BTreeSet<NodeId> = BTreeSet::from([target]);
    let mut order = Vec::new();
    let mut open = sources;
    while let Some(&node) = open.last() {
        if done.contains(&node) {
            open.pop();
            continue;
        }
        let next = topology.next_hops(node, host).map(|(next, _)| next);
        let unknown: Vec<NodeId> = next.filter(|next| !done.contains(next)).collect();
        if unknown.is_empty() {
            done.insert(node);
            order.push(node);
        }
        open.extend(unknown);
    }
    order.reverse();
    order
}
