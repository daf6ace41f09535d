//! Connections of a listening stream that `raccept` has not taken.
//!
//! They are accepted when they are asked for, as a kernel's TCP does: a peer's `rconnect` returns, and what it sends
//! waits for the program. Beyond the backlog, requests stay with connection management, whose peers wait or give up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::c;
use super::socket::lock;
use super::stream::{State, Stream, private_data};
use super::wire::Hello;
use crate::rdmacm::abi::rdma_cm_event;

/// Connections that wait at most, whatever `rlisten` says.
const BACKLOG_MAX: usize = 4096;

/// What waits at a listening stream.
#[derive(Default)]
pub(super) struct Listening {
    /// Connections that may wait, less one.
    backlog: usize,
    /// Accepted, and not yet confirmed by their peers.
    begun: Vec<Arc<Mutex<Stream>>>,
    /// For `raccept`.
    ready: VecDeque<Arc<Mutex<Stream>>>,
}

impl Listening {
    /// A negative backlog is as many as may wait.
    pub(super) fn set_backlog(&mut self, backlog: libc::c_int) {
        self.backlog = usize::try_from(backlog).unwrap_or(BACKLOG_MAX).min(BACKLOG_MAX);
    }

    pub(super) fn has_room(&self) -> bool {
        self.begun.len() + self.ready.len() <= self.backlog
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The connection that has waited longest.
    pub(super) fn take(&mut self) -> Option<Arc<Mutex<Stream>>> {
        let stream = self.ready.pop_front()?;
        lock(&stream).changes.leave();
        Some(stream)
    }

    /// Gives up what waits; the caller drops it.
    pub(super) fn clear(&mut self) -> Vec<Arc<Mutex<Stream>>> {
        self.begun.drain(..).chain(self.ready.drain(..)).collect()
    }
}

impl Stream {
    /// Accepts a request, or refuses it if it is none for a stream, or this one listens no more.
    pub(super) fn take_request(&mut self, event: *mut rdma_cm_event) {
        // SAFETY: the event is ours until it is acknowledged; its private data lies behind it.
        let (id, peer) = unsafe { ((*event).id, Hello::parse(private_data(&*event))) };
        // SAFETY: as above.
        unsafe { c::rdma_ack_cm_event(event) };
        let Some(peer) = peer.filter(|_| self.state == State::Listening) else {
            // SAFETY: no other code has the identifier. The peer is refused.
            unsafe { c::rdma_destroy_id(id) };
            return;
        };
        match Stream::answer(self, id, peer) {
            Ok(stream) => self.listening.begun.push(Arc::new(Mutex::new(stream))),
            Err(errno) => crate::env::log(|| format!("a connection is refused: errno {errno}")),
        }
    }

    /// Looks at connections that have begun. Returns whether there is a new one for `raccept`.
    pub(super) fn take_connections(&mut self) -> bool {
        let before = self.listening.ready.len();
        for stream in std::mem::take(&mut self.listening.begun) {
            let state = {
                let mut stream = lock(&stream);
                stream.progress();
                stream.state
            };
            match state {
                State::Connecting => self.listening.begun.push(stream),
                // Its peer has gone before the connection was made.
                State::Failed(_) => {}
                _ => self.listening.ready.push_back(stream),
            }
        }
        self.listening.ready.len() > before
    }
}
