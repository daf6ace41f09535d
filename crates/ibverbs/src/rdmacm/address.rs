//! Addresses in C's form and in Rust's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// Reads an address that C hands in.
///
/// # Errors
/// EINVAL for none, EAFNOSUPPORT for another family than IPv4 and IPv6.
///
/// # Safety
/// `address` is null or as long as its family says.
pub(super) unsafe fn read(address: *const sockaddr) -> Result<SocketAddr, c_int> {
    if address.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise, which does not include alignment.
    match c_int::from(unsafe { (&raw const (*address).sa_family).read_unaligned() }) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this length.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family has this length.
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id)))
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// The address as C wants it, and how long it is.
pub(super) fn write(address: SocketAddr) -> (sockaddr_storage, usize) {
    // SAFETY: zeros are a valid address of no family.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let c = sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than any address, and as aligned.
            unsafe { (&raw mut storage).cast::<sockaddr_in>().write(c) };
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let c = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: the storage is larger than any address, and as aligned.
            unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(c) };
            size_of::<sockaddr_in6>()
        }
    };
    (storage, length)
}

/// The address with its IPv4 address taken out of an IPv6 one, where it is one.
pub(super) fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// The multicast GID of an address, or `None` where it is no multicast address.
pub(super) fn multicast_gid(ip: IpAddr) -> Option<[u8; 16]> {
    match plain(ip) {
        IpAddr::V4(v4) if v4.is_multicast() => Some(v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) if v6.is_multicast() => Some(v6.octets()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_c() {
        for text in ["127.0.0.1:18515", "[::1]:7", "[fe80::1%3]:9", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            let (storage, _) = write(address);
            // SAFETY: the storage is an address.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(address));
        }
    }

    #[test]
    fn what_is_no_address_is_said_so() {
        // SAFETY: null is allowed, and so is storage of any family.
        assert_eq!(unsafe { read(std::ptr::null()) }, Err(libc::EINVAL));
        let mut storage = write("1.2.3.4:5".parse().expect("an address")).0;
        storage.ss_family = libc::AF_UNIX as u16;
        // SAFETY: as above.
        assert_eq!(unsafe { read((&raw const storage).cast()) }, Err(libc::EAFNOSUPPORT));
    }

    #[test]
    fn groups_have_gids() {
        let gid = |text: &str| multicast_gid(text.parse().expect("an address"));
        assert_eq!(gid("239.77.0.1").map(|gid| gid[10..].to_vec()), Some(vec![255, 255, 239, 77, 0, 1]));
        assert_eq!(gid("ff0e::1").map(|gid| gid[0]), Some(0xFF));
        assert_eq!(gid("10.0.0.1"), None);
    }
}
