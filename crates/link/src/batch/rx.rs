//! Packets that arrived: one train in one buffer, as UDP GRO delivers it.
//!
//! One buffer rather than many: the kernel hands over up to 64 KiB per call, so a second buffer would save nothing and
//! cost cache. A caller that wants more packets calls [`Link::receive`](crate::Link::receive) again.

use std::net::{Ipv4Addr, SocketAddr};

/// The longest UDP payload there is.
const BUFFER_BYTES: usize = 65_536;

/// The two ECN bits of the IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not speak ECN.
    #[default]
    NotCapable,
    /// Capable, code point 1.
    Capable1,
    /// Capable, code point 0: set by Highwire's senders.
    Capable0,
    /// A switch met congestion: the receiver answers with a CNP (RoCEv2 A17.9.3).
    CongestionExperienced,
}

impl Ecn {
    /// Where the two bits are in the octet; the six above them are the DSCP (RFC 2474 §3).
    pub(crate) const MASK: u8 = 3;

    /// The code point in the low two bits of a TOS or traffic class octet.
    pub const fn from_tos(tos: u8) -> Ecn {
        match tos & Ecn::MASK {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::CongestionExperienced,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

/// The packets that arrived in one call: from one sender, all of one size except the last.
pub struct RxBatch {
    bytes: Box<[u8]>,
    arrival: Arrival,
}

/// A link's description of the bytes that it has put into the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub source: SocketAddr,
    pub bytes: usize,
    /// Size of every packet but the last; never 0.
    pub segment_bytes: usize,
    pub traffic_class: u8,
}

const NOTHING: Arrival = Arrival {
    source: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    bytes: 0,
    segment_bytes: 1,
    traffic_class: 0,
};

/// One received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The address of its sender.
    pub source: SocketAddr,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
    /// Its position in the train it arrived in. Where sender and receiver share a host that is its position in the
    /// sender's train too, and so its IPv4 identification; from a network it is only a good first guess.
    pub train_index: u16,
    /// The traffic class octet, or TOS, of its IP header: DSCP and ECN.
    pub traffic_class: u8,
}

impl Packet<'_> {
    /// The congestion mark it carried.
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.traffic_class)
    }
}

impl Default for RxBatch {
    fn default() -> RxBatch {
        RxBatch::new()
    }
}

impl RxBatch {
    /// An empty batch with room for one train.
    pub fn new() -> RxBatch {
        RxBatch { bytes: vec![0; BUFFER_BYTES].into_boxed_slice(), arrival: NOTHING }
    }

    /// The packets, in order of arrival.
    pub fn packets(&self) -> Packets<'_> {
        Packets { rest: &self.bytes[..self.arrival.bytes], arrival: self.arrival, train_index: 0 }
    }

    /// The last packet, if it is shorter than those before it. A sender lets such a packet ride behind
    /// others, even if it was to leave first, because then it costs no system call of its own.
    pub fn rider(&self) -> Option<Packet<'_>> {
        let Arrival { source, bytes, segment_bytes, traffic_class } = self.arrival;
        let length = bytes % segment_bytes;
        if length == 0 || bytes < segment_bytes {
            return None;
        }
        let train_index = (bytes / segment_bytes) as u16;
        Some(Packet { source, bytes: &self.bytes[bytes - length..bytes], train_index, traffic_class })
    }

    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.arrival.bytes.div_ceil(self.arrival.segment_bytes)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.arrival.bytes == 0
    }

    /// Keeps only the packets of which this is true; returns how many are gone.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&[u8]) -> bool) -> usize {
        let Arrival { bytes, segment_bytes, .. } = self.arrival;
        let (mut kept, mut gone) = (0, 0);
        for start in (0..bytes).step_by(segment_bytes) {
            let end = bytes.min(start + segment_bytes);
            if keeps(&self.bytes[start..end]) {
                self.bytes.copy_within(start..end, kept);
                kept += end - start;
            } else {
                gone += 1;
            }
        }
        self.arrival.bytes = kept;
        gone
    }

    /// Forgets what is in it.
    pub fn clear(&mut self) {
        self.arrival = NOTHING;
    }

    /// Where a link puts the next train, before it calls [`fill`](RxBatch::fill).
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Makes the bytes in the buffer the batch's contents.
    pub(crate) fn fill(&mut self, arrival: Arrival) {
        assert!(
            arrival.bytes <= self.bytes.len() && arrival.segment_bytes > 0,
            "an impossible arrival: {arrival:?}"
        );
        self.arrival = arrival;
    }
}

/// Iterator over the packets of an [`RxBatch`].
#[derive(Clone)]
pub struct Packets<'a> {
    rest: &'a [u8],
    arrival: Arrival,
    train_index: u16,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    #[inline]
    fn next(&mut self) -> Option<Packet<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (bytes, rest) = self.rest.split_at(self.rest.len().min(self.arrival.segment_bytes));
        self.rest = rest;
        let train_index = self.train_index;
        self.train_index = train_index.wrapping_add(1);
        let Arrival { source, traffic_class, .. } = self.arrival;
        Some(Packet { source, bytes, train_index, traffic_class })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_are_not_kept_leave_no_gap() {
        let train = |keeps: &[u8]| {
            let mut batch = RxBatch::new();
            batch.buffer()[..5].copy_from_slice(&[1, 1, 2, 2, 3]);
            batch.fill(Arrival { bytes: 5, segment_bytes: 2, ..NOTHING });
            let gone = batch.retain(|bytes| keeps.contains(&bytes[0]));
            (gone, batch.packets().map(|packet| packet.bytes.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(train(&[1, 2, 3]), (0, vec![vec![1, 1], vec![2, 2], vec![3]]));
        assert_eq!(train(&[1, 3]), (1, vec![vec![1, 1], vec![3]]));
        assert_eq!(train(&[2]), (2, vec![vec![2, 2]]));
        assert_eq!(train(&[]), (3, vec![]));
    }

    #[test]
    fn a_rider_is_the_last_packet_and_shorter() {
        let mut batch = RxBatch::new();
        let arrival = |bytes, segment_bytes| Arrival { bytes, segment_bytes, ..NOTHING };
        for (bytes, segment_bytes, expected) in [
            (0, 1, None),
            (40, 40, None),
            (24, 40, None),
            (80, 40, None),
            (64, 40, Some((24, 1))),
            (104, 40, Some((24, 2))),
        ] {
            batch.fill(arrival(bytes, segment_bytes));
            let rider = batch.rider().map(|packet| (packet.bytes.len(), packet.train_index));
            assert_eq!(rider, expected, "{bytes} bytes in packets of {segment_bytes}");
            assert_eq!(rider.is_some(), rider.is_some() && batch.packets().last() == batch.rider());
        }
    }
}
