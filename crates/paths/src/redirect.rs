//! The paths that are redirected, and their real places.

use std::ffi::{CStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use crate::tree;

/// Longer paths than the kernel's are not redirected.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// The place of a redirected path, as far as the result of `stat` depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Below `/sys`.
    Sys,
    /// Below `/dev`: a file there has to look like a device.
    Dev,
}

/// The redirected folders, and the place of each.
const OURS: [(&[u8], Place); 4] = [
    (b"/sys/class/infiniband", Place::Sys),
    (b"/sys/class/infiniband_verbs", Place::Sys),
    (b"/sys/class/infiniband_mad", Place::Sys),
    (b"/dev/infiniband", Place::Dev),
];

/// Another path to use.
pub(crate) struct Redirected {
    bytes: [u8; PATH_MAX],
    pub(crate) place: Place,
}

impl Redirected {
    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

/// The path of the real file for `path`, if it is redirected.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub(crate) unsafe fn redirect(path: *const c_char) -> Option<Redirected> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a C string has at least its end, and a further byte behind every byte that is not the end.
    let (first, second) = unsafe {
        let first = *path.cast::<u8>();
        (first, if first == 0 { 0 } else { *path.cast::<u8>().add(1) })
    };
    if first != b'/' || (second != b's' && second != b'd') {
        return None;
    }
    // SAFETY: as the caller promises.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    elsewhere(path, place(path)?)
}

/// The folders that are redirected besides where a scenario is played.
const OF_PCI: [&[u8]; 2] = [b"/sys/bus/pci/devices", b"/sys/class/pci_bus"];

/// The place of a path. One with `..` in it is followed in the private folder, as programs follow a device to its PCI folder; if
/// it leads to nothing there, the path itself is used.
fn place(path: &[u8]) -> Option<Place> {
    let is_below =
        |folder: &[u8]| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
    if let Some((_, place)) = OURS.iter().find(|(folder, _)| is_below(folder)) {
        return Some(*place);
    }
    let is_of_pci = OF_PCI.iter().any(|folder| is_below(folder)) && crate::identity::is_played();
    is_of_pci.then_some(Place::Sys)
}

#[cold]
fn elsewhere(path: &[u8], place: Place) -> Option<Redirected> {
    let errno = Errno::keep();
    let root = tree::root()?.as_os_str().as_bytes();
    drop(errno);
    let mut bytes = [0; PATH_MAX];
    let end = root.len() + path.len();
    if end >= PATH_MAX {
        return None;
    }
    bytes[..root.len()].copy_from_slice(root);
    bytes[root.len()..end].copy_from_slice(path);
    Some(Redirected { bytes, place })
}

/// Restores `errno` when dropped.
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn keep() -> Errno {
        // SAFETY: every thread has its errno.
        Errno(unsafe { *libc::__errno_location() })
    }

    /// Leaves `errno` as it is now.
    pub(crate) fn forget(self) {
        std::mem::forget(self);
    }

    pub(crate) fn set(value: c_int) {
        // SAFETY: every thread has its errno.
        unsafe { *libc::__errno_location() = value };
    }

    pub(crate) fn is_absent() -> bool {
        // SAFETY: every thread has its errno.
        let errno = unsafe { *libc::__errno_location() };
        errno == libc::ENOENT || errno == libc::ENOTDIR
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        Errno::set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rdma_devices_are_ours() {
        let check = |path: &str, expected| assert_eq!(place(path.as_bytes()), expected, "{path}");
        check("/sys/class/infiniband", Some(Place::Sys));
        check("/sys/class/infiniband/", Some(Place::Sys));
        check("/sys/class/infiniband/hw0/ports/1/gids/0", Some(Place::Sys));
        check("/sys/class/infiniband_verbs/uverbs0", Some(Place::Sys));
        check("/sys/class/infiniband_mad", Some(Place::Sys));
        check("/dev/infiniband/uverbs0", Some(Place::Dev));
        check("/sys/class/infiniband_cm", None);
        check("/sys/class/infinibandit", None);
        check("/sys/class/net", None);
        check("/sys/class/infiniband/hw0/../..", Some(Place::Sys));
        check("/sys/bus/pci/devices", None);
        check("/dev/infiniban", None);
        check("/dev/null", None);
        check("sys/class/infiniband", None);
        check("", None);
    }

    #[test]
    fn a_path_that_is_not_there_at_all_is_nobody_s() {
        // SAFETY: null is allowed, and the others are C strings.
        unsafe {
            assert!(redirect(std::ptr::null()).is_none());
            assert!(redirect(c"".as_ptr()).is_none());
            assert!(redirect(c"/".as_ptr()).is_none());
            assert!(redirect(c"/dev/shm".as_ptr()).is_none());
        }
    }
}
