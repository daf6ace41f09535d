//! Files of the device, and the interface that its address belongs to.

use crate::abi::*;
use crate::boundary::{c_api, set_errno};
use std::ffi::{CStr, CString, OsStr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// The interface of an address; 0 if there is none. All of 127.0.0.0/8 belongs to the loopback interface.
pub(crate) fn interface_index(ip: IpAddr) -> u32 {
    let wanted = if ip.is_loopback() && ip.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { ip };
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is written by the call, and freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return 0;
    }
    let mut index = 0;
    let mut next = list;
    // SAFETY: entries are chained until null, and live until the list is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: the address is null or what its family says; the name is a C string.
        unsafe {
            if address(entry.ifa_addr) == Some(wanted) {
                index = libc::if_nametoindex(entry.ifa_name);
                break;
            }
        }
        next = entry.ifa_next;
    }
    // SAFETY: it came from getifaddrs.
    unsafe { libc::freeifaddrs(list) };
    index
}

/// # Safety
/// `from` is null or points to what its family says.
unsafe fn address(from: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from(from.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = from.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let v6 = from.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

c_api! {
    fn ibv_get_sysfs_path() -> *const c_char {
        static PATH: OnceLock<CString> = OnceLock::new();
        let read = || {
            let path = highwire_link::environment::variable("SYSFS_PATH");
            let path = path.map(|path| path.as_bytes().to_vec()).unwrap_or_else(|| b"/sys".to_vec());
            CString::new(path).unwrap_or_default()
        };
        PATH.get_or_init(read).as_ptr()
    }

    /// A file's text without the newline at its end; its length, or -1.
    fn ibv_read_sysfs_file(folder: *const c_char, file: *const c_char, to: *mut c_char, bytes: usize) -> c_int {
        if folder.is_null() || file.is_null() || to.is_null() || bytes == 0 {
            set_errno(libc::EINVAL);
            return -1;
        }
        let path = |text| Path::new(OsStr::from_bytes(CStr::from_ptr(text).to_bytes()));
        match std::fs::read(path(folder).join(path(file))) {
            Ok(mut text) => {
                if text.last() == Some(&b'\n') {
                    text.pop();
                }
                text.truncate(bytes - 1);
                std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
                to.add(text.len()).write(0);
                text.len() as c_int
            }
            Err(error) => {
                set_errno(error.raw_os_error().unwrap_or(libc::EIO));
                -1
            }
        }
    }
}
