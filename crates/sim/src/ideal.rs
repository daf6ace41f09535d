//! How long a flow takes when it has the network to itself: at line rate, stored and forwarded at every node.
//!
//! Of several equally short ways it takes the best one. If packets are spread over all of them, it is a time that they
//! need at least: the host's own link, and all ways together, carry no more.

use highwire_fabric::{Balancing, HostId, LinkSpec, Rate, Span, Topology};
use std::collections::BTreeMap;

use crate::Scenario;
use crate::scenario::{Entropy, HeaderBytes, Transport};
use crate::ways::{Place, Ways};

/// Computes ideal flow completion times; remembers the ways.
pub(crate) struct Ideal<'a> {
    topology: &'a Topology,
    headers: HeaderBytes,
    transport: &'a Transport,
    mtu: u32,
    is_sprayed: bool,
    places: Vec<Place>,
    ways: BTreeMap<(Place, Place), Option<Way>>,
}

/// The ways between two places.
enum Way {
    /// All have the same links.
    Alike(Vec<LinkSpec>),
    /// They differ, and each packet of a flow takes the same.
    Different(Ways),
    /// Each packet takes one of its own; all together carry so much.
    Spread(Ways, Rate),
}

/// The lengths of a flow's packets on a link.
#[derive(Clone, Copy)]
struct Train {
    packets: u32,
    first: u64,
    full: u64,
    last: u64,
}

impl<'a> Ideal<'a> {
    pub(crate) fn new(scenario: &'a Scenario, topology: &'a Topology) -> Ideal<'a> {
        let scheme = &scenario.scheme;
        Ideal {
            topology,
            headers: scheme.headers,
            transport: &scheme.transport,
            mtu: scheme.mtu_bytes,
            is_sprayed: scenario.network.balancing == Balancing::Spray
                || scheme.entropy == Entropy::PerPacket,
            places: (0..topology.host_count()).map(|host| Place::of(topology, HostId(host))).collect(),
            ways: BTreeMap::new(),
        }
    }

    /// The time from the first bit's departure to the last bit's arrival; `None` if there is no way.
    pub(crate) fn of(&mut self, source: HostId, destination: HostId, bytes: u32) -> Option<Span> {
        let (topology, is_sprayed) = (self.topology, self.is_sprayed);
        let places = (self.places[source.0 as usize], self.places[destination.0 as usize]);
        let way = self.ways.entry(places).or_insert_with(|| way(topology, source, destination, is_sprayed));
        let packets = bytes.div_ceil(self.mtu);
        let last = bytes - (packets - 1) * self.mtu;
        let length = |begins, payload| {
            u64::from(match self.transport {
                Transport::Irn(_) => self.headers.write_bytes(true, begins, payload),
                Transport::GoBackN(_) => self.headers.write_bytes(false, begins, payload),
                Transport::Tcp(_) => self.headers.segment_bytes(payload),
            })
        };
        let train = Train {
            packets,
            first: length(true, if packets == 1 { last } else { self.mtu }),
            full: length(false, self.mtu),
            last: length(packets == 1, last),
        };
        Some(match way.as_ref()? {
            Way::Alike(way) => train.over(way),
            Way::Different(ways) => train.over_the_best(ways),
            Way::Spread(ways, together) => train.over_all(ways, *together),
        })
    }
}

fn way(topology: &Topology, source: HostId, destination: HostId, is_sprayed: bool) -> Option<Way> {
    // All ways of a regular shape are alike, and so are those over links of one kind.
    if (topology.is_regular() || topology.uniform_link().is_some()) && !is_sprayed {
        return topology.path(source, destination, |_| 0).map(Way::Alike);
    }
    let ways = Ways::between(topology, source, destination)?;
    if is_sprayed {
        let together = Rate::from_bps(ways.capacity_bps());
        return Some(Way::Spread(ways, together));
    }
    Some(ways.single().map_or(Way::Different(ways), Way::Alike))
}

/// When the first packet, the last but one, and the last have been sent over a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sent {
    head: Span,
    body: Span,
    tail: Span,
}

impl Sent {
    const NOTHING: Sent = Sent { head: Span::ZERO, body: Span::ZERO, tail: Span::ZERO };

    fn is_no_later_than(&self, other: &Sent) -> bool {
        self.head <= other.head && self.body <= other.body && self.tail <= other.tail
    }

    fn earliest(self, other: Sent) -> Sent {
        Sent {
            head: self.head.min(other.head),
            body: self.body.min(other.body),
            tail: self.tail.min(other.tail),
        }
    }
}

/// More ways than this that are better in one respect and worse in another are not told apart.
const DIFFERENT_MAX: usize = 32;

impl Train {
    /// When the last packet arrives of those that leave back to back.
    fn over(&self, way: &[LinkSpec]) -> Span {
        way.iter().fold(Sent::NOTHING, |sent, &link| self.pass(sent, link)).tail
    }

    /// After one more link.
    fn pass(&self, before: Sent, link: LinkSpec) -> Sent {
        let Sent { mut head, mut body, mut tail } = before;
        let of = |bytes| link.rate.span_of(bytes);
        if self.packets > 1 {
            let middle = Span::from_ps(of(self.full).as_ps() * u64::from(self.packets - 2));
            head = head + of(self.first);
            // If this link is the slowest so far, its packets follow each other without gaps; otherwise they
            // leave as they arrived.
            body = (head + middle).max(body + if self.packets > 2 { of(self.full) } else { of(self.first) });
        }
        tail = tail.max(body) + of(self.last);
        Sent { head: head + link.delay, body: body + link.delay, tail: tail + link.delay }
    }

    /// The same over the best of several ways: at each node those are kept that no other one outdoes.
    fn over_the_best(&self, ways: &Ways) -> Span {
        let all = ways.carry(
            vec![Sent::NOTHING],
            |before, link| before.iter().map(|&sent| self.pass(sent, link)).collect(),
            |mut kept: Vec<Sent>, more| {
                for sent in more {
                    if kept.iter().any(|other| other.is_no_later_than(&sent)) {
                        continue;
                    }
                    kept.retain(|other| !sent.is_no_later_than(other));
                    kept.push(sent);
                }
                if kept.len() > DIFFERENT_MAX {
                    // Later results may then be a little too early, and never too late.
                    let earliest = kept.into_iter().reduce(Sent::earliest);
                    kept = earliest.into_iter().collect();
                }
                kept
            },
        );
        all.iter().map(|sent| sent.tail).min().expect("there is a way")
    }

    /// A time that all packets need at least if each takes a way of its own. All ways `together` carry so much.
    fn over_all(&self, ways: &Ways, together: Rate) -> Span {
        let (begin, end) = ways.ends();
        let latency = |bytes: u64| ways.shortest(|link| link.rate.span_of(bytes) + link.delay);
        let shortest = self.first.min(self.full).min(self.last);
        let all = self.bytes();
        // The last packet leaves the host behind all others.
        let by_sender = self.sent_before_last(begin.rate) + latency(self.last);
        // All cross the receiver's link one by one, the first of them not before it is there.
        let by_receiver = latency(shortest) + end.rate.span_of(all - shortest);
        // All cross the narrowest cut of the network. On the way to it and behind it a packet takes its time; on the link
        // in the cut its own transmission counts among all.
        let slowest = ways.carry(Span::ZERO, |&most, link| most.max(link.rate.span_of(shortest)), Span::max);
        let by_all = together.span_of(all) + (latency(shortest) - slowest);
        by_sender.max(by_receiver).max(by_all)
    }

    fn bytes(&self) -> u64 {
        let before_last = self.packets.saturating_sub(2);
        let first = if self.packets > 1 { self.first } else { 0 };
        first + u64::from(before_last) * self.full + self.last
    }

    /// How long a host sends before it sends the last packet.
    fn sent_before_last(&self, rate: Rate) -> Span {
        if self.packets < 2 {
            return Span::ZERO;
        }
        let middle = rate.span_of(self.full).as_ps() * u64::from(self.packets - 2);
        rate.span_of(self.first) + Span::from_ps(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_fabric::Rate;

    /// The same, packet by packet.
    fn naive(way: &[LinkSpec], packets: u32, first: u64, full: u64, last: u64) -> Span {
        let bytes = |i| match i {
            _ if i + 1 == packets => last,
            0 => first,
            _ => full,
        };
        let mut arrived = vec![Span::ZERO; packets as usize];
        for link in way {
            let mut free = Span::ZERO;
            for i in 0..packets {
                let begin = arrived[i as usize].max(free);
                free = begin + link.rate.span_of(bytes(i));
                arrived[i as usize] = free + link.delay;
            }
        }
        arrived[packets as usize - 1]
    }

    #[test]
    fn the_closed_form_agrees_with_every_packet_walked() {
        let link = |gbps, us| LinkSpec { rate: Rate::from_gbps(gbps), delay: Span::from_us(us) };
        let ways = [
            vec![link(40, 2); 6],
            vec![link(40, 2), link(10, 1), link(40, 2)],
            vec![link(10, 2), link(100, 0), link(25, 1), link(25, 3)],
            vec![link(100, 1), link(40, 1), link(10, 1)],
        ];
        for way in &ways {
            for packets in [1, 2, 3, 7, 100] {
                for (first, full, last) in [(1086, 1086, 1086), (1086, 1086, 70), (1102, 1086, 500)] {
                    let first = if packets == 1 { last } else { first };
                    assert_eq!(
                        Train { packets, first, full, last }.over(way),
                        naive(way, packets, first, full, last),
                        "{way:?} {packets} {first} {full} {last}"
                    );
                }
            }
        }
    }
}
