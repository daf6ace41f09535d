//! The C library's own functions, or those of another preloaded library behind this one.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, size_t, timespec};

/// One function, by its name; looked up at load, or at the first call if another object's start-up code calls
/// before.
pub(crate) struct Original<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

impl<F: Copy> Original<F> {
    const fn new(name: &'static CStr) -> Original<F> {
        Original { name, found: AtomicPtr::new(ptr::null_mut()), kind: PhantomData }
    }

    /// The function; `None` if this C library has none of that name.
    #[inline]
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
    ($($name:ident: $symbol:literal, ($($arg:ty),*);)+) => {
        $(
            #[allow(non_upper_case_globals, reason = "named as the function is")]
            pub(crate) static $name: Original<unsafe extern "C-unwind" fn($($arg),*) -> c_int> = Original::new($symbol);
        )+

        pub(crate) fn find_all() {
            $($name.function();)+
        }
    };
}

originals! {
    poll: c"poll", (*mut pollfd, nfds_t, c_int);
    poll_chk: c"__poll_chk", (*mut pollfd, nfds_t, c_int, size_t);
    ppoll: c"ppoll", (*mut pollfd, nfds_t, *const timespec, *const sigset_t);
    ppoll_chk: c"__ppoll_chk", (*mut pollfd, nfds_t, *const timespec, *const sigset_t, size_t);
    epoll_ctl: c"epoll_ctl", (c_int, c_int, c_int, *mut epoll_event);
    epoll_wait: c"epoll_wait", (c_int, *mut epoll_event, c_int, c_int);
    epoll_pwait: c"epoll_pwait", (c_int, *mut epoll_event, c_int, c_int, *const sigset_t);
    epoll_pwait2: c"epoll_pwait2", (c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t);
    close: c"close", (c_int);
}
