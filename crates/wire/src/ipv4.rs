//! IPv4 header without options, which is the only kind RoCEv2 sends (RFC 791; RoCEv2 A17.3.1.2).

use std::net::Ipv4Addr;

use crate::{HeaderName, ParseError, ParseErrorKind, bytes};

/// An IPv4 header. Its checksum is verified and computed, not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4 {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Bytes that follow the header.
    pub payload_len: u16,
    /// Identification; the ICRC covers it.
    pub id: u16,
    /// Flags in the upper three bits, fragment offset below.
    pub flags_fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

/// The protocol number of UDP.
pub(crate) const PROTOCOL_UDP: u8 = 17;

impl Ipv4 {
    /// Length on the wire.
    pub const LEN: usize = 20;
    /// The flag that forbids fragmentation, in [`Ipv4::flags_fragment`].
    pub const DONT_FRAGMENT: u16 = 0x4000;
    /// More fragments, or a fragment's offset.
    const FRAGMENTED: u16 = 0x3FFF;

    /// The header of a UDP packet that must not be fragmented, as RoCEv2 senders make it.
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr) -> Ipv4 {
        Ipv4 {
            traffic_class: 0,
            payload_len: 0,
            id: 0,
            flags_fragment: Ipv4::DONT_FRAGMENT,
            ttl: 64,
            protocol: PROTOCOL_UDP,
            source,
            destination,
        }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Another version, options, a length that does not cover the header, a fragment, or a wrong checksum.
    pub fn parse(b: &[u8; Ipv4::LEN]) -> Result<Ipv4, ParseError> {
        let fail = |offset, kind| Err(ParseError::new(HeaderName::Ipv4, offset, kind));
        if b[0] >> 4 != 4 {
            return fail(0, ParseErrorKind::BadVersion);
        }
        if b[0] & 0xF != 5 {
            return fail(0, ParseErrorKind::BadValue);
        }
        let Some(payload_len) = bytes::u16(b, 2).checked_sub(Ipv4::LEN as u16) else {
            return fail(2, ParseErrorKind::BadLength);
        };
        let flags_fragment = bytes::u16(b, 6);
        if flags_fragment & Ipv4::FRAGMENTED != 0 {
            return fail(6, ParseErrorKind::Fragment);
        }
        if ones_sum(b) != 0xFFFF {
            return fail(10, ParseErrorKind::BadChecksum);
        }
        Ok(Ipv4 {
            traffic_class: b[1],
            payload_len,
            id: bytes::u16(b, 4),
            flags_fragment,
            ttl: b[8],
            protocol: b[9],
            source: bytes::u32(b, 12).into(),
            destination: bytes::u32(b, 16).into(),
        })
    }

    /// Writes the header with its checksum.
    pub fn emit(&self, b: &mut [u8; Ipv4::LEN]) {
        b[0] = 0x45;
        b[1] = self.traffic_class;
        bytes::put(b, 2, self.payload_len.wrapping_add(Ipv4::LEN as u16).to_be_bytes());
        bytes::put(b, 4, self.id.to_be_bytes());
        bytes::put(b, 6, self.flags_fragment.to_be_bytes());
        b[8] = self.ttl;
        b[9] = self.protocol;
        bytes::put(b, 10, [0, 0]);
        bytes::put(b, 12, self.source.octets());
        bytes::put(b, 16, self.destination.octets());
        let checksum = !ones_sum(b);
        bytes::put(b, 10, checksum.to_be_bytes());
    }
}

/// Ones' complement sum of the header's words (RFC 1071).
fn ones_sum(b: &[u8; Ipv4::LEN]) -> u16 {
    let sum: u32 = b.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    ((folded & 0xFFFF) + (folded >> 16)) as u16
}
