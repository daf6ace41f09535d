//! The C library's own functions, or those of another preloaded library behind this one.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, FILE, mode_t, size_t, ssize_t, stat, statx};

/// One function, by its name; looked up at load, or at the first call if another object's start-up code calls
/// before.
pub(crate) struct Original<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    kind: std::marker::PhantomData<F>,
}

impl<F: Copy> Original<F> {
    const fn new(name: &'static CStr) -> Original<F> {
        Original { name, found: AtomicPtr::new(ptr::null_mut()), kind: std::marker::PhantomData }
    }

    /// The function; `None` if this C library has none of that name.
    pub(crate) fn function(&self) -> Option<F> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: the name is a C string; the answer is only kept.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Relaxed);
        }
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: `F` is the type of the C function of that name, a pointer in size.
        (!found.is_null()).then(|| unsafe { mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}

macro_rules! originals {
    ($($name:ident: $symbol:literal, ($($arg:ty),*) -> $result:ty;)+) => {
        $(
            #[allow(non_upper_case_globals, reason = "named as the function is")]
            pub(crate) static $name: Original<unsafe extern "C" fn($($arg),*) -> $result> = Original::new($symbol);
        )+

        pub(crate) fn find_all() {
            $($name.function();)+
        }
    };
}

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
