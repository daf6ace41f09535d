//! The status of files and their permissions. A file below `/dev` is shown as the character device for which
//! it stands.

use std::ffi::{CStr, c_char, c_int};

use libc::{dev_t, stat as Stat, statx as Statx};

use crate::original;
use crate::redirect::{Errno, Place, redirect};

use super::forward;

/// The major numbers of verbs devices, and of miscellaneous ones, among them rdma_cm's.
const VERBS_MAJOR: u32 = 231;
const MISC_MAJOR: u32 = 10;

/// The kernel's status of the private file for a redirected path.
fn ours(path: *const c_char, flags: c_int, answer: *mut Stat) -> Option<c_int> {
    // SAFETY: the caller's pointers are used as the C library's function would.
    unsafe {
        let redirected = redirect(path)?;
        let errno = Errno::keep();
        let function = original::fstatat.function();
        let result = match function {
            Some(function) => function(libc::AT_FDCWD, redirected.as_ptr(), answer, flags),
            None => original::fxstatat.function()?(1, libc::AT_FDCWD, redirected.as_ptr(), answer, flags),
        };
        if result == 0 && redirected.place == Place::Dev && (*answer).st_mode & libc::S_IFMT == libc::S_IFREG
        {
            (*answer).st_mode = libc::S_IFCHR | ((*answer).st_mode & !libc::S_IFMT);
            (*answer).st_rdev = number(path);
        }
        if result != 0 && Errno::is_absent() {
            return None;
        }
        errno.forget();
        Some(result)
    }
}

/// The device number that a kernel gives to a file of that name.
fn number(path: *const c_char) -> dev_t {
    // SAFETY: a redirected path is a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let numbered = |kind: &[u8]| {
        let digits = std::str::from_utf8(name.strip_prefix(kind)?).ok()?;
        digits.parse::<u32>().ok()
    };
    let verbs = [(&b"umad"[..], 0), (b"issm", 64), (b"uverbs", 192)];
    match verbs.iter().find_map(|(kind, first)| Some(first + numbered(kind)?)) {
        Some(minor) => libc::makedev(VERBS_MAJOR, minor),
        None => libc::makedev(MISC_MAJOR, 57),
    }
}

macro_rules! stats {
    ($($name:ident $old:ident $original:ident $old_original:ident $flags:expr;)+) => { $(
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, answer: *mut Stat) -> c_int {
            if let Some(result) = ours(path, $flags, answer) {
                return result;
            }
            // SAFETY: the caller's pointers as they came.
            unsafe {
                match (original::$original.function(), original::$old_original.function()) {
                    (Some(function), _) => function(path, answer),
                    (None, Some(old)) => old(1, path, answer),
                    (None, None) => missing(),
                }
            }
        }

        /// Programs built with an older C library call this.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $old(version: c_int, path: *const c_char, answer: *mut Stat) -> c_int {
            if let Some(result) = ours(path, $flags, answer) {
                return result;
            }
            // SAFETY: the caller's pointers as they came.
            unsafe {
                match (original::$old_original.function(), original::$original.function()) {
                    (Some(old), _) => old(version, path, answer),
                    (None, Some(function)) => function(path, answer),
                    (None, None) => missing(),
                }
            }
        }
    )+ };
}
stats! {
    stat __xstat stat_ xstat 0;
    stat64 __xstat64 stat_ xstat 0;
    lstat __lxstat lstat lxstat libc::AT_SYMLINK_NOFOLLOW;
    lstat64 __lxstat64 lstat lxstat libc::AT_SYMLINK_NOFOLLOW;
}

macro_rules! stats_at {
    ($($name:ident $old:ident)+) => { $(
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            folder: c_int, path: *const c_char, answer: *mut Stat, flags: c_int,
        ) -> c_int {
            if let Some(result) = ours(path, flags, answer) {
                return result;
            }
            // SAFETY: the caller's pointers as they came.
            unsafe {
                match (original::fstatat.function(), original::fxstatat.function()) {
                    (Some(function), _) => function(folder, path, answer, flags),
                    (None, Some(old)) => old(1, folder, path, answer, flags),
                    (None, None) => missing(),
                }
            }
        }

        /// Programs built with an older C library call this.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $old(
            version: c_int, folder: c_int, path: *const c_char, answer: *mut Stat, flags: c_int,
        ) -> c_int {
            if let Some(result) = ours(path, flags, answer) {
                return result;
            }
            // SAFETY: the caller's pointers as they came.
            unsafe {
                match (original::fxstatat.function(), original::fstatat.function()) {
                    (Some(old), _) => old(version, folder, path, answer, flags),
                    (None, Some(function)) => function(folder, path, answer, flags),
                    (None, None) => missing(),
                }
            }
        }
    )+ };
}
stats_at!(fstatat __fxstatat fstatat64 __fxstatat64);

fn missing() -> c_int {
    Errno::set(libc::ENOSYS);
    -1
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: u32,
    answer: *mut Statx,
) -> c_int {
    let result = anything(folder, path, flags, mask, answer);
    // SAFETY: a call that succeeded has filled the answer, and its path was a C string.
    unsafe {
        let regular = libc::S_IFREG as u16;
        if result == 0
            && (*answer).stx_mode & libc::S_IFMT as u16 == regular
            && redirect(path).is_some_and(|redirected| redirected.place == Place::Dev)
        {
            (*answer).stx_mode = libc::S_IFCHR as u16 | ((*answer).stx_mode & !(libc::S_IFMT as u16));
            let number = number(path);
            ((*answer).stx_rdev_major, (*answer).stx_rdev_minor) = (libc::major(number), libc::minor(number));
        }
    }
    result
}

fn anything(folder: c_int, path: *const c_char, flags: c_int, mask: u32, answer: *mut Statx) -> c_int {
    forward!(statx_, path, |at| (folder, at, flags, mask, answer))
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    forward!(access, path, |at| (at, mode))
}

macro_rules! effective_accesses {
    ($($name:ident)+) => { $(
        /// As the C library's, which has it under two names.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: c_int) -> c_int {
            forward!(eaccess, path, |at| (at, mode))
        }
    )+ };
}
effective_accesses!(eaccess euidaccess);

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    forward!(faccessat, path, |at| (folder, at, mode, flags))
}
