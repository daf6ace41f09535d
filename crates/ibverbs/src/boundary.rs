//! Where C calls in: functions with C names, which catch panics and check pointers. [`cancel`](crate::cancel) says what they do when their thread
//! is cancelled.
//!
//! Verbs' callers promise that a pointer is null or points to what its type says, and that no object is destroyed while another
//! call uses it. That promise is what the `unsafe` of every exported function rests on; objects of our own are looked up in the
//! [`registry`](crate::registry) besides, wherever a call is not on the data path.

use libc::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Declares functions that C calls by name. A panic becomes a failure with errno EIO. Calls about objects of
/// the machine's own library are passed on to its function of the same name ([`stock`](crate::stock)).
macro_rules! c_api {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
            #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
            #[allow(clippy::undocumented_unsafe_blocks, reason = "what callers promise holds throughout the body")]
            // SAFETY: callers promise what the module's documentation says; a passed function has the type of
            // this one.
            $crate::cancel::sealed(|| unsafe {
                if $crate::stock::is_present() {
                    let words: &[usize] = &[$($crate::stock::word(&$arg)),*];
                    if let Some(passed) = $crate::stock::Passed::of(stringify!($name), words.first().copied()) {
                        type Function = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
                        return std::mem::transmute::<*mut libc::c_void, Function>(passed.function())($($arg),*);
                    }
                }
                if $crate::faults::may_refuse() {
                    let words: &[usize] = &[$($crate::stock::word(&$arg)),*];
                    let errno = $crate::faults::judge(stringify!($name), words.first().copied());
                    if errno != 0 {
                        return $crate::faults::refuse(stringify!($name), errno);
                    }
                }
                $crate::refusal::told(stringify!($name), || $body)
            })
        }
    )*};
}

/// The same for functions that wait, and so are cancellation points. `$kept` is what [`in_parts`](crate::cancel::in_parts) keeps for the body
/// between two parts of the wait. A function of the machine's own library is called with cancellation as it is.
macro_rules! c_waits {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? |$kept:tt $(: $kind:ty)?| $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
            #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
            #[allow(clippy::undocumented_unsafe_blocks, reason = "what callers promise holds throughout the body")]
            // SAFETY: callers promise what the module's documentation says; a passed function has the type of
            // this one.
            unsafe {
                if $crate::stock::is_present() {
                    let words: &[usize] = &[$($crate::stock::word(&$arg)),*];
                    if let Some(passed) = $crate::stock::Passed::of(stringify!($name), words.first().copied()) {
                        type Function = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
                        let function = std::mem::transmute::<*mut libc::c_void, Function>(passed.function());
                        // A cancellation unwinds this frame, which then has nothing to drop.
                        let passed = std::mem::ManuallyDrop::new(passed);
                        let result = function($($arg),*);
                        drop(std::mem::ManuallyDrop::into_inner(passed));
                        return result;
                    }
                }
                if $crate::faults::may_refuse() {
                    let words: &[usize] = &[$($crate::stock::word(&$arg)),*];
                    let errno = $crate::cancel::sealed(|| $crate::faults::judge(stringify!($name), words.first().copied()));
                    if errno != 0 {
                        return $crate::faults::refuse(stringify!($name), errno);
                    }
                }
                $crate::cancel::in_parts(|$kept $(: $kind)?| $crate::refusal::told(stringify!($name), || $body))
            }
        }
    )*};
}

/// The same for functions that C reaches through a table.
macro_rules! c_ops {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$meta])*
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
            #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
            #[allow(clippy::undocumented_unsafe_blocks, reason = "what callers promise holds throughout the body")]
            // SAFETY: callers promise what the module's documentation says.
            $crate::cancel::sealed(|| unsafe {
                if $crate::faults::may_refuse() {
                    let words: &[usize] = &[$($crate::stock::word(&$arg)),*];
                    let errno = $crate::faults::judge(stringify!($name), words.first().copied());
                    if errno != 0 {
                        return $crate::faults::refuse(stringify!($name), errno);
                    }
                }
                $crate::refusal::told(stringify!($name), || $body)
            })
        }
    )*};
}

pub(crate) use {c_api, c_ops, c_waits};

/// Has a function called when the process exits: once, however often that is asked for. Where there is no room for it, it is not.
pub(crate) fn at_exit(asked: &Once, run: extern "C" fn()) {
    asked.call_once(|| {
        // SAFETY: functions of this type do not unwind; those here need nothing that ends before the process.
        let _ = unsafe { libc::atexit(run) };
    });
}

/// The return value of a C function that fails.
pub(crate) trait Failure {
    /// The failing result, with `errno` set if the result cannot hold it.
    fn failure(errno: c_int) -> Self;
    /// The failing result of a function that returns -1 and sets `errno`.
    fn minus_one(errno: c_int) -> Self
    where
        Self: Sized,
    {
        Self::failure(errno)
    }
}

impl Failure for c_int {
    fn failure(errno: c_int) -> c_int {
        set_errno(errno);
        errno
    }
    fn minus_one(errno: c_int) -> c_int {
        set_errno(errno);
        -1
    }
}

impl<T> Failure for *mut T {
    fn failure(errno: c_int) -> *mut T {
        set_errno(errno);
        std::ptr::null_mut()
    }
}

impl<T> Failure for *const T {
    fn failure(errno: c_int) -> *const T {
        set_errno(errno);
        std::ptr::null()
    }
}

/// Functions that return a value read return zero.
macro_rules! zero_on_failure {
    ($($type:ty),+) => {$(
        impl Failure for $type {
            fn failure(errno: c_int) -> $type {
                set_errno(errno);
                0
            }
        }
    )+};
}
zero_on_failure!(u8, u16, u32, u64);

impl Failure for isize {
    fn failure(errno: c_int) -> isize {
        set_errno(errno);
        -(errno as isize)
    }
}

impl Failure for () {
    fn failure(errno: c_int) {
        set_errno(errno);
    }
}

/// Runs the body of a C function of the data path: panics end here. It is [no cancellation point](crate::cancel).
#[inline]
pub(crate) fn guard<R: Failure>(run: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| R::failure(libc::EIO))
}

/// Runs the body of a C function; panics end here.
///
/// It has a frame of its own: a cancellation of asynchronous type unwinds from any instruction of a frame that it finds, and one with a landing
/// pad allows that at its calls only.
#[inline(never)]
pub(crate) fn caught<R: Failure>(run: impl FnOnce() -> R) -> R {
    guard(run)
}

/// Turns a result with an errno into C's, for a function that returns a pointer or an errno.
pub(crate) fn answer<R: Failure>(result: Result<R, c_int>) -> R {
    result.unwrap_or_else(R::failure)
}

/// The same of functions that return 0 or an errno.
pub(crate) fn code(result: Result<(), c_int>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => c_int::failure(errno),
    }
}

/// The same of functions that return 0, or -1 and errno.
pub(crate) fn minus_one(result: Result<(), c_int>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// Sets `errno` of a call that fails.
pub(crate) fn set_errno(errno: c_int) {
    crate::refusal::failed(errno);
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

/// A copy of a structure that C passes by pointer.
///
/// # Safety
/// `pointer` is null or points to a `T`.
pub(crate) unsafe fn input<T: Copy>(pointer: *const T) -> Result<T, c_int> {
    if pointer.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Writes the first `bytes` bytes of a structure to C's memory: a caller with an older header has a shorter
/// one.
///
/// # Safety
/// `to` points to `bytes` writable bytes.
pub(crate) unsafe fn output<T: Copy>(value: &T, to: *mut T, bytes: usize) {
    let known = bytes.min(size_of::<T>());
    // SAFETY: the caller's promise; bytes beyond the structure that this library knows are zeroed.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), known);
        to.cast::<u8>().add(known).write_bytes(0, bytes - known);
    }
}

/// Zero bytes of a C structure, which is how all of them begin.
pub(crate) fn zeroed_mutex() -> (libc::pthread_mutex_t, libc::pthread_cond_t) {
    (libc::PTHREAD_MUTEX_INITIALIZER, libc::PTHREAD_COND_INITIALIZER)
}

/// Copies text into a C array, with a zero at its end.
pub(crate) fn fill<const N: usize>(to: &mut [libc::c_char; N], text: &str) {
    let bytes = text.as_bytes();
    let length = bytes.len().min(N - 1);
    for (to, from) in to.iter_mut().zip(&bytes[..length]) {
        *to = *from as libc::c_char;
    }
    to[length..].fill(0);
}

/// A pointer as the number by which events are recognised.
pub(crate) fn tag<T>(pointer: *const T) -> u64 {
    pointer.cast::<c_void>() as u64
}
