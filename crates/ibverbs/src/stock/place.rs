//! Where the stock library is, and whether it is needed.
//!
//! Folders are read with system calls and not through the C library, because there the preloaded path
//! virtualiser shows this library's own device.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders in which distributions have it.
const FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/usr/local/lib",
];

/// The library to load, if this machine has devices, or if `HIGHWIRE_PASS_THROUGH` names it; `0` there means none.
pub(super) fn of_environment() -> Option<PathBuf> {
    let named = highwire_link::environment::variable("HIGHWIRE_PASS_THROUGH");
    match named {
        Some(value) if value == OsStr::new("0") => None,
        Some(path) => Some(path.into()),
        None if has_devices(c"/sys/class/infiniband_verbs") => installed(),
        None => None,
    }
}

/// The installed library that is not this very object.
fn installed() -> Option<PathBuf> {
    let ourselves = this_object().and_then(|path| identity(&path));
    let candidates = FOLDERS.iter().map(|folder| Path::new(folder).join("libibverbs.so.1"));
    let found = candidates.into_iter().find(|path| identity(path).is_some_and(|it| Some(it) != ourselves));
    if found.is_none() {
        crate::env::log(|| {
            "this machine has RDMA devices, and no libibverbs.so.1 of its own to list them".into()
        });
    }
    found
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The file that this code was loaded from.
fn this_object() -> Option<PathBuf> {
    // SAFETY: a structure of pointers, written by the call below.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = this_object as *const libc::c_void;
    // SAFETY: any address may be asked about.
    if unsafe { libc::dladdr(here, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's own name of a loaded object, a C string.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Whether the kernel shows a verbs device in this folder.
fn has_devices(folder: &CStr) -> bool {
    let Some(folder) = open(folder) else { return false };
    let mut buffer = [0u8; 4096];
    loop {
        // SAFETY: the buffer is as long as said.
        let read = unsafe {
            libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
        };
        match usize::try_from(read) {
            Ok(length) if length > 0 => {
                if names(&buffer[..length]).any(|name| name.starts_with(b"uverbs")) {
                    return true;
                }
            }
            _ => return false,
        }
    }
}

fn open(folder: &CStr) -> Option<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, folder.as_ptr(), flags) };
    // SAFETY: it is new, and nothing else owns it.
    i32::try_from(fd).ok().filter(|fd| *fd >= 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The names in what `getdents64` has written: records with their length at byte 16 and the name at byte 19.
fn names(mut records: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*records.get(16)?, *records.get(17)?]));
        let name = records.get(19..length)?;
        records = &records[length..];
        name.split(|byte| *byte == 0).next()
    })
}

/// A path as the linker wants it.
pub(super) fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_folder_are_read() {
        let folder = open(c"/proc/self").expect("/proc is there");
        let mut buffer = [0u8; 16384];
        // SAFETY: the buffer is as long as said.
        let read = unsafe {
            libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
        };
        let found: Vec<&[u8]> = names(&buffer[..usize::try_from(read).expect("a folder")]).collect();
        assert!(found.contains(&b"status".as_slice()) && found.contains(&b"maps".as_slice()));
    }

    #[test]
    fn a_broken_record_ends_the_list() {
        assert_eq!(names(&[]).count(), 0);
        assert_eq!(names(&[0; 40]).count(), 0);
        assert_eq!(names(&[0xFF; 40]).count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_devices() {
        assert!(!has_devices(c"/nowhere/at/all"));
        assert!(!has_devices(c"/proc/self"));
    }
}
