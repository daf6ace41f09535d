//! The ICRC of packets whose IP and UDP headers the kernel does not show.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ONES, mask_ipv4, mask_ipv6};
use crate::crc::{Crc, Spread, unwind, unwind_word};
use crate::{Bth, ICRC_LEN, Ip, Ipv4, Ipv6, Udp};

/// The ICRC of a packet's first part; the rest is still to be added.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Icrc(Crc);

/// The part of the ICRC that all packets from one socket address to another share.
///
/// For IPv4, packets must have no options and carry "don't fragment" and nothing else in the fragment field, which
/// is what RoCEv2 senders do. It takes about as long to make one as to check a small packet.
///
/// The CRC is linear: the CRC of the headers with lengths and identification zero, plus what each of those fields adds,
/// is the CRC of the headers as they are. So a packet costs one pass over its own bytes, where they lie.
#[derive(Clone, Copy, Debug)]
pub struct PathIcrc {
    /// The CRC of the masked headers before the BTH; lengths and identification are zero.
    prefix: Crc,
    is_v4: bool,
}

/// What IPv4's total length adds to the CRC at the BTH.
static V4_LENGTH: Spread = Spread::new(Ipv4::LEN - 4 + Udp::LEN);
/// What IPv4's identification adds.
static V4_ID: Spread = Spread::new(ID_TO_BTH);
/// What IPv6's payload length adds.
static V6_LENGTH: Spread = Spread::new(Ipv6::LEN - 6 + Udp::LEN);
/// What UDP's length adds.
static UDP_LENGTH: Spread = Spread::new(2);

/// Bytes between the IPv4 identification and the BTH.
const ID_TO_BTH: usize = Ipv4::LEN - 6 + Udp::LEN;

/// The difference that makes the BTH's fifth byte count as ones, by that byte.
static MASK: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = unwind_word(byte as u32 ^ 0xFF);
        byte += 1;
    }
    table
};

impl Icrc {
    /// Adds bytes that follow.
    #[inline]
    pub fn update(self, bytes: &[u8]) -> Icrc {
        Icrc(self.0.update(bytes))
    }

    /// The ICRC, which goes on the wire least significant byte first.
    #[inline]
    pub fn finish(self) -> u32 {
        self.0.value()
    }
}

impl PathIcrc {
    /// The path between two IPv4 sockets.
    pub fn v4(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> PathIcrc {
        PathIcrc::new(Ip::V4(Ipv4::new(source.0, destination.0)), source.1, destination.1)
    }

    /// The path between two IPv6 sockets.
    pub fn v6(source: (Ipv6Addr, u16), destination: (Ipv6Addr, u16)) -> PathIcrc {
        PathIcrc::new(Ip::V6(Ipv6::new(source.0, destination.0)), source.1, destination.1)
    }

    /// The path between two sockets of the same family; `None` if one is IPv4 and one IPv6.
    pub fn between(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Option<PathIcrc> {
        match (source.0, destination.0) {
            (IpAddr::V4(s), IpAddr::V4(d)) => Some(PathIcrc::v4((s, source.1), (d, destination.1))),
            (IpAddr::V6(s), IpAddr::V6(d)) => Some(PathIcrc::v6((s, source.1), (d, destination.1))),
            _ => None,
        }
    }

    fn new(ip: Ip, source_port: u16, destination_port: u16) -> PathIcrc {
        let mut bytes = [0xFF; ONES + Ipv6::LEN + Udp::LEN];
        let ports = ONES + ip.header_len();
        let head = &mut bytes[ONES..ports];
        match ip {
            Ip::V4(v4) => {
                v4.emit(head.first_chunk_mut().expect("cut to the header's length"));
                head[2..6].fill(0);
                mask_ipv4(head);
            }
            Ip::V6(v6) => {
                v6.emit(head.first_chunk_mut().expect("cut to the header's length"));
                head[4..6].fill(0);
                mask_ipv6(head);
            }
        }
        let udp = Udp { source_port, destination_port, length: 0, checksum: 0xFFFF };
        udp.emit(bytes[ports..].first_chunk_mut().expect("the buffer goes on for a UDP header"));
        PathIcrc { prefix: Crc::EMPTY.update(&bytes[..ports + Udp::LEN]), is_v4: matches!(ip, Ip::V4(_)) }
    }

    /// Begins the ICRC of a packet of `len` bytes from BTH to padding, of which `front` are the first.
    ///
    /// `ip_id` is the IPv4 identification; IPv6 has none and ignores it.
    ///
    /// # Panics
    /// If `front` is shorter than a BTH.
    #[inline]
    pub fn start(&self, ip_id: u16, len: usize, front: &[u8]) -> Icrc {
        assert!(front.len() >= Bth::LEN, "the front holds at least the BTH");
        let udp_len = (len + Udp::LEN + ICRC_LEN) as u16;
        let ip_adds = if self.is_v4 {
            V4_LENGTH.of(udp_len.wrapping_add(Ipv4::LEN as u16)) ^ V4_ID.of(ip_id)
        } else {
            V6_LENGTH.of(udp_len)
        };
        let adds = ip_adds ^ UDP_LENGTH.of(udp_len) ^ MASK[usize::from(front[4])];
        Icrc(self.prefix.xor(adds).update(front))
    }

    /// The ICRC of `packet`, which goes from BTH to padding.
    ///
    /// # Panics
    /// If `packet` is shorter than a BTH.
    #[inline]
    pub fn icrc(&self, ip_id: u16, packet: &[u8]) -> u32 {
        self.start(ip_id, packet.len(), packet).finish()
    }

    /// Whether `packet`, which goes from BTH to ICRC, carries the right ICRC for this identification.
    #[inline]
    pub fn verify(&self, ip_id: u16, packet: &[u8]) -> bool {
        self.difference(ip_id, packet) == Some(0)
    }

    /// The identification under which `packet`, which goes from BTH to ICRC, carries the right ICRC. `hint`
    /// is tried first. `None` if no identification fits: the packet is damaged, or not from this path.
    ///
    /// One damaged packet in 2^16 passes, against one in 2^32 where the identification is known. On IPv6 paths this is
    /// [`PathIcrc::verify`] and the answer is `hint`.
    #[inline]
    pub fn verify_unknown_id(&self, hint: u16, packet: &[u8]) -> Option<u16> {
        let difference = self.difference(hint, packet)?;
        if difference == 0 {
            return Some(hint);
        }
        if !self.is_v4 {
            return None;
        }
        // The register is linear in the message, so the two ICRCs differ by what the two identifications' difference
        // became while the bytes behind it were taken in. Taken back over those and its own two bytes, it is the
        // difference itself: first byte lowest, and nothing but zeros above the second.
        let behind = ID_TO_BTH + packet.len() - ICRC_LEN;
        let ids = unwind(difference, size_of::<u16>() + behind)?;
        u16::try_from(ids).ok().map(|ids| hint ^ ids.swap_bytes())
    }

    /// The ICRC in `packet`, and the one that it should have; `None` if the packet is too short for one.
    #[inline]
    fn difference(&self, ip_id: u16, packet: &[u8]) -> Option<u32> {
        let (body, icrc) = packet.split_last_chunk::<ICRC_LEN>()?;
        (body.len() >= Bth::LEN).then(|| self.icrc(ip_id, body) ^ u32::from_le_bytes(*icrc))
    }
}
