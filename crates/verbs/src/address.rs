//! Destinations of packets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A global identifier: an IPv6 address, or an IPv4 address mapped into one (RoCEv2 A17.).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of an IP address.
    pub fn from_ip(ip: IpAddr) -> Gid {
        match ip {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }

    /// The IP address that the GID stands for.
    pub fn to_ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }

    /// Whether it is a multicast group's: of IPv6, or of IPv4 mapped into it.
    pub fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }

    /// The IPv4 address, if the GID is one.
    pub fn to_ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Gid {
        Gid::from_ip(ip)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ip().fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid {}", self.to_ip())
    }
}

/// The content of an address handle: the peer's GID and how packets to it are marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Address {
    /// The peer's GID.
    pub gid: Gid,
    /// The IP time to live, or hop limit.
    pub hop_limit: u8,
    /// The IP type of service, or traffic class.
    pub traffic_class: u8,
    /// The IPv6 flow label; the source of UDP port entropy.
    pub flow_label: u32,
}

impl Address {
    /// A plain address: hop limit 64, no marking.
    pub fn new(gid: Gid) -> Address {
        Address { gid, hop_limit: 64, traffic_class: 0, flow_label: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_survives_the_mapping() {
        let ip: IpAddr = "10.77.0.2".parse().expect("an address");
        assert_eq!(Gid::from_ip(ip).to_ip(), ip);
        assert_eq!(Gid::from_ip(ip).to_string(), "10.77.0.2");
        let v6: IpAddr = "fe80::1".parse().expect("an address");
        assert_eq!((Gid::from_ip(v6).to_ip(), Gid::from_ip(v6).to_ipv4()), (v6, None));
    }

    #[test]
    fn groups_of_both_families_are_multicast() {
        let check = |text: &str, expected| {
            let gid = Gid::from_ip(text.parse().expect("an address"));
            assert_eq!((gid.is_multicast(), gid.to_string().as_str()), (expected, text));
            assert_eq!(format!("{gid:?}"), format!("gid {text}"));
        };
        check("239.7.6.5", true);
        check("ff02::1", true);
        check("10.77.0.2", false);
        check("fe80::1", false);
    }
}
