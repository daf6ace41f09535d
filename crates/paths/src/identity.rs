//! The name and address of the device: the same as in the verbs library, from the same variables.

use highwire_faults::{Port, Scenario, address_after, address_of_port};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

/// A device as its files describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// The network interface that has the address.
    pub(crate) interface: String,
    /// What a scenario says of it.
    pub(crate) played: Option<Played>,
}

/// A device of a scenario: it has a place among the PCI devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Played {
    /// Its PCI address.
    pub(crate) pci: String,
    pub(crate) numa: i32,
    pub(crate) gigabits: u32,
    /// Its ports at the beginning; at least one.
    pub(crate) ports: Vec<Port>,
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
    /// The devices according to this process's environment; none while a scenario is wrong, as in the verbs library.
    pub(crate) fn all_of_environment() -> Vec<Identity> {
        let first = Identity::of_environment();
        let Some(file) = variable("HIGHWIRE_SCENARIO") else { return vec![first] };
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let Ok(scenario) = Scenario::read(&file, &text) else { return Vec::new() };
        if scenario.devices.is_empty() {
            return vec![Identity { played: Some(Played::usual(0)), ..first }];
        }
        let devices = scenario.devices.iter().enumerate();
        devices.map(|(index, device)| Identity::of_scenario(index, device, &first)).collect()
    }

    fn of_scenario(index: usize, device: &highwire_faults::Device, first: &Identity) -> Identity {
        let address = match (device.address, index) {
            (Some(address), _) => address,
            (None, 0) => first.address,
            (None, index) => address_after(default_address(), index),
        };
        let usual = Played::usual(index);
        let played = Played {
            pci: device.pci.clone().unwrap_or(usual.pci),
            numa: device.numa.unwrap_or(usual.numa),
            gigabits: device.gigabits.unwrap_or(usual.gigabits),
            ports: (1..=device.port_count()).map(|number| device.port(number)).collect(),
        };
        let interface = interface_of(address).unwrap_or_else(|| "lo".into());
        Identity { name: device.name.clone(), address, interface, played: Some(played) }
    }

    /// The identity according to this process's environment.
    fn of_environment() -> Identity {
        let name =
            variable("HIGHWIRE_DEVICE_NAME").filter(|name| !name.contains('/') && !name.starts_with('.'));
        let address = variable("HIGHWIRE_ADDR").and_then(|text| text.parse().ok());
        let address = address.unwrap_or_else(default_address);
        let interface = interface_of(address).unwrap_or_else(|| "lo".into());
        Identity { name: name.unwrap_or_else(|| "hw0".into()), address, interface, played: None }
    }

    /// The GID of a port; those after the first have addresses of their own.
    pub(crate) fn gid_of(&self, port: u8) -> Ipv6Addr {
        match address_of_port(self.address, port) {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        }
    }

    /// An EUI-64 made from the address; locally administered, so that it belongs to no vendor's device. The
    /// verbs library makes the same.
    pub(crate) fn guid(&self) -> [u16; 4] {
        let gid = self.gid_of(1).octets();
        let [a, b, c, d] = [gid[12] ^ gid[0], gid[13] ^ gid[7], gid[14].wrapping_mul(31), gid[15]];
        [0x0248, 0x57ff, u16::from_be_bytes([0xfe, a]), u16::from_be_bytes([b, c ^ d])]
    }
}

impl Played {
    /// A device for which the file says nothing. Each has a bus of its own: programs take cards on one bus for ports of one.
    fn usual(index: usize) -> Played {
        Played {
            pci: format!("0000:{:02x}:00.0", 0x41 + index),
            numa: -1,
            gigabits: 100,
            ports: vec![Port::Active],
        }
    }
}

/// Whether a scenario is played: then PCI devices are shown as well.
pub(crate) fn is_played() -> bool {
    static IS_PLAYED: OnceLock<bool> = OnceLock::new();
    *IS_PLAYED.get_or_init(|| variable("HIGHWIRE_SCENARIO").is_some())
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
