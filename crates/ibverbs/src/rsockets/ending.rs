//! `rshutdown` and `rclose`.
//!
//! Both wait until the peer has everything, because a program may end right afterwards and nothing is sent for it then.
//! They do not wait for a peer that acknowledges nothing, which may be stopped: the attendant keeps what was closed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libc::c_int;

use super::socket::{Socket, forget, lock};
use super::stream::{State, Stream};
use super::wire::Message;
use super::{attendant, c, epoll};

/// How long a peer is waited for that acknowledges nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends one direction or both, as shutdown(2) has it. Threads that wait for the stream learn of it at once.
pub(super) fn shut_down(stream: &Mutex<Stream>, how: c_int) -> Result<(), c_int> {
    if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
        return Err(libc::EINVAL);
    }
    let state = {
        let mut guard = lock(stream);
        guard.progress();
        let state = guard.state;
        if state == State::Connected {
            guard.shut(how);
            guard.changes.note();
        }
        state
    };
    match state {
        State::Connected => {
            settle(stream, None);
            Ok(())
        }
        State::Ended => Ok(()),
        State::Listening if how != libc::SHUT_WR => {
            stop_listening(stream);
            Ok(())
        }
        State::Listening => Ok(()),
        State::Connecting => {
            give_up(stream);
            Ok(())
        }
        State::Fresh | State::Failed(_) => Err(libc::ENOTCONN),
    }
}

/// Closes what has that number, a set of `repoll_create` included.
pub(super) fn close(fd: c_int) -> Result<(), c_int> {
    epoll::forget(fd);
    match forget(fd) {
        Some(Socket::Stream(stream)) => {
            end(stream);
            Ok(())
        }
        // SAFETY: the descriptor is the socket's, which other calls no longer find.
        Some(Socket::Datagram) => c::done(unsafe { libc::close(fd) }),
        None => epoll::close(fd),
    }
}

/// Ends a stream that has no number any more. Threads that are in a call on it return.
fn end(stream: Arc<Mutex<Stream>>) {
    let (state, linger) = {
        let mut guard = lock(&stream);
        guard.progress();
        if guard.state == State::Connected {
            guard.shut(libc::SHUT_RDWR);
            guard.changes.note();
        }
        (guard.state, guard.options.linger)
    };
    match state {
        State::Connected | State::Ended if linger == Some(Duration::ZERO) => {}
        State::Connected | State::Ended => {
            if !settle(&stream, linger) && linger.is_none() {
                attendant::linger(stream);
            }
        }
        State::Listening => stop_listening(&stream),
        State::Connecting => give_up(&stream),
        State::Fresh | State::Failed(_) => {}
    }
}

/// Refuses who waits to be accepted.
fn stop_listening(stream: &Mutex<Stream>) {
    let refused = {
        let mut guard = lock(stream);
        guard.end_listening();
        guard.changes.note();
        guard.listening.clear()
    };
    drop(refused);
}

/// Ends a connection that is being made.
fn give_up(stream: &Mutex<Stream>) {
    let mut guard = lock(stream);
    guard.state = State::Failed(libc::ECONNABORTED);
    guard.changes.note();
}

/// Waits until the peer has everything, or acknowledges nothing for a while; with `linger` not longer than that. Returns
/// whether it has. A signal changes nothing, as with a kernel's close.
fn settle(stream: &Mutex<Stream>, linger: Option<Duration>) -> bool {
    let begin = Instant::now();
    let (mut since, mut before) = (begin, u32::MAX);
    loop {
        let mut guard = lock(stream);
        let seen = guard.changes.count();
        if guard.is_settled() {
            return true;
        }
        let now = Instant::now();
        let left = guard.unacknowledged();
        if left != before {
            (since, before) = (now, left);
        }
        let rest = match linger {
            Some(linger) => (begin + linger).saturating_duration_since(now),
            None => (since + PATIENCE).saturating_duration_since(now),
        };
        if rest.is_zero() {
            return false;
        }
        guard.arm();
        guard.progress();
        let changes = Arc::clone(&guard.changes);
        drop(guard);
        let _ = changes.wait(seen, Some(rest));
    }
}

impl Stream {
    /// Ends a direction or both of a connected stream; the peer is told as soon as that can be done.
    fn shut(&mut self, how: c_int) {
        let (was_readable, was_writable) = (self.is_readable, self.is_writable);
        if how != libc::SHUT_WR {
            self.is_readable = false;
        }
        if how != libc::SHUT_RD {
            self.is_writable = false;
        }
        let message = match (self.is_readable, self.is_writable) {
            (false, false) if was_readable || was_writable => Message::Disconnect,
            (true, false) if was_writable => Message::Shutdown,
            _ => return,
        };
        self.unsent_end = Some(message);
        self.send_end();
    }

    fn end_listening(&mut self) {
        self.state = State::Ended;
    }
}
