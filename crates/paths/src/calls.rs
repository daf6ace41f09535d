//! The C library's functions that take a path, one family per file.

mod directory;
mod link;
mod open;
mod status;

use std::ffi::c_int;
use std::ptr;

/// What a function answers when it could not do what it was asked for.
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

/// Calls `$original` with our path in the place of `$path` if that is ours, and as it came otherwise, or if we have
/// nothing under that name.
macro_rules! forward {
    ($original:ident, $path:ident, |$at:ident| ($($arg:expr),*)) => {{
        let Some(function) = $crate::original::$original.function() else {
            $crate::redirect::Errno::set(libc::ENOSYS);
            return $crate::calls::Answer::FAILED;
        };
        // SAFETY: the caller's pointers are handed on as they came, and a path of ours is a C string.
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
