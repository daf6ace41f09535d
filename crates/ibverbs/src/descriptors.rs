//! Programs that sleep on a channel's descriptor in `poll` or `epoll_wait`: below `highwire run` an object is preloaded that takes these
//! functions over (`crates/poll`), and lets such a thread wait here.

use highwire_host::{CompletionChannel, Descriptors, Outcome};
use libc::{c_int, nfds_t, pollfd};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Duration;

type Look = unsafe extern "C" fn(call: *mut c_void) -> bool;
type Help = unsafe extern "C" fn(c_int, *const pollfd, nfds_t, i64, Look, *mut c_void) -> c_int;
/// The preloaded object's function that learns of channels.
type Note = unsafe extern "C" fn(c_int, bool, Help);

/// The answers of `help`, which the preloaded object knows.
const SLEEP: c_int = 0;
const OVER: c_int = 1;
const LATE: c_int = 2;
const INTERRUPTED: c_int = 3;

static CHANNELS: LazyLock<RwLock<HashMap<c_int, CompletionChannel>>> = LazyLock::new(RwLock::default);

/// The preloaded object, if there is one.
fn note() -> Option<Note> {
    static NOTE: LazyLock<Option<Note>> = LazyLock::new(|| {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"highwire_channel".as_ptr()) };
        // SAFETY: only that object defines the name, as a function of this type.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Note>(found) })
    });
    *NOTE
}

/// Threads that sleep on this channel's descriptor wait here from now on.
pub(crate) fn publish(channel: &CompletionChannel) {
    if let Some(note) = note() {
        let fd = channel.fd().as_raw_fd();
        CHANNELS.write().unwrap_or_else(PoisonError::into_inner).insert(fd, channel.clone());
        // SAFETY: the function's type.
        unsafe { note(fd, true, help) };
    }
}

/// They do not any more.
pub(crate) fn withdraw(channel: &CompletionChannel) {
    if let Some(note) = note() {
        let fd = channel.fd().as_raw_fd();
        // SAFETY: the function's type.
        unsafe { note(fd, false, help) };
        CHANNELS.write().unwrap_or_else(PoisonError::into_inner).remove(&fd);
    }
}

/// Waits for a thread in `poll` or `epoll_wait`.
///
/// # Safety
/// `fds` is an array of that length, and `look` may be called with `call` until this returns.
unsafe extern "C" fn help(
    channel: c_int,
    fds: *const pollfd,
    count: nfds_t,
    nanos: i64,
    look: Look,
    call: *mut c_void,
) -> c_int {
    let channel = CHANNELS.read().unwrap_or_else(PoisonError::into_inner).get(&channel).cloned();
    let Some(channel) = channel else { return SLEEP };
    // Copies, because a look writes into the originals.
    // SAFETY: the caller's promise.
    let fds: Vec<pollfd> = (0..count as usize).map(|index| unsafe { fds.add(index).read() }).collect();
    let is_over = Cell::new(false);
    let is_ready = || {
        // SAFETY: the caller's promise.
        is_over.set(is_over.get() || unsafe { look(call) });
        is_over.get()
    };
    let timeout = u64::try_from(nanos).ok().map(Duration::from_nanos);
    match channel.wait_beside(&Descriptors { fds: &fds, is_ready: &is_ready }, timeout) {
        _ if is_over.get() => OVER,
        Outcome::Interrupted => INTERRUPTED,
        Outcome::TimedOut => LATE,
        Outcome::Over | Outcome::Elsewhere => SLEEP,
    }
}
