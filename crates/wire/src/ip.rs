//! Either IP header.

use std::net::IpAddr;

use crate::ipv4::PROTOCOL_UDP;
use crate::{HeaderName, Ipv4, Ipv6, ParseError, ParseErrorKind};

/// An IP header of either version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ip {
    /// Version 4.
    V4(Ipv4),
    /// Version 6.
    V6(Ipv6),
}

impl Ip {
    /// Reads the header at the front of `packet` and returns it with its length.
    ///
    /// # Errors
    /// As [`Ipv4::parse`] and [`Ipv6::parse`], and a protocol other than UDP.
    pub fn parse(packet: &[u8]) -> Result<(Ip, usize), ParseError> {
        let truncated = |name| ParseError::new(name, 0, ParseErrorKind::Truncated);
        let (ip, name, offset, protocol) = match packet.first().map(|b| b >> 4) {
            Some(4) => {
                let v4 = Ipv4::parse(packet.first_chunk().ok_or(truncated(HeaderName::Ipv4))?)?;
                (Ip::V4(v4), HeaderName::Ipv4, 9, v4.protocol)
            }
            Some(6) => {
                let v6 = Ipv6::parse(packet.first_chunk().ok_or(truncated(HeaderName::Ipv6))?)?;
                (Ip::V6(v6), HeaderName::Ipv6, 6, v6.next_header)
            }
            Some(_) => return Err(ParseError::new(HeaderName::Ipv4, 0, ParseErrorKind::BadVersion)),
            None => return Err(truncated(HeaderName::Ipv4)),
        };
        if protocol != PROTOCOL_UDP {
            return Err(ParseError::new(name, offset, ParseErrorKind::OtherProtocol));
        }
        Ok((ip, ip.header_len()))
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Ip::V4(v4) => {
                let mut bytes = [0; Ipv4::LEN];
                v4.emit(&mut bytes);
                out.extend(bytes);
            }
            Ip::V6(v6) => {
                let mut bytes = [0; Ipv6::LEN];
                v6.emit(&mut bytes);
                out.extend(bytes);
            }
        }
    }

    /// Length on the wire.
    pub const fn header_len(&self) -> usize {
        match self {
            Ip::V4(_) => Ipv4::LEN,
            Ip::V6(_) => Ipv6::LEN,
        }
    }

    /// Bytes that follow the header.
    pub const fn payload_len(&self) -> u16 {
        match self {
            Ip::V4(v4) => v4.payload_len,
            Ip::V6(v6) => v6.payload_len,
        }
    }

    /// DSCP and ECN.
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Ip::V4(v4) => v4.traffic_class,
            Ip::V6(v6) => v6.traffic_class,
        }
    }

    /// Whether a switch marked the packet: congestion experienced (RFC 3168 §5).
    pub const fn is_congestion_marked(&self) -> bool {
        self.traffic_class() & 3 == 3
    }

    /// Source address.
    pub const fn source(&self) -> IpAddr {
        match self {
            Ip::V4(v4) => IpAddr::V4(v4.source),
            Ip::V6(v6) => IpAddr::V6(v6.source),
        }
    }

    /// Destination address.
    pub const fn destination(&self) -> IpAddr {
        match self {
            Ip::V4(v4) => IpAddr::V4(v4.destination),
            Ip::V6(v6) => IpAddr::V6(v6.destination),
        }
    }

    pub(crate) fn set_payload_len(&mut self, len: u16) {
        match self {
            Ip::V4(v4) => v4.payload_len = len,
            Ip::V6(v6) => v6.payload_len = len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn both_bits_of_ecn_are_congestion_experienced() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        for (class, is_marked) in [(0, false), (0xFC, false), (1, false), (2, false), (3, true), (0xFF, true)]
        {
            let ips = [
                Ip::V4(Ipv4 { traffic_class: class, ..Ipv4::new(v4, v4) }),
                Ip::V6(Ipv6 { traffic_class: class, ..Ipv6::new(v6, v6) }),
            ];
            for ip in ips {
                assert_eq!((ip.traffic_class(), ip.is_congestion_marked()), (class, is_marked), "{ip:?}");
            }
        }
    }
}
