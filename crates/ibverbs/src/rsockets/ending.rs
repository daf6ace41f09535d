//! `rshutdown` and `rclose`.
//!
//! Both wait until the peer has everything, because a program may end right afterwards and nothing is sent for it then.
//! They do not wait for a peer that acknowledges nothing, which may be stopped: the background thread keeps what was closed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libc::c_int;

use super::socket::{Socket, forget, lock};
use super::stream::{State, Stream};
use super::wire::Message;
use super::{background, c, epoll};
use crate::cancel;

/// How far a call has come that waits for a peer, and [may wait in parts](cancel::in_parts).
#[derive(Clone, Copy)]
pub(super) struct Settling {
    begin: Instant,
    /// When the peer acknowledged the last time, and how much was left then.
    since: Instant,
    left: u32,
}

/// How a wait for a peer ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Yes,
    No,
    /// A [part](cancel::end_part) of it has ended.
    NotYet,
}

/// A stream that has no number any more, between two parts of the call that closes it. It is the background thread's if the thread is cancelled there.
struct Closing(Option<Arc<Mutex<Stream>>>);

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            background::linger(stream);
        }
    }
}

/// How long a peer is waited for that acknowledges nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends one direction or both, as shutdown(2) has it. Threads that wait for the stream learn of it at once.
pub(super) fn shut_down(
    stream: &Mutex<Stream>,
    how: c_int,
    settling: &mut Option<Settling>,
) -> Result<(), c_int> {
    if settling.is_some() {
        settle(stream, None, settling);
        return Ok(());
    }
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
            settle(stream, None, settling);
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
pub(super) fn close(fd: c_int, settling: &mut Option<Settling>) -> Result<(), c_int> {
    if settling.is_some() {
        if let Some(stream) = cancel::take_back::<Closing>().and_then(|mut closing| closing.0.take()) {
            part(stream, settling);
        }
        return Ok(());
    }
    epoll::forget(fd);
    match forget(fd) {
        Some(Socket::Stream(stream)) => {
            end(stream, settling);
            Ok(())
        }
        // SAFETY: the descriptor is the socket's, which other calls no longer find.
        Some(Socket::Datagram) => c::done(unsafe { libc::close(fd) }),
        None => epoll::close(fd),
    }
}

/// Ends a stream that has no number any more. Threads that are in a call on it return.
fn end(stream: Arc<Mutex<Stream>>, settling: &mut Option<Settling>) {
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
        State::Connected | State::Ended => part(stream, settling),
        State::Listening => stop_listening(&stream),
        State::Connecting => give_up(&stream),
        State::Fresh | State::Failed(_) => {}
    }
}

/// Waits for the peer of a stream that is being closed.
fn part(stream: Arc<Mutex<Stream>>, settling: &mut Option<Settling>) {
    let linger = lock(&stream).options.linger;
    match settle(&stream, linger, settling) {
        Settled::Yes => {}
        Settled::No if linger.is_some() => {}
        Settled::No => background::linger(stream),
        Settled::NotYet => cancel::put_aside(Closing(Some(stream))),
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
fn settle(stream: &Mutex<Stream>, linger: Option<Duration>, settling: &mut Option<Settling>) -> Settled {
    let begin = Instant::now();
    let state = settling.get_or_insert(Settling { begin, since: begin, left: u32::MAX });
    loop {
        let mut guard = lock(stream);
        let seen = guard.changes.count();
        if guard.is_settled() {
            return Settled::Yes;
        }
        let now = Instant::now();
        let left = guard.unacknowledged();
        if left != state.left {
            (state.since, state.left) = (now, left);
        }
        let rest = match linger {
            Some(linger) => (state.begin + linger).saturating_duration_since(now),
            None => (state.since + PATIENCE).saturating_duration_since(now),
        };
        if rest.is_zero() {
            return Settled::No;
        }
        guard.arm();
        guard.progress();
        let changes = Arc::clone(&guard.changes);
        drop(guard);
        let _ = changes.wait(seen, Some(rest));
        if cancel::is_part_over() {
            return Settled::NotYet;
        }
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
