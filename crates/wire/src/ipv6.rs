//! IPv6 header (RFC 8200), which is at once InfiniBand's global route header (IBTA §8.3).

use std::net::Ipv6Addr;

use crate::ipv4::PROTOCOL_UDP;
use crate::{HeaderName, ParseError, ParseErrorKind, bytes};

/// An IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6 {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes that follow the header.
    pub payload_len: u16,
    /// Protocol of the payload.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// Length on the wire.
    pub const LEN: usize = 40;

    /// The header of a UDP packet.
    pub const fn new(source: Ipv6Addr, destination: Ipv6Addr) -> Ipv6 {
        Ipv6 {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 0,
            next_header: PROTOCOL_UDP,
            hop_limit: 64,
            source,
            destination,
        }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Another version.
    pub fn parse(b: &[u8; Ipv6::LEN]) -> Result<Ipv6, ParseError> {
        let word = bytes::u32(b, 0);
        if word >> 28 != 6 {
            return Err(ParseError::new(HeaderName::Ipv6, 0, ParseErrorKind::BadVersion));
        }
        let (_, addresses) = b.split_at(8);
        let (source, destination) = addresses.split_at(16);
        let address = |octets: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(octets).expect("split at 16"));
        Ok(Ipv6 {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xF_FFFF,
            payload_len: bytes::u16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            source: address(source),
            destination: address(destination),
        })
    }

    /// Writes the header; the flow label modulo 2^20.
    pub fn emit(&self, b: &mut [u8; Ipv6::LEN]) {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xF_FFFF;
        bytes::put(b, 0, word.to_be_bytes());
        bytes::put(b, 4, self.payload_len.to_be_bytes());
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        bytes::put(b, 8, self.source.octets());
        bytes::put(b, 24, self.destination.octets());
    }
}
