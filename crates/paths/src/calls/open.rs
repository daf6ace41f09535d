//! Opening files.

use std::ffi::{c_char, c_int};

use libc::{FILE, mode_t};

use super::forward;

macro_rules! opens {
    ($($name:ident)+) => { $(
        /// As the C library's. Without `O_CREAT` callers pass no mode, and the value read in its place is
        /// ignored.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            forward!(open, path, |at| (at, flags, mode))
        }
    )+ };
}
opens!(open open64);

macro_rules! opens_at {
    ($($name:ident)+) => { $(
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            forward!(openat, path, |at| (folder, at, flags, mode))
        }
    )+ };
}
opens_at!(openat openat64);

macro_rules! checked_opens {
    ($($name:ident)+) => { $(
        /// The form that `_FORTIFY_SOURCE` calls without a mode.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            forward!(open_2, path, |at| (at, flags))
        }
    )+ };
}
checked_opens!(__open_2 __open64_2);

macro_rules! checked_opens_at {
    ($($name:ident)+) => { $(
        /// The form that `_FORTIFY_SOURCE` calls without a mode.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
            forward!(openat_2, path, |at| (folder, at, flags))
        }
    )+ };
}
checked_opens_at!(__openat_2 __openat64_2);

macro_rules! opens_streams {
    ($($name:ident)+) => { $(
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            forward!(fopen, path, |at| (at, mode))
        }
    )+ };
}
opens_streams!(fopen fopen64);
