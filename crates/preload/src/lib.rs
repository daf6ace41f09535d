//! The C library's functions behind those that a preloaded object defines again, or those of another such object behind this one.
#![warn(unsafe_op_in_unsafe_fn)]

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One function, by its name; looked up at load, or at the first call if another object's start-up code calls
/// before.
#[derive(Debug)]
pub struct Original<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

impl<F: Copy> Original<F> {
    /// The function of this name.
    ///
    /// # Safety
    /// `F` is a pointer to a function of the type that the function of that name has.
    pub const unsafe fn new(name: &'static CStr) -> Original<F> {
        Original { name, found: AtomicPtr::new(ptr::null_mut()), kind: PhantomData }
    }

    /// The function; `None` if this C library has none of that name.
    #[inline]
    pub fn function(&self) -> Option<F> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: the name is a C string; the answer is only kept.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Relaxed);
        }
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: `F` is the type of the C function of that name, as `new` was promised.
        (!found.is_null()).then(|| unsafe { mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}

/// Declares an object's originals, `name: c"symbol", (arguments) -> result;` each, and `find_all`, which looks all of them up before any is called:
/// `dlsym` must not run in signal handlers or in the child of a fork. The object calls it at load.
#[macro_export]
macro_rules! originals {
    ($($name:ident: $symbol:literal, ($($arg:ty),*) -> $result:ty;)+) => {
        $(
            #[allow(non_upper_case_globals, reason = "named as the function is")]
            // SAFETY: the type is that of the C function of this name.
            pub(crate) static $name: $crate::Original<unsafe extern "C-unwind" fn($($arg),*) -> $result> =
                unsafe { $crate::Original::new($symbol) };
        )+

        pub(crate) fn find_all() {
            $($name.function();)+
        }
    };
}
