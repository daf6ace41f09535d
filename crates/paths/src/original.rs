//! The C library's functions that this object defines again.

use std::ffi::{c_char, c_int, c_void};

use highwire_preload::originals;
use libc::{DIR, FILE, mode_t, size_t, ssize_t, stat, statx};

type Path = *const c_char;
/// The functions by which `scandir` chooses and sorts entries: never called here, only passed on.
pub(crate) type Callback = *const c_void;

originals! {
    open: c"open", (Path, c_int, mode_t) -> c_int;
    openat: c"openat", (c_int, Path, c_int, mode_t) -> c_int;
    open_2: c"__open_2", (Path, c_int) -> c_int;
    openat_2: c"__openat_2", (c_int, Path, c_int) -> c_int;
    fopen: c"fopen", (Path, Path) -> *mut FILE;
    stat_: c"stat", (Path, *mut stat) -> c_int;
    lstat: c"lstat", (Path, *mut stat) -> c_int;
    fstatat: c"fstatat", (c_int, Path, *mut stat, c_int) -> c_int;
    xstat: c"__xstat", (c_int, Path, *mut stat) -> c_int;
    lxstat: c"__lxstat", (c_int, Path, *mut stat) -> c_int;
    fxstatat: c"__fxstatat", (c_int, c_int, Path, *mut stat, c_int) -> c_int;
    statx_: c"statx", (c_int, Path, c_int, u32, *mut statx) -> c_int;
    access: c"access", (Path, c_int) -> c_int;
    eaccess: c"eaccess", (Path, c_int) -> c_int;
    faccessat: c"faccessat", (c_int, Path, c_int, c_int) -> c_int;
    opendir: c"opendir", (Path) -> *mut DIR;
    scandir: c"scandir", (Path, *mut c_void, Callback, Callback) -> c_int;
    scandirat: c"scandirat", (c_int, Path, *mut c_void, Callback, Callback) -> c_int;
    chdir: c"chdir", (Path) -> c_int;
    readlink: c"readlink", (Path, *mut c_char, size_t) -> ssize_t;
    readlink_chk: c"__readlink_chk", (Path, *mut c_char, size_t, size_t) -> ssize_t;
    readlinkat: c"readlinkat", (c_int, Path, *mut c_char, size_t) -> ssize_t;
    realpath: c"realpath", (Path, *mut c_char) -> *mut c_char;
    realpath_chk: c"__realpath_chk", (Path, *mut c_char, size_t) -> *mut c_char;
    canonicalize: c"canonicalize_file_name", (Path) -> *mut c_char;
    getxattr: c"getxattr", (Path, Path, *mut c_void, size_t) -> ssize_t;
    lgetxattr: c"lgetxattr", (Path, Path, *mut c_void, size_t) -> ssize_t;
    listxattr: c"listxattr", (Path, *mut c_char, size_t) -> ssize_t;
    llistxattr: c"llistxattr", (Path, *mut c_char, size_t) -> ssize_t;
}
