//! The ICRC of packets whose IP and UDP headers nobody shows us.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ONES, PREFIX_MAX, mask_ipv4, mask_ipv6};
use crate::crc::{Crc, unwind};
use crate::{Bth, ICRC_LEN, Ip, Ipv4, Ipv6, Udp};

/// Packets up to this length are copied behind their prefix, so that one pass over one buffer covers both.
const SHORT_MAX: usize = 64;

/// An ICRC of which part of the packet is still to come.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Icrc(Crc);

/// What the ICRCs of all packets from one socket address to another have in common.
///
/// For IPv4, packets must have no options and carry "don't fragment" and nothing else in the fragment field, which
/// is what RoCEv2 senders do. It takes about as long to make one as to hash 16 bytes.
#[derive(Clone, Debug)]
pub struct PathIcrc {
    /// Ones, IP header, UDP header, masked; lengths and identification are zero until a packet fills them in.
    prefix: [u8; PREFIX_MAX - Bth::LEN],
    is_v4: bool,
}

impl Icrc {
    /// Adds the bytes that follow.
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
        let ip = Ipv4 { flags_fragment: Ipv4::DONT_FRAGMENT, ..Ipv4::new(source.0, destination.0) };
        PathIcrc::new(Ip::V4(ip), source.1, destination.1)
    }

    /// The path between two IPv6 sockets.
    pub fn v6(source: (Ipv6Addr, u16), destination: (Ipv6Addr, u16)) -> PathIcrc {
        PathIcrc::new(Ip::V6(Ipv6::new(source.0, destination.0)), source.1, destination.1)
    }

    /// The path between two sockets of the same family; `None` where one is IPv4 and one IPv6.
    pub fn between(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Option<PathIcrc> {
        match (source.0, destination.0) {
            (IpAddr::V4(s), IpAddr::V4(d)) => Some(PathIcrc::v4((s, source.1), (d, destination.1))),
            (IpAddr::V6(s), IpAddr::V6(d)) => Some(PathIcrc::v6((s, source.1), (d, destination.1))),
            _ => None,
        }
    }

    /// The path that `ip` and two ports describe. Lengths and identification are filled in per packet.
    pub(crate) fn new(ip: Ip, source_port: u16, destination_port: u16) -> PathIcrc {
        let mut prefix = [0; PREFIX_MAX - Bth::LEN];
        prefix[..ONES].fill(0xFF);
        let (head, rest) = prefix[ONES..].split_at_mut(ip.header_len());
        match ip {
            Ip::V4(v4) => {
                v4.emit(head.first_chunk_mut().expect("split at the header's length"));
                head[2..6].fill(0);
                mask_ipv4(head);
            }
            Ip::V6(v6) => {
                v6.emit(head.first_chunk_mut().expect("split at the header's length"));
                head[4..6].fill(0);
                mask_ipv6(head);
            }
        }
        let udp = Udp { source_port, destination_port, length: 0, checksum: 0xFFFF };
        udp.emit(rest.first_chunk_mut().expect("the prefix ends with the UDP header"));
        PathIcrc { prefix, is_v4: matches!(ip, Ip::V4(_)) }
    }

    /// Whether packets of this path carry an identification.
    #[inline]
    pub fn has_ip_id(&self) -> bool {
        self.is_v4
    }

    /// Begins the ICRC of a packet of `len` bytes from BTH to padding, of which `front` are the first.
    ///
    /// `ip_id` is the IPv4 identification; IPv6 has none and ignores it.
    ///
    /// # Panics
    /// If `front` is shorter than a BTH.
    #[inline]
    pub fn start(&self, ip_id: u16, len: usize, front: &[u8]) -> Icrc {
        let (bth, rest) =
            front.split_first_chunk::<{ Bth::LEN }>().expect("the front holds at least the BTH");
        let start = if self.is_v4 {
            self.start_in::<V4_LEN>(ip_id, len, bth, &[])
        } else {
            self.start_in::<V6_LEN>(ip_id, len, bth, &[])
        };
        if rest.is_empty() { start } else { start.update(rest) }
    }

    /// The ICRC of `packet`, which goes from BTH to padding.
    ///
    /// # Panics
    /// If `packet` is shorter than a BTH.
    #[inline]
    pub fn icrc(&self, ip_id: u16, packet: &[u8]) -> u32 {
        if packet.len() > Bth::LEN + SHORT_MAX {
            return self.start(ip_id, packet.len(), packet).finish();
        }
        let (bth, rest) =
            packet.split_first_chunk::<{ Bth::LEN }>().expect("the packet holds at least the BTH");
        if self.is_v4 {
            self.start_in::<V4_LEN>(ip_id, packet.len(), bth, rest).finish()
        } else {
            self.start_in::<V6_LEN>(ip_id, packet.len(), bth, rest).finish()
        }
    }

    /// Whether `packet`, which goes from BTH to ICRC, carries the right ICRC for this identification.
    #[inline]
    pub fn verify(&self, ip_id: u16, packet: &[u8]) -> bool {
        self.difference(ip_id, packet) == Some(0)
    }

    /// The identification under which `packet`, which goes from BTH to ICRC, carries the right ICRC. `hint` is tried
    /// first. `None` where no identification fits: the packet is damaged, or not from this path.
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
        // became while the bytes behind it were taken in. Taken back to four bytes before that, it is the difference
        // itself: first byte lowest, and nothing but zeros above its two bytes.
        let behind = AFTER_ID + packet.len() - ICRC_LEN;
        let ids = unwind(difference, behind + size_of::<u16>())?;
        u16::try_from(ids).ok().map(|ids| hint ^ ids.swap_bytes())
    }

    /// The ICRC in `packet` against the one it should have; `None` where it is too short to have any.
    #[inline]
    fn difference(&self, ip_id: u16, packet: &[u8]) -> Option<u32> {
        let (body, icrc) = packet.split_last_chunk::<ICRC_LEN>()?;
        (body.len() >= Bth::LEN).then(|| self.icrc(ip_id, body) ^ u32::from_le_bytes(*icrc))
    }

    /// Fills in the prefix, `PREFIX` bytes of it, and hashes it with the BTH and up to [`SHORT_MAX`] bytes more.
    #[inline]
    fn start_in<const PREFIX: usize>(
        &self,
        ip_id: u16,
        len: usize,
        bth: &[u8; Bth::LEN],
        more: &[u8],
    ) -> Icrc {
        let mut buffer = [0; PREFIX_MAX + SHORT_MAX];
        buffer[..PREFIX].copy_from_slice(&self.prefix[..PREFIX]);
        let udp_len = (len + Udp::LEN + ICRC_LEN) as u16;
        if PREFIX == V4_LEN {
            buffer[ONES + 2..ONES + 4]
                .copy_from_slice(&(udp_len.wrapping_add(Ipv4::LEN as u16)).to_be_bytes());
            buffer[ONES + 4..ONES + 6].copy_from_slice(&ip_id.to_be_bytes());
        } else {
            buffer[ONES + 4..ONES + 6].copy_from_slice(&udp_len.to_be_bytes());
        }
        buffer[PREFIX - 4..PREFIX - 2].copy_from_slice(&udp_len.to_be_bytes());
        buffer[PREFIX..PREFIX + Bth::LEN].copy_from_slice(bth);
        buffer[PREFIX + 4] = 0xFF;
        let head = PREFIX + Bth::LEN;
        buffer[head..head + more.len()].copy_from_slice(more);
        Icrc(Crc::EMPTY.update(&buffer[..head + more.len()]))
    }
}

const V4_LEN: usize = ONES + Ipv4::LEN + Udp::LEN;
const V6_LEN: usize = ONES + Ipv6::LEN + Udp::LEN;
/// Bytes of the prefix behind the IPv4 identification.
const AFTER_ID: usize = V4_LEN - ONES - 6;
