//! The addresses of this machine, and the largest RoCE MTU behind each.

use crate::sys;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// An address that packets can be sent from and received at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// The interface it belongs to.
    pub interface: String,
    /// Whether the interface is switched on.
    pub is_up: bool,
    /// Whether it leads only to this machine.
    pub is_loopback: bool,
    /// For link-local IPv6 addresses the interface's number, otherwise 0.
    pub scope_id: u32,
}

/// Every IP address of this machine. All of 127.0.0.0/8 is local, but the list has only the addresses that
/// the interface has.
///
/// # Errors
/// Those of `getifaddrs`.
pub fn local_addresses() -> io::Result<Vec<LocalAddress>> {
    let found = sys::interfaces()?;
    Ok(found
        .into_iter()
        .map(|i| LocalAddress {
            ip: i.ip,
            interface: i.name,
            is_up: i.is_up,
            is_loopback: i.is_loopback,
            scope_id: i.scope_id,
        })
        .collect())
}

/// The MTU in bytes of the interface that `ip` belongs to; `None` if it is not an address of this machine.
pub fn netdev_mtu_of(ip: IpAddr) -> Option<u32> {
    let found = sys::interfaces().ok()?;
    let holds = |i: &&sys::Interface| match (i.ip, ip) {
        (IpAddr::V4(own), IpAddr::V4(asked)) if i.is_loopback => same_network(own, asked, i.prefix_bits),
        (own, asked) => own == asked,
    };
    let interface = found.iter().find(holds)?;
    // `lo:1` and the like are names of addresses, not of interfaces.
    let name = interface.name.split(':').next()?;
    std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?.trim().parse().ok()
}

fn same_network(a: Ipv4Addr, b: Ipv4Addr, prefix_bits: u32) -> bool {
    let mask = u32::MAX.checked_shl(32 - prefix_bits.min(32)).unwrap_or(0);
    a.to_bits() & mask == b.to_bits() & mask
}

/// IPv6 40, UDP 8, BTH 12, the longest extension headers 36 and ICRC 4 bytes.
const HEADER_BYTES_MAX: u32 = 100;

/// The largest RoCE MTU (256, 512, 1024, 2048 or 4096 bytes of payload per packet) whose packets fit an interface with the
/// given MTU in bytes, all headers included; `None` below 356.
pub fn roce_mtu_bytes(netdev_mtu_bytes: u32) -> Option<u32> {
    let room = netdev_mtu_bytes.checked_sub(HEADER_BYTES_MAX)?;
    [4096, 2048, 1024, 512, 256].into_iter().find(|&mtu| mtu <= room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_the_roce_mtu_fits_the_interface() {
        for (netdev, roce) in [
            (65_536, Some(4096)),
            (4200, Some(4096)),
            (4100, Some(2048)),
            (1500, Some(1024)),
            (1400, Some(1024)),
            (356, Some(256)),
            (355, None),
            (0, None),
        ] {
            assert_eq!(roce_mtu_bytes(netdev), roce, "{netdev}");
        }
    }

    #[test]
    fn every_loopback_address_is_local_and_a_documentation_one_is_not() {
        assert!(netdev_mtu_of(IpAddr::from([127, 9, 8, 7])).is_some_and(|mtu| mtu >= 1500));
        assert_eq!(netdev_mtu_of(IpAddr::from([203, 0, 113, 77])), None);
        let found = local_addresses().unwrap();
        assert!(found.iter().any(|a| a.is_loopback && a.ip == IpAddr::from([127, 0, 0, 1])), "{found:?}");
    }
}
