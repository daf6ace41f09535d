//! The list of devices: Highwire's, of which a scenario may have several, and behind them the machine's own.

use crate::abi::*;
use crate::boundary::{Failure, c_api, fill};
use crate::{env, faults, stock};
use highwire_host::default_shared_address;
use highwire_verbs::Gid;
use std::net::IpAddr;
use std::sync::OnceLock;

/// Our devices, as C sees them. They are never freed: programs keep pointers to them after they have freed the list.
///
/// A device that a scenario takes out comes back at another address, as a new one; each has a few, one after the other.
struct Entries {
    entries: Vec<ibv_device>,
    /// Addresses of each device.
    each: usize,
}

/// Addresses of each device of a scenario. A program that keeps pointers to devices that have left has to confuse so many.
const EACH: usize = 8;

// SAFETY: nothing is written after they were made, and their pointers are null.
unsafe impl Send for Entries {}
// SAFETY: as above.
unsafe impl Sync for Entries {}

static ENTRIES: OnceLock<Entries> = OnceLock::new();

/// Our devices; none while the environment is wrong.
fn all() -> Option<&'static Entries> {
    let settings = env::settings()?;
    let made = ENTRIES.get_or_init(|| {
        let scenario = settings.scenario.as_ref().map_or(&[][..], |scenario| &scenario.devices);
        let names: Vec<&str> = match scenario {
            [] => vec![&settings.name],
            devices => devices.iter().map(|device| device.name.as_str()).collect(),
        };
        let each = if settings.scenario.is_some() { EACH } else { 1 };
        let numbered = names.into_iter().enumerate();
        let entries = numbered.flat_map(|(index, name)| (0..each).map(move |_| entry(index, name)));
        Entries { entries: entries.collect(), each }
    });
    Some(made)
}

fn entry(index: usize, name: &str) -> ibv_device {
    let mut device = ibv_device {
        _ops: [std::ptr::null_mut(); 2],
        node_type: IBV_NODE_CA,
        transport_type: IBV_TRANSPORT_IB,
        name: [0; 64],
        dev_name: [0; 64],
        dev_path: [0; 256],
        ibdev_path: [0; 256],
    };
    fill(&mut device.name, name);
    fill(&mut device.dev_name, &format!("uverbs{index}"));
    fill(&mut device.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
    fill(&mut device.ibdev_path, &format!("/sys/class/infiniband/{name}"));
    device
}

/// The place of a device among all that there may be, if it is one of ours, and how often it had come back.
pub(crate) fn place_of(device: *const ibv_device) -> Option<(usize, u32)> {
    let Entries { entries, each } = ENTRIES.get()?;
    let position = entries.iter().position(|entry| std::ptr::eq(device, entry))?;
    let (index, turn) = (position / each, (position % each) as u32);
    if *each == 1 {
        return Some((index, 0));
    }
    // The latest that has this address.
    let now = faults::generation(index);
    let since = now.wrapping_sub(turn) % *each as u32;
    Some((index, now.wrapping_sub(since)))
}

/// The place of a device among all that there may be.
pub(crate) fn index_of(device: *const ibv_device) -> Option<usize> {
    place_of(device).map(|(index, _)| index)
}

/// A device by its place, whether it is in the list or has left it.
pub(crate) fn at(index: usize) -> Option<*mut ibv_device> {
    pointer_to(index, faults::generation(index))
}

fn pointer_to(index: usize, generation: u32) -> Option<*mut ibv_device> {
    let Entries { entries, each } = all()?;
    let entry = entries.get(index * each + generation as usize % each)?;
    Some(std::ptr::from_ref(entry).cast_mut())
}

/// Our part of the list.
fn listed() -> Vec<*mut ibv_device> {
    let count = all().map_or(0, |all| all.entries.len() / all.each);
    let places = faults::listed().unwrap_or_else(|| (0..count).map(|index| (index, 0)).collect());
    places.into_iter().filter_map(|(index, generation)| pointer_to(index, generation)).collect()
}

/// A device's name.
pub(crate) fn name(index: usize) -> &'static str {
    let Some(settings) = env::settings() else { return "" };
    let of_scenario = settings.scenario.as_ref().and_then(|scenario| scenario.devices.get(index));
    of_scenario.map_or(&settings.name, |device| &device.name)
}

/// The address that a device has, or will have when it is opened.
pub(crate) fn address(index: usize) -> IpAddr {
    let opened = crate::context::open_gid(index).map(Gid::to_ip);
    opened.or_else(|| named_address(index)).unwrap_or_else(default_shared_address)
}

/// The address that the environment gives a device. Devices after the first have those that come next in the network of
/// addresses that processes of a user share, unless the scenario names others.
pub(crate) fn named_address(index: usize) -> Option<IpAddr> {
    let settings = env::settings()?;
    let of_scenario = settings.scenario.as_ref().and_then(|scenario| scenario.devices.get(index)?.address);
    of_scenario.or_else(|| match index {
        0 => settings.device.address,
        index => Some(highwire_host::faults::address_after(default_shared_address(), index)),
    })
}

/// An EUI-64 made from the address; locally administered, so that it belongs to no vendor's device.
pub(crate) fn guid(index: usize) -> [u8; 8] {
    highwire_host::cm::guid_of(Gid::from_ip(address(index)))
}

c_api! {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
        let devices: Vec<*mut ibv_device> = listed().into_iter().chain(stock::devices()).collect();
        if !count.is_null() {
            count.write(devices.len() as c_int);
        }
        // From C's allocator, for some programs free it themselves.
        let list = libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()).cast::<*mut ibv_device>();
        if list.is_null() {
            return Failure::failure(libc::ENOMEM);
        }
        devices.iter().enumerate().for_each(|(index, device)| list.add(index).write(*device));
        list
    }

    fn ibv_free_device_list(list: *mut *mut ibv_device) {
        libc::free(list.cast());
    }

    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
        if device.is_null() {
            return Failure::failure(libc::EINVAL);
        }
        (&raw const (*device).name).cast()
    }

    fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
        match index_of(device) {
            Some(index) => u64::from_ne_bytes(guid(index)),
            None => Failure::failure(libc::EINVAL),
        }
    }

    fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
        index_of(device).map_or(-1, |index| index as c_int)
    }
}
