//! Folders: once one is open, `readdir` and its relatives need no redirection.

use std::ffi::{c_char, c_int, c_void};

use libc::DIR;

use crate::original::Callback;

use super::forward;

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    forward!(opendir, path, |at| (at))
}

macro_rules! scans {
    ($($name:ident)+) => { $(
        /// As the C library's, whose own version does not call this `opendir`.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            path: *const c_char, list: *mut c_void, choose: Callback, compare: Callback,
        ) -> c_int {
            forward!(scandir, path, |at| (at, list, choose, compare))
        }
    )+ };
}
scans!(scandir scandir64);

macro_rules! scans_at {
    ($($name:ident)+) => { $(
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            folder: c_int, path: *const c_char, list: *mut c_void, choose: Callback, compare: Callback,
        ) -> c_int {
            forward!(scandirat, path, |at| (folder, at, list, choose, compare))
        }
    )+ };
}
scans_at!(scandirat scandirat64);

/// As the C library's; `getcwd` then returns the folder's real path.
#[unsafe(no_mangle)]
unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    forward!(chdir, path, |at| (at))
}
