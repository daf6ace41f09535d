//! How long a flow takes when it has the network to itself: at line rate, stored and forwarded at every node.
//!
//! Of several equally short ways it takes the best one. If packets are spread over all of them, it is a time that they
//! need at least: the host's own link, and all ways together, carry no more.
//!
//! A switch that cuts through passes a packet on when its first bytes have come, unless the next link is faster. On a single way the
//! ideal is exact then, too; over several different ones it is a time that the flow needs at least.

use highwire_fabric::{Balancing, Forwarding, HostId, LinkSpec, Rate, Span, Topology};
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
    /// After how many bytes a switch passes a packet on; `None`: when all of it has come.
    cut: Option<u32>,
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
    cut: Option<u32>,
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
                || scheme.entropy == Entropy::PerPacket
                || scheme.congestion.algorithm().spreads,
            cut: match scenario.network.forwarding {
                Forwarding::StoreAndForward => None,
                Forwarding::CutThrough { header_bytes } => Some(header_bytes),
            },
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
            cut: self.cut,
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
        let nexts = way.iter().skip(1).map(Some).chain([None]);
        let links = way.iter().zip(nexts);
        let passed = |sent, (&link, next): (&LinkSpec, Option<&LinkSpec>)| {
            // The last link leads to a host, which waits for whole packets; so does a switch whose next link would run out of bytes.
            let is_cut = next.is_some_and(|next| next.rate <= link.rate);
            self.known(self.pass(sent, link), link, is_cut)
        };
        links.fold(Sent::NOTHING, passed).tail
    }

    /// When the next node may begin to send what has been `sent` over a link.
    fn known(&self, sent: Sent, link: LinkSpec, is_cut: bool) -> Sent {
        if self.cut.is_none() || !is_cut {
            return sent;
        }
        let before =
            |at: Span, bytes| Span::from_ps(at.as_ps().saturating_sub(self.rest(link, bytes).as_ps()));
        let last_but_one = if self.packets > 2 { self.full } else { self.first };
        Sent {
            head: before(sent.head, self.first),
            body: before(sent.body, last_but_one),
            tail: before(sent.tail, self.last),
        }
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
            |before, link| before.iter().map(|&sent| self.known(self.pass(sent, link), link, true)).collect(),
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
        let tail = all.iter().map(|sent| sent.tail).min().expect("there is a way");
        // The host at the end of the last link waits for the whole packet.
        tail + self.rest(ways.ends().1, self.last)
    }

    /// A time that all packets need at least if each takes a way of its own. All ways `together` carry so much.
    fn over_all(&self, ways: &Ways, together: Rate) -> Span {
        let (begin, end) = ways.ends();
        let first = |bytes: u64| bytes - self.rest_bytes(bytes);
        let latency = |bytes: u64| {
            let begun = ways.shortest(|link| link.rate.span_of(first(bytes)) + link.delay);
            begun + self.rest(end, bytes)
        };
        let shortest = self.first.min(self.full).min(self.last);
        let all = self.bytes();
        // The last packet leaves the host behind all others.
        let by_sender = self.sent_before_last(begin.rate) + latency(self.last);
        // All cross the receiver's link one by one, the first of them not before it is there.
        let by_receiver = latency(shortest) + end.rate.span_of(all - shortest);
        // All cross the narrowest cut of the network. On the way to it and behind it a packet takes its time; on the link
        // in the cut its own transmission counts among all.
        let slowest = ways.carry(Span::ZERO, |&most, link| most.max(link.rate.span_of(shortest)), Span::max);
        let apart = match self.cut {
            None => latency(shortest) - slowest,
            // The last bits may cross the cut while the first ones are with the receiver.
            Some(_) => ways.shortest(|link| link.delay),
        };
        let by_all = together.span_of(all) + apart;
        by_sender.max(by_receiver).max(by_all)
    }

    /// What of a packet follows while the next node sends it on already.
    fn rest_bytes(&self, bytes: u64) -> u64 {
        self.cut.map_or(0, |first| bytes.saturating_sub(u64::from(first)))
    }

    fn rest(&self, link: LinkSpec, bytes: u64) -> Span {
        link.rate.span_of(bytes) - link.rate.span_of(bytes - self.rest_bytes(bytes))
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
    fn naive(way: &[LinkSpec], train: Train) -> Span {
        let Train { packets, first, full, last, cut } = train;
        let bytes = |i| match i {
            _ if i + 1 == packets => last,
            0 => first,
            _ => full,
        };
        let mut arrived = vec![Span::ZERO; packets as usize];
        for (at, link) in way.iter().enumerate() {
            let is_cut = way.get(at + 1).is_some_and(|next| next.rate <= link.rate);
            let mut free = Span::ZERO;
            for i in 0..packets {
                let begin = arrived[i as usize].max(free);
                free = begin + link.rate.span_of(bytes(i));
                let known = match cut {
                    Some(cut) if is_cut => begin + link.rate.span_of(bytes(i).min(u64::from(cut))),
                    _ => free,
                };
                arrived[i as usize] = known + link.delay;
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
                    for cut in [None, Some(0), Some(64), Some(600), Some(9_000)] {
                        let train = Train { packets, first, full, last, cut };
                        assert_eq!(train.over(way), naive(way, train), "{way:?} {packets} {last} {cut:?}");
                    }
                }
            }
        }
    }
}
