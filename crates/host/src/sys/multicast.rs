//! Sockets of multicast groups.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};

/// The receive buffer that a group's socket asks for; the system may grant less.
const RECEIVE_BYTES: i32 = 4 << 20;

/// A socket that receives a multicast group's datagrams at the interface of `own`. Any number of sockets of
/// the host can have the same group, and each gets a copy.
pub(crate) fn group_socket(group: IpAddr, port: u16, own: IpAddr) -> io::Result<UdpSocket> {
    let family = if group.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a plain system call.
    let fd = unsafe { libc::socket(family, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    let socket = unsafe { UdpSocket::from_raw_fd(fd) };
    set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32)?;
    // Datagrams of a burst to a group that are lost are not repeated.
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BYTES)?;
    match (group, own) {
        (IpAddr::V4(group), IpAddr::V4(own)) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: port.to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(group.octets()) },
                sin_zero: [0; 8],
            };
            bind(&socket, &address)?;
            socket.join_multicast_v4(&group, &own)?;
        }
        (IpAddr::V6(group), own) => {
            let interface = interface_of(own).unwrap_or(0);
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: group.octets() },
                sin6_scope_id: interface,
            };
            bind(&socket, &address)?;
            socket.join_multicast_v6(&group, interface)?;
        }
        (IpAddr::V4(_), IpAddr::V6(_)) => return Err(io::ErrorKind::AddrNotAvailable.into()),
    }
    Ok(socket)
}

/// Lets datagrams to groups leave by the interface of `own`. This host's sockets get copies as well.
pub(crate) fn send_groups_from(socket: BorrowedFd<'_>, own: IpAddr) -> io::Result<()> {
    match own {
        IpAddr::V4(own) => {
            let address = libc::in_addr { s_addr: u32::from_ne_bytes(own.octets()) };
            set_option(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &address)
        }
        IpAddr::V6(_) => {
            let interface = interface_of(own).unwrap_or(0);
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &interface)
        }
    }
}

/// Binds to an address as the kernel writes it.
fn bind<T>(socket: &UdpSocket, address: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the address has the length that is passed.
    let failed = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(address).cast(), length) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_option<T>(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the value has the length that is passed; options here are plain integers and addresses.
    let failed = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of the interface that has an IPv6 address.
fn interface_of(own: IpAddr) -> Option<u32> {
    let IpAddr::V6(own) = own else { return None };
    let wanted: String = own.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    // One line per address: the address, then the interface's number, in hexadecimal digits.
    let table = std::fs::read_to_string("/proc/net/if_inet6").ok()?;
    let line = table.lines().find(|line| line.starts_with(&wanted))?;
    u32::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok()
}
