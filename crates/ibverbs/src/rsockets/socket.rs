//! Sockets by number, and how threads wait for them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libc::c_int;

use super::stream::{State, Stream};
use crate::events::pass_event;

/// The socket behind a number.
#[derive(Clone)]
pub(super) enum Socket {
    /// A stream over RDMA.
    Stream(Arc<Mutex<Stream>>),
    /// A datagram socket, which is the kernel's.
    Datagram,
}

static SOCKETS: LazyLock<RwLock<HashMap<c_int, Socket>>> = LazyLock::new(RwLock::default);

/// The socket of that number.
///
/// # Errors
/// EBADF for any other number.
pub(super) fn find(fd: c_int) -> Result<Socket, c_int> {
    SOCKETS.read().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned().ok_or(libc::EBADF)
}

/// Keeps a socket under its number.
pub(super) fn keep(fd: c_int, socket: Socket) {
    SOCKETS.write().unwrap_or_else(PoisonError::into_inner).insert(fd, socket);
}

/// Forgets a number.
pub(super) fn forget(fd: c_int) -> Option<Socket> {
    SOCKETS.write().unwrap_or_else(PoisonError::into_inner).remove(&fd)
}

pub(super) fn lock(stream: &Mutex<Stream>) -> MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a thread looks again and again before it sleeps.
const SPIN: Duration = Duration::from_micros(10);
/// How long it then waits for completions alone, as a thread that blocks on a completion channel, which may
/// poll. Events of the connection management are seen after that.
pub(super) const BLOCK: Duration = Duration::from_millis(1);
/// How long it sleeps where another thread may take its wake-up.
const NAP_MS: c_int = 20;

/// Waits until `is_ready`, and returns with the stream locked.
///
/// # Errors
/// EAGAIN if it would have to wait and may not, EINTR for a signal, or the stream's failure.
pub(super) fn wait<'a>(
    stream: &'a Mutex<Stream>,
    may_wait: bool,
    is_ready: impl Fn(&Stream) -> bool,
) -> Result<MutexGuard<'a, Stream>, c_int> {
    let begin = Instant::now();
    let mut has_blocked = false;
    loop {
        let mut guard = lock(stream);
        guard.progress();
        if is_ready(&guard) {
            return Ok(guard);
        }
        if let State::Failed(errno) = guard.state {
            return Err(errno);
        }
        if !may_wait {
            return Err(libc::EAGAIN);
        }
        if begin.elapsed() < SPIN {
            drop(guard);
            std::hint::spin_loop();
            continue;
        }
        guard.arm();
        // A completion from before the queue was armed brings no event.
        guard.progress();
        if is_ready(&guard) || matches!(guard.state, State::Failed(_)) {
            continue;
        }
        if !std::mem::replace(&mut has_blocked, true) && guard.waiters == 0 {
            drop(guard);
            block(stream)?;
            continue;
        }
        guard.waiters += 1;
        let timeout = if guard.waiters > 1 { NAP_MS } else { -1 };
        let mut fds = guard.descriptors().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        drop(guard);
        // SAFETY: the array lives through the call.
        let woken = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
        let errno = super::c::last_errno();
        let mut guard = lock(stream);
        guard.waiters -= 1;
        guard.disarm();
        if woken < 0 {
            return Err(errno);
        }
    }
}

/// Blocks on the completion channel of a stream that is armed, for [`BLOCK`] at most.
///
/// # Errors
/// EINTR for a signal.
pub(super) fn block(stream: &Mutex<Stream>) -> Result<(), c_int> {
    let mut guard = lock(stream);
    let Some(channel) = guard.pipe.as_ref().map(|pipe| pipe.channel) else { return Ok(()) };
    guard.waiters += 1;
    drop(guard);
    let passed = pass_event(channel, BLOCK);
    lock(stream).waiters -= 1;
    match passed {
        // Closed by another thread meanwhile: the caller sees that for itself.
        Ok(_) | Err(libc::EINVAL) => Ok(()),
        Err(errno) => Err(errno),
    }
}
