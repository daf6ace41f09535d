//! The name and address of the device: the same as in the verbs library, from the same variables.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A device as its files describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// The network interface that has the address.
    pub(crate) interface: String,
}

/// A variable of the environment, unless this program has privileges that the user who set the variable has not.
pub(crate) fn variable(name: &str) -> Option<String> {
    // SAFETY: the call has no preconditions.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    if is_privileged {
        return None;
    }
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Identity {
    /// The identity according to this process's environment.
    pub(crate) fn of_environment() -> Identity {
        let name =
            variable("HIGHWIRE_DEVICE_NAME").filter(|name| !name.contains('/') && !name.starts_with('.'));
        let address = variable("HIGHWIRE_ADDR").and_then(|text| text.parse().ok());
        let address = address.unwrap_or_else(default_address);
        let interface = interface_of(address).unwrap_or_else(|| "lo".into());
        Identity { name: name.unwrap_or_else(|| "hw0".into()), address, interface }
    }

    pub(crate) fn gid(&self) -> Ipv6Addr {
        match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        }
    }

    /// An EUI-64 made from the address; locally administered, so that it belongs to no vendor's device. The
    /// verbs library makes the same.
    pub(crate) fn guid(&self) -> [u16; 4] {
        let gid = self.gid().octets();
        let [a, b, c, d] = [gid[12] ^ gid[0], gid[13] ^ gid[7], gid[14].wrapping_mul(31), gid[15]];
        [0x0248, 0x57ff, u16::from_be_bytes([0xfe, a]), u16::from_be_bytes([b, c ^ d])]
    }
}

/// The address that all programs of one user share when none is named; `host` uses the same.
fn default_address() -> IpAddr {
    // SAFETY: it always succeeds.
    let uid = unsafe { libc::geteuid() };
    let (d, c) = (uid % 254 + 1, uid / 254 % 256);
    Ipv4Addr::new(127, 83, c as u8, d as u8).into()
}

/// The interface with this very address, or the loopback interface for addresses of its network.
fn interface_of(address: IpAddr) -> Option<String> {
    if address.is_loopback() {
        return Some("lo".into());
    }
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` receives the result; it is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return None;
    }
    let mut found = None;
    let mut at = list;
    while !at.is_null() && found.is_none() {
        // SAFETY: an element of the list, which is not freed yet; its name is a C string.
        let (entry, name) = unsafe { (&*at, CStr::from_ptr((*at).ifa_name)) };
        if socket_address(entry.ifa_addr) == Some(address) {
            found = Some(name.to_string_lossy().split(':').next().unwrap_or_default().to_string());
        }
        at = entry.ifa_next;
    }
    // SAFETY: as `getifaddrs` gave it.
    unsafe { libc::freeifaddrs(list) };
    found
}

fn socket_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the family says which structure it is.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let address = &*address.cast::<libc::sockaddr_in>();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = &*address.cast::<libc::sockaddr_in6>();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}
