//! How long a flow takes when it has the network to itself: at line rate, stored and forwarded at every node.

use highwire_fabric::{HostId, LinkSpec, Span, Topology};
use std::collections::BTreeMap;

use crate::Scenario;
use crate::scenario::{HeaderBytes, Transport};

/// Computes ideal flow completion times; remembers the ways.
pub(crate) struct Ideal<'a> {
    topology: &'a Topology,
    headers: HeaderBytes,
    transport: &'a Transport,
    mtu: u32,
    ways: BTreeMap<(u32, u32), Option<Vec<LinkSpec>>>,
}

impl<'a> Ideal<'a> {
    pub(crate) fn new(scenario: &'a Scenario, topology: &'a Topology) -> Ideal<'a> {
        let scheme = &scenario.scheme;
        Ideal {
            topology,
            headers: scheme.headers,
            transport: &scheme.transport,
            mtu: scheme.mtu_bytes,
            ways: BTreeMap::new(),
        }
    }

    /// The time from the first bit's departure to the last bit's arrival; `None` if there is no way.
    pub(crate) fn of(&mut self, source: HostId, destination: HostId, bytes: u32) -> Option<Span> {
        let topology = self.topology;
        let way = self
            .ways
            .entry((source.0, destination.0))
            .or_insert_with(|| topology.path(source, destination, |_| 0))
            .as_deref()?;
        let packets = bytes.div_ceil(self.mtu);
        let last = bytes - (packets - 1) * self.mtu;
        let length = |begins, payload| {
            u64::from(match self.transport {
                Transport::Irn(_) => self.headers.write_bytes(true, begins, payload),
                Transport::GoBackN(_) => self.headers.write_bytes(false, begins, payload),
                Transport::Tcp(_) => self.headers.segment_bytes(payload),
            })
        };
        Some(completion(
            way,
            packets,
            length(true, self.mtu),
            length(false, self.mtu),
            length(packets == 1, last),
        ))
    }
}

/// When the last of `packets` packets arrives that leave back to back: the first, full ones, and the last.
fn completion(way: &[LinkSpec], packets: u32, first: u64, full: u64, last: u64) -> Span {
    // At every link: when the first packet, the last but one, and the last have been sent.
    let (mut head, mut body, mut tail) = (Span::ZERO, Span::ZERO, Span::ZERO);
    for link in way {
        let of = |bytes| link.rate.span_of(bytes);
        if packets > 1 {
            let middle = Span::from_ps(of(full).as_ps() * u64::from(packets - 2));
            head = head + of(first);
            // If this link is the slowest so far, its packets follow each other without gaps; otherwise they
            // leave as they arrived.
            body = (head + middle).max(body + if packets > 2 { of(full) } else { of(first) });
        }
        tail = tail.max(body) + of(last);
        (head, body, tail) = (head + link.delay, body + link.delay, tail + link.delay);
    }
    tail
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
                        completion(way, packets, first, full, last),
                        naive(way, packets, first, full, last),
                        "{way:?} {packets} {first} {full} {last}"
                    );
                }
            }
        }
    }
}
