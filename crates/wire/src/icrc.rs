//! The invariant CRC, over all parts of a packet that no switch may change (RoCEv2 A17.3.3).
//!
//! CRC-32 over eight bytes of ones, the IP and UDP headers, and the packet from its BTH to its padding. The
//! fields that switches do change count as ones: type of service, time to live and header checksum (IPv6:
//! traffic class, flow label, hop limit), the UDP checksum, and the BTH's fifth byte.
//!
//! A UDP socket shows none of those headers. [`PathIcrc`] rebuilds them from the addresses and ports; it
//! cannot know one field, the identification of a received IPv4 packet, but can solve for it.

mod path;

pub use path::{Icrc, PathIcrc};

use crate::crc::Crc;
use crate::{Bth, HeaderName, ICRC_LEN, Ipv4, Ipv6, ParseError, ParseErrorKind, Udp};

/// The ICRC of an IP packet given from its IP header to its padding, without the ICRC itself.
///
/// # Errors
/// The bytes end before the BTH does, or the IP version is none.
pub fn icrc_of_ip_packet(packet: &[u8]) -> Result<u32, ParseError> {
    let (ip_len, mut head, name) = match packet.first().map(|b| b >> 4) {
        Some(4) => (Ipv4::LEN, [0; PREFIX_MAX], HeaderName::Ipv4),
        Some(6) => (Ipv6::LEN, [0; PREFIX_MAX], HeaderName::Ipv6),
        _ => return Err(ParseError::new(HeaderName::Ipv4, 0, ParseErrorKind::BadVersion)),
    };
    let len = ip_len + Udp::LEN + Bth::LEN;
    let Some((prefix, rest)) = packet.split_at_checked(len) else {
        return Err(ParseError::new(name, 0, ParseErrorKind::Truncated));
    };
    let head = &mut head[..ONES + len];
    head[..ONES].fill(0xFF);
    head[ONES..].copy_from_slice(prefix);
    let (ip, transport) = head[ONES..].split_at_mut(ip_len);
    if name == HeaderName::Ipv4 {
        mask_ipv4(ip);
    } else {
        mask_ipv6(ip);
    }
    transport[6..8].fill(0xFF);
    transport[Udp::LEN + 4] = 0xFF;
    Ok(Crc::EMPTY.update(head).update(rest).value())
}

/// Whether an IP packet, given from its IP header to its ICRC, carries the right one.
///
/// # Errors
/// As [`icrc_of_ip_packet`].
pub fn verify_ip_packet(packet: &[u8]) -> Result<bool, ParseError> {
    let Some((body, icrc)) = packet.split_last_chunk::<ICRC_LEN>() else {
        return Err(ParseError::new(HeaderName::Icrc, 0, ParseErrorKind::Truncated));
    };
    Ok(icrc_of_ip_packet(body)? == u32::from_le_bytes(*icrc))
}

/// The ones before the IP header, where InfiniBand has its local route header.
const ONES: usize = 8;
/// The longest prefix up to the BTH's end.
const PREFIX_MAX: usize = ONES + Ipv6::LEN + Udp::LEN + Bth::LEN;

/// Type of service, time to live, header checksum.
fn mask_ipv4(ip: &mut [u8]) {
    ip[1] = 0xFF;
    ip[8] = 0xFF;
    ip[10..12].fill(0xFF);
}

/// Traffic class, flow label, hop limit.
fn mask_ipv6(ip: &mut [u8]) {
    ip[0] |= 0x0F;
    ip[1..4].fill(0xFF);
    ip[7] = 0xFF;
}
