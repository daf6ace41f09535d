//! The IP addresses of a connection, in front of the application's private data (IBTA A11).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes;

/// The header with which `rdma_cm` begins the private data of a REQ or SIDR_REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpCm {
    /// The requester's port.
    pub source_port: u16,
    /// The requester's address.
    pub source: IpAddr,
    /// The requested address, of the same family.
    pub destination: IpAddr,
}

const VERSION: u8 = 0;

/// The service identifier of a port in one of `rdma_cm`'s port spaces, such as 0x0106 for TCP (IBTA A11).
pub const fn service_id(port_space: u16, port: u16) -> u64 {
    (port_space as u64) << 16 | port as u64
}

impl IpCm {
    /// Length on the wire; private data that is left to the application in a REQ: 56 bytes, in a SIDR_REQ:
    /// 180.
    pub const LEN: usize = 36;

    /// Reads the header; `None` for another version of it, or an unknown version of IP.
    pub fn parse(b: &[u8; IpCm::LEN]) -> Option<IpCm> {
        if b[0] != VERSION {
            return None;
        }
        let (source, destination): ([u8; 16], [u8; 16]) = (address(b, 4), address(b, 20));
        let (source, destination) = match b[1] >> 4 {
            4 => (v4(source), v4(destination)),
            6 => (IpAddr::V6(Ipv6Addr::from(source)), IpAddr::V6(Ipv6Addr::from(destination))),
            _ => return None,
        };
        Some(IpCm { source_port: bytes::u16(b, 2), source, destination })
    }

    /// The header's bytes. A pair of different families is written as IPv6, the IPv4 address mapped into it.
    pub fn emit(&self) -> [u8; IpCm::LEN] {
        let mut b = [0; IpCm::LEN];
        b[0] = VERSION;
        bytes::put(&mut b, 2, self.source_port.to_be_bytes());
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (self.source, self.destination) {
            b[1] = 4 << 4;
            bytes::put(&mut b, 16, source.octets());
            bytes::put(&mut b, 32, destination.octets());
        } else {
            b[1] = 6 << 4;
            bytes::put(&mut b, 4, v6(self.source).octets());
            bytes::put(&mut b, 20, v6(self.destination).octets());
        }
        b
    }
}

fn address(b: &[u8; IpCm::LEN], at: usize) -> [u8; 16] {
    let mut octets = [0; 16];
    octets.copy_from_slice(&b[at..at + 16]);
    octets
}

fn v4([.., a, b, c, d]: [u8; 16]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
