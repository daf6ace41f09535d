//! The C library's functions that take a path, one family per file.

mod directory;
mod link;
mod open;
mod status;

use std::ffi::c_int;
use std::ptr;

/// The result of a function that fails.
trait Answer: Sized {
    const FAILED: Self;
    fn is_failure(&self) -> bool;
}

impl Answer for c_int {
    const FAILED: c_int = -1;
    fn is_failure(&self) -> bool {
        *self == -1
    }
}

impl Answer for isize {
    const FAILED: isize = -1;
    fn is_failure(&self) -> bool {
        *self == -1
    }
}

impl<T> Answer for *mut T {
    const FAILED: *mut T = ptr::null_mut();
    fn is_failure(&self) -> bool {
        self.is_null()
    }
}

/// Calls `$original` with the private path in the place of `$path` if the path is the device's, and with
/// `$path` unchanged otherwise, or if the private folder has no such name.
macro_rules! forward {
    ($original:ident, $path:ident, |$at:ident| ($($arg:expr),*)) => {{
        let Some(function) = $crate::original::$original.function() else {
            $crate::redirect::Errno::set(libc::ENOSYS);
            return $crate::calls::Answer::FAILED;
        };
        // SAFETY: the caller's pointers are passed on unchanged, and a private path is a C string.
        unsafe {
            if let Some(redirected) = $crate::redirect::redirect($path) {
                let $at = redirected.as_ptr();
                let errno = $crate::redirect::Errno::keep();
                let result = function($($arg),*);
                if !$crate::calls::Answer::is_failure(&result) || !$crate::redirect::Errno::is_absent() {
                    errno.forget();
                    return result;
                }
            }
            let $at = $path;
            function($($arg),*)
        }
    }};
}
use forward;
