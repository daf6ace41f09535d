//! The C library's functions, defined again.
//!
//! Each has the same shape: if its descriptors have nothing to do with a channel, or it does not wait, it is the C library's. Otherwise the
//! verbs library waits, and looks with the C library's function, which then has the results. Where the verbs library says so, or after
//! it, the C library's function sleeps for the time that is left.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::channels::Channels;
use crate::deadline::{Deadline, now};
use crate::help::{self, Help, Helped};
use crate::original;
use crate::sets::{MOST, Sets};

static CHANNELS: Channels = Channels::new();

/// For the verbs library: a channel's descriptor came to be, or is about to go; `help` waits for its events.
#[unsafe(no_mangle)]
extern "C" fn highwire_channel(fd: c_int, is_open: bool, help: Help) {
    help::set(help);
    CHANNELS.note(fd, is_open);
}

/// In the child of a fork: the verbs library's devices are its parent's, so that it waits as the C library does until it opens a channel
/// itself.
pub(crate) extern "C" fn in_child() {
    if help::forget() {
        CHANNELS.forget();
    }
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Calls the C library's function.
macro_rules! original {
    ($name:ident($($arg:expr),*)) => {
        match original::$name.function() {
            // SAFETY: the caller's arguments, or parts of its time.
            Some(function) => unsafe { function($($arg),*) },
            None => fail(libc::ENOSYS),
        }
    };
}

/// A call that is waited for with help: what it has found so far.
struct Call<F> {
    /// Calls the C library's function without waiting.
    look: F,
    result: c_int,
    errno: c_int,
}

impl<F: Fn() -> c_int> Call<F> {
    /// The call's result, unless the C library's function is to do the rest.
    fn wait(look: F, channel: c_int, fds: (*const pollfd, nfds_t), deadline: Deadline) -> Option<c_int> {
        let mut call = Call { look, result: 0, errno: errno() };
        let this = ptr::from_mut(&mut call).cast::<c_void>();
        // SAFETY: the call and the descriptors live through the wait.
        let helped = unsafe { help::wait(channel, fds, deadline, Self::is_over, this) };
        match helped {
            Helped::Interrupted if call.result == 0 => Some(fail(libc::EINTR)),
            // A set gives an event once: it is the caller's, whatever else ended the wait.
            _ => {
                fail(call.errno);
                (call.result != 0).then_some(call.result)
            }
        }
    }

    /// # Safety
    /// `this` is a call, and no other reference to it is in use.
    unsafe extern "C" fn is_over(this: *mut c_void) -> bool {
        // SAFETY: the caller's promise.
        let call = unsafe { &mut *this.cast::<Self>() };
        if call.result == 0 {
            call.result = (call.look)();
            if call.result < 0 {
                call.errno = errno();
            }
        }
        call.result != 0
    }
}

/// So many entries are read without asking how many the process may have: a system call for each call that is shorter would cost too much.
const ALWAYS_ALLOWED: nfds_t = 64;

/// The kernel refuses longer arrays, and does not look at them.
fn most_descriptors() -> nfds_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur.min(c_int::MAX as nfds_t)
}

/// The caller's descriptors; none where the kernel refuses them.
///
/// # Safety
/// As the C library's: the array is as long as the caller says.
unsafe fn entries<'a>(fds: *mut pollfd, count: nfds_t) -> &'a [pollfd] {
    if fds.is_null() || (count > ALWAYS_ALLOWED && count > most_descriptors()) {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(fds, count as usize) }
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let mut timeout = timeout;
    if timeout != 0 {
        // SAFETY: the caller's promise.
        let entries = unsafe { entries(fds, count) };
        if let Some(channel) = CHANNELS.among(entries) {
            let deadline = Deadline::after_ms(now(), timeout);
            let look = || original!(poll(fds, count, 0));
            if let Some(result) = Call::wait(look, channel, (fds.cast_const(), count), deadline) {
                return result;
            }
            timeout = deadline.left_ms(now());
        }
    }
    original!(poll(fds, count, timeout))
}

/// As the C library's: `poll`, where the compiler knows that the array may be too short.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    size: size_t,
) -> c_int {
    if size / size_of::<pollfd>() < count as usize {
        return original!(poll_chk(fds, count, timeout, size));
    }
    // SAFETY: the caller's promise.
    unsafe { poll(fds, count, timeout) }
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let (entries, time) = unsafe { (entries(fds, count), timeout.as_ref()) };
    // With a mask it is the kernel that lets signals in while the thread sleeps, and only then.
    if mask.is_null()
        && let Some(channel) = CHANNELS.among(entries)
        && let Some(deadline) = Deadline::after(now(), time)
    {
        let look = || original!(ppoll(fds, count, &timespec { tv_sec: 0, tv_nsec: 0 }, ptr::null()));
        if let Some(result) = Call::wait(look, channel, (fds.cast_const(), count), deadline) {
            return result;
        }
        let left = deadline.left_as_time(now());
        let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
        return original!(ppoll(fds, count, left, mask));
    }
    original!(ppoll(fds, count, timeout, mask))
}

/// As the C library's: `ppoll`, where the compiler knows that the array may be too short.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    size: size_t,
) -> c_int {
    if size / size_of::<pollfd>() < count as usize {
        return original!(ppoll_chk(fds, count, timeout, mask, size));
    }
    // SAFETY: the caller's promise.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// A call of `select` that has a channel among its descriptors.
struct Selection {
    count: c_int,
    sets: [*mut fd_set; 3],
    asked: Sets,
    channel: c_int,
}

impl Selection {
    /// # Safety
    /// As the C library's: sets that are given hold so many descriptors.
    unsafe fn with_channel(count: c_int, sets: [*mut fd_set; 3]) -> Option<Selection> {
        // SAFETY: the caller's promise.
        let asked = unsafe { Sets::read(count, sets) }?;
        let channel = asked.channel(&CHANNELS)?;
        Some(Selection { count, sets, asked, channel })
    }

    /// The call's result, unless the C library's function is to do the rest.
    fn wait(&self, deadline: Deadline) -> Option<c_int> {
        let mut room = [const { MaybeUninit::uninit() }; MOST];
        let fds = self.asked.polled(&mut room);
        let look = || {
            // The function clears what is not ready, also where nothing is.
            let mut found = self.asked;
            let [read, write, except] = found.pointers();
            let mut no_time = timeval { tv_sec: 0, tv_usec: 0 };
            let result = original!(select(self.count, read, write, except, &raw mut no_time));
            if result > 0 {
                // SAFETY: they were read there.
                unsafe { found.write(self.sets) };
            }
            result
        };
        Call::wait(look, self.channel, (fds.as_ptr(), fds.len() as nfds_t), deadline)
    }
}

/// As the C library's, which on Linux says how much time is left.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let time = unsafe { timeout.as_ref() };
    if time.is_none_or(|time| (time.tv_sec, time.tv_usec) != (0, 0))
        // SAFETY: as above.
        && let Some(selection) = unsafe { Selection::with_channel(count, [read, write, except]) }
        && let Some(deadline) = Deadline::after_timeval(now(), time)
    {
        let found = selection.wait(deadline);
        let Some(mut left) = deadline.left_as_timeval(now()) else {
            return found.unwrap_or_else(|| original!(select(count, read, write, except, ptr::null_mut())));
        };
        let result = found.unwrap_or_else(|| original!(select(count, read, write, except, &raw mut left)));
        // SAFETY: there is a deadline, so the caller has given a time.
        unsafe { *timeout = left };
        return result;
    }
    original!(select(count, read, write, except, timeout))
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let time = unsafe { timeout.as_ref() };
    if mask.is_null()
        && time.is_none_or(|time| (time.tv_sec, time.tv_nsec) != (0, 0))
        // SAFETY: as above.
        && let Some(selection) = unsafe { Selection::with_channel(count, [read, write, except]) }
        && let Some(deadline) = Deadline::after(now(), time)
    {
        if let Some(result) = selection.wait(deadline) {
            return result;
        }
        let left = deadline.left_as_time(now());
        let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
        return original!(pselect(count, read, write, except, left, mask));
    }
    original!(pselect(count, read, write, except, timeout, mask))
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let result = original!(epoll_ctl(set, what, fd, event));
    if result == 0 && what == libc::EPOLL_CTL_ADD {
        CHANNELS.note_added(set, fd);
    }
    result
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    let mut timeout = timeout;
    if timeout != 0
        && let Some(channel) = CHANNELS.of(set)
    {
        let deadline = Deadline::after_ms(now(), timeout);
        let look = || original!(epoll_wait(set, events, max, 0));
        let entry = pollfd { fd: set, events: libc::POLLIN, revents: 0 };
        if let Some(result) = Call::wait(look, channel, (&raw const entry, 1), deadline) {
            return result;
        }
        timeout = deadline.left_ms(now());
    }
    original!(epoll_wait(set, events, max, timeout))
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if mask.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { epoll_wait(set, events, max, timeout) };
    }
    original!(epoll_pwait(set, events, max, timeout, mask))
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let time = unsafe { timeout.as_ref() };
    if mask.is_null()
        && let Some(channel) = CHANNELS.of(set)
        && let Some(deadline) = Deadline::after(now(), time)
    {
        let look = || original!(epoll_wait(set, events, max, 0));
        let entry = pollfd { fd: set, events: libc::POLLIN, revents: 0 };
        if let Some(result) = Call::wait(look, channel, (&raw const entry, 1), deadline) {
            return result;
        }
        let left = deadline.left_as_time(now());
        let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
        return original!(epoll_pwait2(set, events, max, left, mask));
    }
    original!(epoll_pwait2(set, events, max, timeout, mask))
}

/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    CHANNELS.note_closed(fd);
    original!(close(fd))
}
