//! The environment, for code that may run with another user's privileges.
//!
//! A program that is setuid, setgid or has file capabilities may do more than the user who starts it. Variables that this user
//! sets must not choose programs to start, libraries to load or files to write, so such a program ignores them all. The kernel
//! tells the program that it is one (`AT_SECURE`, getauxval(3)), as it tells the dynamic linker.

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
