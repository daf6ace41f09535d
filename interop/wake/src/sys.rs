//! System calls that neither the standard library nor `highwire-wake` offers.
#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// The module's name, for its unloading.
const MODULE: &std::ffi::CStr = c"highwire_wake";

/// The processor time of all threads of this process.
pub(crate) fn process_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the structure is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Unloads the module, without waiting.
pub(crate) fn unload() -> io::Result<()> {
    // SAFETY: a name that ends with a zero, and flags.
    match unsafe { libc::syscall(libc::SYS_delete_module, MODULE.as_ptr(), libc::O_NONBLOCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Installs a handler that does nothing, so that the signal interrupts what sleeps.
pub(crate) fn catch(signal: libc::c_int) -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: zeros are a valid action without flags, and the handler does nothing.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if failed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// This thread's number, for [`interrupt`].
pub(crate) fn thread_number() -> libc::pid_t {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// Sends a signal to a thread of this process.
pub(crate) fn interrupt(thread: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: numbers only; a thread that is gone is an error.
    match unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
