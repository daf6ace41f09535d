//! Questions to the machine: its network interfaces and its cores.

use super::{RawAddress, check};
use highwire_stdx::Rng;
use std::io;
use std::mem::size_of;
use std::net::IpAddr;

/// One address of one interface.
pub(crate) struct Interface {
    pub name: String,
    pub ip: IpAddr,
    pub is_up: bool,
    pub is_loopback: bool,
    /// Length of the network part.
    pub prefix_bits: u32,
    pub scope_id: u32,
}

/// Every IP address of every interface.
pub(crate) fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: on success `list` is the head of a list that we own until `freeifaddrs`.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is a node of the list, not freed yet.
        let node = unsafe { &*next };
        next = node.ifa_next;
        // SAFETY: both are null or point to an address that lives as long as the list.
        let (address, mask) = unsafe { (read_address(node.ifa_addr), read_address(node.ifa_netmask)) };
        let Some(address) = address else { continue };
        let scope_id = match address {
            std::net::SocketAddr::V6(a) => a.scope_id(),
            std::net::SocketAddr::V4(_) => 0,
        };
        found.push(Interface {
            // SAFETY: the name is a C string that lives as long as the list.
            name: unsafe { std::ffi::CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned(),
            ip: address.ip(),
            is_up: node.ifa_flags & libc::IFF_UP as u32 != 0,
            is_loopback: node.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
            prefix_bits: mask.map_or(0, |m| match m.ip() {
                IpAddr::V4(m) => m.to_bits().count_ones(),
                IpAddr::V6(m) => m.to_bits().count_ones(),
            }),
            scope_id,
        });
    }
    // SAFETY: the head that `getifaddrs` gave us; nothing borrowed from the list outlives this line.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// `address` is null, or points to a socket address of the length that its family implies.
unsafe fn read_address(address: *const libc::sockaddr) -> Option<std::net::SocketAddr> {
    if address.is_null() {
        return None;
    }
    let mut raw = RawAddress::empty();
    // SAFETY: the caller vouches for the pointer; we copy only as many bytes as the family says there are.
    unsafe {
        let bytes = match i32::from((*address).sa_family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => return None,
        };
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut raw).cast::<u8>(), bytes);
    }
    raw.to_address()
}

/// The cores that the calling thread may run on, in ascending order.
pub(crate) fn allowed_cores() -> io::Result<Vec<usize>> {
    // SAFETY: a `cpu_set_t` is an array of integers, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: 0 is the calling thread, and the set is a live local of the size given.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    // SAFETY: CPU_ISSET only reads, and every index is below the set's size.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect())
}

/// Binds the calling thread to `cores`.
pub(crate) fn pin_to(cores: &[usize]) -> io::Result<()> {
    // SAFETY: a `cpu_set_t` is an array of integers, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores {
        if core >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: the index is below the set's size.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: 0 is the calling thread, and the set is a live local of the size given.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })?;
    Ok(())
}

/// 64 bits that an attacker cannot guess.
///
/// # Errors
/// Those of getrandom(2).
pub fn random_u64() -> io::Result<u64> {
    random_bytes().map(u64::from_ne_bytes)
}

/// A generator whose next numbers an attacker cannot guess, even from all earlier ones.
///
/// # Errors
/// Those of getrandom(2).
pub fn secret_rng() -> io::Result<Rng> {
    random_bytes().map(Rng::secret)
}

fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the buffer has the length that is passed.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // Requests of up to 256 bytes are never cut short once the pool is initialised (getrandom(2)).
    if got == bytes.len() as isize { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}
