//! Links, canonical names, extended attributes.

use std::ffi::{c_char, c_int, c_void};

use libc::{size_t, ssize_t};

use super::forward;

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, text: *mut c_char, size: size_t) -> ssize_t {
    forward!(readlink, path, |at| (at, text, size))
}

/// The form that `_FORTIFY_SOURCE` calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    text: *mut c_char,
    size: size_t,
    room: size_t,
) -> ssize_t {
    forward!(readlink_chk, path, |at| (at, text, size, room))
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn readlinkat(
    folder: c_int,
    path: *const c_char,
    text: *mut c_char,
    size: size_t,
) -> ssize_t {
    forward!(readlinkat, path, |at| (folder, at, text, size))
}

/// As the C library's: the real path of a redirected file.
#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, text: *mut c_char) -> *mut c_char {
    forward!(realpath, path, |at| (at, text))
}

/// The form that `_FORTIFY_SOURCE` calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn __realpath_chk(path: *const c_char, text: *mut c_char, room: size_t) -> *mut c_char {
    forward!(realpath_chk, path, |at| (at, text, room))
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    forward!(canonicalize, path, |at| (at))
}

macro_rules! attributes {
    ($($name:ident)+) => { $(
        /// As the C library's; `ls -l` calls it.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t,
        ) -> ssize_t {
            forward!($name, path, |at| (at, name, value, size))
        }
    )+ };
}
attributes!(getxattr lgetxattr);

macro_rules! attribute_lists {
    ($($name:ident)+) => { $(
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t {
            forward!($name, path, |at| (at, list, size))
        }
    )+ };
}
attribute_lists!(listxattr llistxattr);
