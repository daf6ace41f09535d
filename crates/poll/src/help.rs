//! How the verbs library helps a thread that waits.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, nfds_t, pollfd};

use crate::deadline::{Deadline, now};

/// Looks whether the call is over. It is not called again once it has said so.
pub(crate) type Look = unsafe extern "C" fn(call: *mut c_void) -> bool;
/// The verbs library's wait: for a channel, on these descriptors, for so many nanoseconds at most, with a look and its call.
pub(crate) type Help = unsafe extern "C" fn(c_int, *const pollfd, nfds_t, i64, Look, *mut c_void) -> c_int;

/// The call must sleep on its descriptors itself.
const SLEEP: c_int = 0;
/// The look has said that the call is over.
const OVER: c_int = 1;
/// A signal was handled.
const INTERRUPTED: c_int = 3;

/// The longest part of a wait: between two parts a thread can be cancelled.
const PART: i64 = 1_000_000_000;

static HELP: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn set(help: Help) {
    HELP.store(help as *mut c_void, Ordering::Release);
}

/// Nothing helps any more. Says whether something did.
pub(crate) fn forget() -> bool {
    !HELP.swap(ptr::null_mut(), Ordering::AcqRel).is_null()
}

/// How a wait with help ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Helped {
    /// The look has the result.
    Over,
    /// EINTR.
    Interrupted,
    /// The C library's function has to do the rest.
    Not,
}

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    /// Unwinds the stack if the thread was cancelled.
    fn pthread_testcancel();
}

const CANCEL_DISABLE: c_int = 1;

/// Waits with the verbs library's help until the deadline. `call` is what `look` gets.
///
/// # Safety
/// `fds` is an array of that length, and `look` may be called with `call`.
pub(crate) unsafe fn wait(
    channel: c_int,
    (fds, count): (*const pollfd, nfds_t),
    deadline: Deadline,
    look: Look,
    call: *mut c_void,
) -> Helped {
    let help = HELP.load(Ordering::Acquire);
    if help.is_null() {
        return Helped::Not;
    }
    // SAFETY: `set` has stored a function of this type.
    let help = unsafe { std::mem::transmute::<*mut c_void, Help>(help) };
    loop {
        // As the C library's functions do before they wait: a thread that finds its events here each time can be cancelled, too.
        // SAFETY: no frame of this object has anything to drop.
        unsafe { pthread_testcancel() };
        let left = deadline.left(now());
        if left == Some(0) {
            return Helped::Not;
        }
        let part = left.map_or(PART, |left| left.min(PART));
        let (mut before, mut helping) = (0, 0);
        // SAFETY: both states live through the calls. A thread that is cancelled inside would leave the seat of the leader taken.
        let result = unsafe {
            pthread_setcancelstate(CANCEL_DISABLE, &raw mut before);
            let result = help(channel, fds, count, part, look, call);
            pthread_setcancelstate(before, &raw mut helping);
            result
        };
        match result {
            OVER => return Helped::Over,
            INTERRUPTED => return Helped::Interrupted,
            SLEEP => return Helped::Not,
            // The part is over.
            _ => {}
        }
    }
}
