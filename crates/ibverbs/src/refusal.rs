//! Says why a call was refused, with `HIGHWIRE_LOG=1`: one sentence on stderr for each, with what to change.
//!
//! Control calls run inside [`told`], which knows their name. A refusal comes with its reason ([`because`]); the
//! outermost call prints the last one when it fails. On the data path nothing is noted before a request is refused.

use crate::boundary::Failure;
use crate::{env, record, report};
pub(crate) use highwire_host::record::About;
use libc::c_int;
use std::cell::Cell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::{LazyLock, Mutex, PoisonError};

/// So often the same line is printed: a program that tries again and again would fill its log.
const REPEATS_MAX: u32 = 3;
/// So many different lines are told apart.
const LINES_MAX: usize = 4096;

thread_local! {
    // Cells of plain data: a thread's end, also a cancelled one's, has nothing of theirs to drop, and what the program does at its exit finds
    // them. A reason that a cancelled call leaves behind is lost.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static FAILED: Cell<c_int> = const { Cell::new(0) };
    static IS_SAID: Cell<bool> = const { Cell::new(false) };
    static REASON: Cell<Option<ManuallyDrop<String>>> = const { Cell::new(None) };
}

/// Runs the body of a C function by the name of `call`, and prints why it failed, if it does.
#[inline]
pub(crate) fn told<R>(call: &'static str, run: impl FnOnce() -> R) -> R {
    if !env::is_loud() {
        return run();
    }
    told_aloud(call, run)
}

#[cold]
fn told_aloud<R>(call: &'static str, run: impl FnOnce() -> R) -> R {
    let depth = DEPTH.replace(DEPTH.get() + 1);
    if depth == 0 {
        FAILED.set(0);
        set_reason(None);
        IS_SAID.set(false);
    }
    let result = run();
    DEPTH.set(depth);
    if depth == 0 {
        let (errno, reason) = (FAILED.replace(0), set_reason(None));
        if errno != 0 && !is_an_answer(errno) && !IS_SAID.get() {
            say_about(About::Refusal, 0, &line(call, errno, reason.as_deref()));
        }
    }
    result
}

/// Notes that the call in progress fails.
#[inline]
pub(crate) fn failed(errno: c_int) {
    if env::is_loud() {
        FAILED.set(errno);
    }
}

/// Gives the reason why the call in progress fails; without a call, as in a thread of the device's, it is printed at once.
pub(crate) fn because(reason: impl FnOnce() -> String) {
    if !env::is_loud() {
        return;
    }
    if DEPTH.get() == 0 {
        say_once(&reason());
    } else {
        set_reason(Some(reason()));
    }
}

/// Replaces the reason of the call in progress.
fn set_reason(reason: Option<String>) -> Option<String> {
    REASON.replace(reason.map(ManuallyDrop::new)).map(ManuallyDrop::into_inner)
}

/// The reason why the call in progress fails was printed already, as it is without `HIGHWIRE_LOG` too.
pub(crate) fn was_said() {
    IS_SAID.set(true);
}

/// The errno of a refusal, whose reason is given.
pub(crate) fn refused(errno: c_int, reason: impl FnOnce() -> String) -> c_int {
    because(reason);
    errno
}

/// A call of the data path failed.
#[cold]
pub(crate) fn of_data_path<R: Failure>(
    call: &'static str,
    errno: c_int,
    reason: impl FnOnce() -> String,
) -> R {
    if env::is_loud() {
        say_about(About::Refusal, 0, &line(call, errno, Some(&reason())));
    }
    R::failure(errno)
}

/// What a call says that has nothing to give yet, or was interrupted: no refusal.
fn is_an_answer(errno: c_int) -> bool {
    matches!(errno, libc::EAGAIN | libc::EINTR | libc::EINPROGRESS | libc::EALREADY | libc::ETIMEDOUT)
}

fn line(call: &str, errno: c_int, reason: Option<&str>) -> String {
    let name = name_of(errno);
    match reason {
        Some(reason) => format!("{call} fails with {name}: {reason}"),
        None => format!("{call} fails with {name}: {}", usual_cause(errno)),
    }
}

/// Prints a line, unless it was printed often enough.
pub(crate) fn say_once(line: &str) {
    let is_on_purpose = line.starts_with("scenario: ");
    say_about(if is_on_purpose { About::Scenario } else { About::Trouble }, 0, line);
}

/// The same; what the line is about, and its queue pair, are kept in the record.
pub(crate) fn say_about(about: About, qpn: u32, line: &str) {
    static SAID: LazyLock<Mutex<HashMap<String, u32>>> = LazyLock::new(Mutex::default);
    let times = {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= LINES_MAX {
            said.clear();
        }
        let times = said.entry(line.to_string()).or_default();
        *times = times.saturating_add(1);
        *times
    };
    // Without the lock: a terminal that stands still holds up only the thread that prints.
    if times == 1 {
        report::note(line);
        record::note(about, qpn, line);
    }
    match times {
        REPEATS_MAX => env::print(&format!("{line} (said {REPEATS_MAX} times; no more)")),
        times if times < REPEATS_MAX => env::print(&line),
        _ => {}
    }
}

/// What an errno means where nothing more is known.
fn usual_cause(errno: c_int) -> &'static str {
    match errno {
        libc::EINVAL => {
            "an argument is null, is no object of this library, belongs to another device or domain, or has a value that the manual page excludes"
        }
        libc::EOPNOTSUPP => "the device does not have this operation",
        libc::ENOMEM => "the limit of such objects is reached, or memory is short",
        libc::EBUSY => "other objects still use it: destroy those first",
        libc::ENOENT => "there is nothing by that handle or name",
        libc::EPERM => "the object was made before fork() in the parent process, which alone may use it",
        libc::EIO => "the device has failed",
        libc::ENODEV => "there is no such device, or it was taken out",
        _ => "see the manual page",
    }
}

/// An errno's name.
pub(crate) fn name_of(errno: c_int) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EIO => "EIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::ENOSPC => "ENOSPC",
        libc::EPIPE => "EPIPE",
        libc::ENOSYS => "ENOSYS",
        libc::ENODATA => "ENODATA",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::EADDRINUSE => "EADDRINUSE",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ECONNABORTED => "ECONNABORTED",
        libc::ECONNRESET => "ECONNRESET",
        libc::EISCONN => "EISCONN",
        libc::ENOTCONN => "ENOTCONN",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        _ => return format!("errno {errno}"),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_call_the_errno_and_the_reason() {
        let reason = Some("the queue holds 3");
        assert_eq!(
            line("ibv_resize_cq", libc::EINVAL, reason),
            "ibv_resize_cq fails with EINVAL: the queue holds 3"
        );
        assert!(line("ibv_dealloc_pd", libc::EBUSY, None).contains("destroy those first"));
        assert_eq!(line("x", 4095, None), "x fails with errno 4095: see the manual page");
        assert!(is_an_answer(libc::EAGAIN) && !is_an_answer(libc::EINVAL));
    }
}
