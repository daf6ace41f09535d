//! Sockets by number, and how threads wait for them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libc::c_int;

use super::stream::{State, Stream};
use crate::cancel;

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

/// How long a call may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// Not at all.
    None,
    /// Until then (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
    Until(Instant),
    /// For ever.
    Endless,
}

impl Patience {
    /// The patience of a call with these flags that [waits in parts](cancel::in_parts): all of them together have the time-out.
    pub(super) fn of_parts(
        is_nonblocking: bool,
        flags: c_int,
        timeout: Option<Duration>,
        kept: &mut u64,
    ) -> Patience {
        if is_nonblocking || flags & libc::MSG_DONTWAIT != 0 {
            return Patience::None;
        }
        timeout
            .and_then(|timeout| cancel::first_begin(kept).checked_add(timeout))
            .map_or(Patience::Endless, Patience::Until)
    }
}

/// How long a thread looks again and again before it sleeps.
const SPIN: Duration = Duration::from_micros(10);

/// Waits until `is_ready`, and returns with the stream locked.
///
/// # Errors
/// EAGAIN if it would have to wait longer than it may, EINTR for a signal or the [end of a part](cancel::end_part), or the
/// stream's failure.
pub(super) fn wait<'a>(
    stream: &'a Mutex<Stream>,
    patience: Patience,
    is_ready: impl Fn(&Stream) -> bool,
) -> Result<MutexGuard<'a, Stream>, c_int> {
    let begin = Instant::now();
    loop {
        let mut guard = lock(stream);
        let seen = guard.changes.count();
        guard.progress();
        if is_ready(&guard) {
            return Ok(guard);
        }
        if let State::Failed(errno) = guard.state {
            return Err(errno);
        }
        let left = match patience {
            Patience::None => return Err(libc::EAGAIN),
            Patience::Until(end) => Some(end.saturating_duration_since(Instant::now())),
            Patience::Endless => None,
        };
        if left.is_some_and(|left| left.is_zero()) {
            return Err(libc::EAGAIN);
        }
        if begin.elapsed() < SPIN {
            drop(guard);
            std::hint::spin_loop();
            continue;
        }
        guard.arm();
        // A completion from before the queue was armed brings no event, but this look counts it as a change.
        guard.progress();
        let changes = Arc::clone(&guard.changes);
        drop(guard);
        changes.wait(seen, left)?;
    }
}
