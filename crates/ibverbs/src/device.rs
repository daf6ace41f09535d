//! The list of devices: Highwire's, and behind it the machine's own.

use crate::abi::*;
use crate::boundary::{Failure, c_api, fill};
use crate::{env, stock};
use highwire_host::default_shared_address;
use highwire_verbs::Gid;
use std::net::IpAddr;
use std::sync::OnceLock;

/// Our device, as C sees it. It is never freed: programs keep pointers to it after they have freed the list.
struct Entry(ibv_device);

// SAFETY: nothing is written after it was made, and its pointers are null.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

static ENTRY: OnceLock<Entry> = OnceLock::new();

/// Our device; none while the environment is wrong.
pub(crate) fn ours() -> Option<*mut ibv_device> {
    let settings = env::settings()?;
    let entry = ENTRY.get_or_init(|| {
        let mut device = ibv_device {
            _ops: [std::ptr::null_mut(); 2],
            node_type: IBV_NODE_CA,
            transport_type: IBV_TRANSPORT_IB,
            name: [0; 64],
            dev_name: [0; 64],
            dev_path: [0; 256],
            ibdev_path: [0; 256],
        };
        fill(&mut device.name, &settings.name);
        fill(&mut device.dev_name, "uverbs0");
        fill(&mut device.dev_path, "/sys/class/infiniband_verbs/uverbs0");
        fill(&mut device.ibdev_path, &format!("/sys/class/infiniband/{}", settings.name));
        Entry(device)
    });
    Some(std::ptr::from_ref(&entry.0).cast_mut())
}

pub(crate) fn is_ours(device: *const ibv_device) -> bool {
    ENTRY.get().is_some_and(|entry| std::ptr::eq(device, &entry.0))
}

/// The address that the device has, or will have when it is opened.
pub(crate) fn address() -> IpAddr {
    let named = || env::settings()?.device.address;
    crate::context::open_gid().map(Gid::to_ip).or_else(named).unwrap_or_else(default_shared_address)
}

/// An EUI-64 made from the address; locally administered, so that it belongs to no vendor's device.
pub(crate) fn guid() -> [u8; 8] {
    highwire_host::cm::guid_of(Gid::from_ip(address()))
}

c_api! {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
        let devices: Vec<*mut ibv_device> = ours().into_iter().chain(stock::devices()).collect();
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
        if is_ours(device) { u64::from_ne_bytes(guid()) } else { Failure::failure(libc::EINVAL) }
    }

    fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
        if is_ours(device) { 0 } else { -1 }
    }
}
