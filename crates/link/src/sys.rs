//! The system calls, each behind a safe function: the only `unsafe` of the sockets' path.

mod machine;
mod message;

pub(crate) use machine::{Interface, allowed_cores, interfaces, pin_to};
pub use machine::{random_u64, secret_rng};
pub(crate) use message::{Received, TRAINS_PER_CALL, drain_errors, receive, send_trains};

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An address as the kernel writes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(crate) const CAPACITY: libc::socklen_t = size_of::<RawAddress>() as libc::socklen_t;

    pub(crate) fn empty() -> RawAddress {
        // SAFETY: all-zero bytes are a valid value of every member: plain integers with no invalid patterns.
        unsafe { std::mem::zeroed() }
    }

    /// The raw form and its length.
    pub(crate) fn new(address: &SocketAddr) -> (RawAddress, libc::socklen_t) {
        let mut raw = RawAddress::empty();
        match address {
            SocketAddr::V4(a) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(a) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                    sin6_scope_id: a.scope_id(),
                };
                (raw, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address in the raw form, if it is an IP address.
    pub(crate) fn to_address(self) -> Option<SocketAddr> {
        // SAFETY: every member starts with the family and all bytes were initialised by `empty`, `new` or the kernel; the
        // family says which member the rest is.
        unsafe {
            match i32::from(self.family) {
                libc::AF_INET => {
                    let ip = self.v4.sin_addr.s_addr.to_ne_bytes();
                    Some(SocketAddr::from((ip, u16::from_be(self.v4.sin_port))))
                }
                libc::AF_INET6 => Some(SocketAddr::V6(std::net::SocketAddrV6::new(
                    self.v6.sin6_addr.s6_addr.into(),
                    u16::from_be(self.v6.sin6_port),
                    self.v6.sin6_flowinfo,
                    self.v6.sin6_scope_id,
                ))),
                _ => None,
            }
        }
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes a named pipe that only this user may open.
pub(crate) fn make_pipe(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero byte and lives until the call returns.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }).map(drop)
}

/// A non-blocking UDP socket, unbound.
pub(crate) fn udp_socket(is_ipv6: bool) -> io::Result<OwnedFd> {
    let family = if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: `socket` takes no pointers.
    let fd = check(unsafe { libc::socket(family, kind, libc::IPPROTO_UDP) })?;
    // SAFETY: the descriptor is new, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds to `address`.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    let (raw, length) = RawAddress::new(address);
    // SAFETY: `raw` lives across the call and `length` bytes of it are an address.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), length) })?;
    Ok(())
}

/// The address that a socket is bound to.
pub(crate) fn bound_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::empty();
    let mut length = RawAddress::CAPACITY;
    // SAFETY: both pointers are to live locals, and `length` says how many bytes the first one has.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut raw).cast(), &raw mut length) })?;
    raw.to_address().ok_or_else(|| io::Error::other("the socket has no IP address"))
}

/// Sets an integer option.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer is to a live local of the length given.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Reads an integer option.
pub(crate) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `length` says how many bytes the first one has.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}

/// The use of a socket's memory: the kernel's SK_MEMINFO_VARS (`linux/sock_diag.h`), of which the first are
/// the bytes that wait to be received and those that may, and the last the datagrams lost for want of room
/// since it was made.
pub(crate) fn memory_info(fd: BorrowedFd<'_>) -> io::Result<[u32; 9]> {
    let mut info = [0u32; 9];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `length` says how many bytes the first one has.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    Ok(info)
}

/// Lets a classic BPF program choose among the sockets that share this one's address.
pub(crate) fn attach_steering(fd: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies `len` instructions from `filter`, which borrows a live slice, before the call returns.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Waits until the socket is readable; false after `timeout_ms` milliseconds without.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout_ms: i32) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd, as the count says.
    Ok(check(unsafe { libc::poll(&raw mut poll, 1, timeout_ms) })? > 0)
}
