//! The environment, for code that may run with another user's privileges.
//!
//! A program that is setuid, setgid or has capabilities of its file is started by a user who may not do what it may. What
//! that user wrote into the environment must not choose programs to start, libraries to load or files to write, so such a
//! program heeds none of it. The kernel says so (`AT_SECURE`, getauxval(3)), as it does to the dynamic linker.

use std::ffi::OsString;

/// Whether this program runs with privileges that the user who started it does not have.
pub fn is_privileged() -> bool {
    // SAFETY: the call has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The value of an environment variable; `None` if it is missing or empty, or if the program is privileged.
pub fn variable(name: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}
