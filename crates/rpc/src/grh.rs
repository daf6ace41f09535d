//! The address that sent a datagram, from the 40 bytes in front of it.

use crate::GRH_BYTES;
use highwire_verbs::Gid;
use std::net::{IpAddr, Ipv4Addr};

/// The sender's GID: of a GRH, or of the IPv4 header in its last 20 bytes (RoCEv2 A17.4.5.1).
pub(crate) fn source(grh: &[u8; GRH_BYTES]) -> Option<Gid> {
    // The first 20 bytes mean nothing in front of an IPv4 header.
    if grh[20] >> 4 == 4 && grh[20] & 15 == 5 {
        let source = Ipv4Addr::new(grh[32], grh[33], grh[34], grh[35]);
        let sum: u32 = grh[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        if (folded & 0xFFFF) + (folded >> 16) == 0xFFFF {
            return Some(Gid::from_ip(IpAddr::V4(source)));
        }
    }
    let source: [u8; 16] = grh[8..24].try_into().ok()?;
    (grh[0] >> 4 == 6).then_some(Gid(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_told_apart_and_rubbish_is_neither() {
        let mut v4 = [0xAAu8; GRH_BYTES];
        v4[20..].copy_from_slice(&[0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum: u32 = v4[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        v4[30..32].copy_from_slice(&(!((folded & 0xFFFF) + (folded >> 16)) as u16).to_be_bytes());
        assert_eq!(source(&v4).map(Gid::to_ip), Some("10.0.0.1".parse().expect("an address")));
        v4[31] ^= 1;
        assert_eq!(source(&v4), None);
        let mut v6 = [0u8; GRH_BYTES];
        v6[0] = 0x60;
        v6[8..24].copy_from_slice(&[7; 16]);
        assert_eq!(source(&v6), Some(Gid([7; 16])));
        assert_eq!(source(&[0; GRH_BYTES]), None);
    }
}
