//! The device that is reached by an IP address.

use crate::gsi::Gsi;
use highwire_link::shm::Registry;
use highwire_verbs::Gid;
use std::net::{IpAddr, UdpSocket};

impl Gsi {
    /// The GID to use for an address: that of a device of this user on this machine, this device's own for
    /// any other address of the machine, or another machine's. `None` if this device's own address cannot
    /// reach it.
    pub fn gid_of(&self, ip: IpAddr) -> Option<Gid> {
        let (gid, ip) = (self.gid(), ip.to_canonical());
        let own = gid.to_ip();
        if ip == own || ip.is_unspecified() {
            return Some(gid);
        }
        if Registry::open().is_ok_and(|registry| registry.is_shared(ip) || registry.directory(ip).exists()) {
            return Some(Gid::from_ip(ip));
        }
        if is_local(ip) {
            return Some(gid);
        }
        let is_reachable = !own.is_loopback() && own.is_ipv4() == ip.is_ipv4();
        is_reachable.then(|| Gid::from_ip(ip))
    }
}

/// Whether an address is one of this machine's interfaces, or of its loopback network.
pub fn is_local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        ip if ip.is_loopback() => true,
        // Only an address of its own can be bound.
        IpAddr::V4(v4) => UdpSocket::bind((v4, 0)).is_ok(),
        // A link-local address cannot be bound without the link's number.
        IpAddr::V6(v6) => std::fs::read_to_string("/proc/net/if_inet6")
            .is_ok_and(|table| table.lines().any(|line| line.starts_with(&format!("{:032x}", v6.to_bits())))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_local_that_a_socket_may_have() {
        for (text, is_ours) in [
            ("127.9.8.7", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_local(text.parse().expect("an address")), is_ours, "{text}");
        }
    }
}
