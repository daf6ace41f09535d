//! The thread that does the work while no other leads, and sleeps while a leader rests.
//!
//! Why this thread does not sleep on when the leader goes: it first says that it relies on the leader, and
//! then looks whether one rests; a leader ends its rest, leaves the seat, and then looks whether a waiter
//! relies on it. A full fence keeps the two steps apart on both sides, so one of the two sees the other. If
//! another leader has the seat by then, that leader looks when it goes.

use crate::rest::Rest;
use crate::seat::Seat;
use crate::sync::{AtomicU64, Ordering, fence};

/// Whether the thread relies on a leader.
#[derive(Debug, Default)]
pub struct Relief {
    /// Not zero: it relies on one.
    is_relieved: AtomicU64,
}

impl Relief {
    /// The thread is about to sleep until the resting leader has gone; false if it has gone already.
    pub fn begin(&self, rest: &Rest) -> bool {
        self.is_relieved.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_relieved = rest.is_taken();
        if !is_relieved {
            self.end();
        }
        is_relieved
    }

    /// The thread is awake.
    pub fn end(&self) {
        self.is_relieved.store(0, Ordering::Relaxed);
    }

    /// Whether the thread sleeps although no thread leads. A thread that may have led asks, after it has left
    /// the seat.
    #[inline]
    pub fn is_forsaken(&self, seat: &Seat) -> bool {
        fence(Ordering::SeqCst);
        self.is_relieved.load(Ordering::Relaxed) != 0 && !seat.is_taken()
    }
}
