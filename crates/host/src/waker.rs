//! How a thread that sleeps on descriptors is told that there is something to do: the background thread, or a thread that rests.
//!
//! The thread says what it does in a [`Notice`], and sleeps on a descriptor of its own beside the lanes'. A thread that has
//! something for it asks the notice, and rings the descriptor if need be.

use crate::engine::Engine;
use crate::lane::Lane;
use crate::sys::EventFd;
use highwire_stdx::Instant;
use highwire_wake::duty::{Duty, Said};
use highwire_wake::{Announced, Notice, Seat};
use std::io;
use std::os::fd::BorrowedFd;

#[derive(Debug)]
pub(crate) struct Waker {
    event: EventFd,
    notice: Notice,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker { event: EventFd::new()?, notice: Notice::default() })
    }

    /// Ends the sleep, or the one that was announced. Costs a system call only if the thread sleeps. The work must be visible before.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.notice.call() {
            self.event.signal();
        }
    }

    /// The caller may have led, and does not any more. If another thread relied on that, and no other leads, it is told.
    #[inline]
    pub(crate) fn wake_if_forsaken(&self, seat: &Seat) {
        if self.notice.call_if_forsaken(seat) {
            self.event.signal();
        }
    }

    /// The thread is about to look for work a last time, and then to sleep.
    pub(crate) fn announce(&self, duty: Duty, until: Instant) -> Announced {
        self.notice.announce(duty, until)
    }

    /// It has looked; false if it was called meanwhile, and must not sleep.
    pub(crate) fn settle(&self, announced: Announced, duty: Duty, until: Instant) -> bool {
        self.notice.settle(announced, duty, until)
    }

    /// The thread is awake again; `is_rung`: its descriptor was readable. True if another thread has called.
    pub(crate) fn awake(&self, is_rung: bool) -> bool {
        let is_called = self.notice.end();
        // A ring may come late, after the sleep that it was for: it ends the next one, and no more than that.
        if is_called || is_rung {
            self.event.clear();
        }
        is_called
    }

    /// What the thread said last, for one that holds a lane's token.
    #[inline]
    pub(crate) fn said(&self) -> Said {
        self.notice.said()
    }

    /// The same after something that the caller has just done.
    #[inline]
    pub(crate) fn said_after(&self) -> Said {
        self.notice.said_after()
    }

    /// A thread has run a lane, or made another thread run it, and goes on to something else. It may have left a timer there.
    #[inline]
    pub(crate) fn on_visit(&self) {
        if self.notice.said().ends_by_visit() {
            self.wake();
        }
    }

    /// Whether the thread sleeps on all lanes, and wakes before they want to be run. Acknowledgements that were kept for the next
    /// step of the calling thread leave now, if there is no such step.
    pub(crate) fn sees_to(&self, lanes: &[Lane], is_last_step: bool) -> bool {
        lanes.iter().all(|lane| {
            let due = lane.try_run(|engine: &mut Engine| engine.due_after(is_last_step));
            // Another thread runs this lane just now, and may leave work behind.
            due.is_some_and(|due| self.said_after().wakes_before(due))
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::wait_readable;
    use highwire_stdx::Duration;

    const LATER: Instant = Instant::from_nanos(1_000_000_000);

    #[test]
    fn the_first_visit_ends_a_long_sleep_and_no_other_rings() {
        let waker = Waker::new().expect("a descriptor");
        let is_rung = || wait_readable(&[waker.fd()], Some(Duration::ZERO));
        for duty in Duty::ALL.into_iter().filter(|duty| duty.rules().longest.is_some()) {
            let announced = waker.announce(duty, LATER);
            waker.on_visit();
            assert_eq!(is_rung(), duty.rules().ends_by_visit, "{duty:?}");
            assert_eq!(waker.settle(announced, duty, LATER), !is_rung());
            assert_eq!(waker.awake(false), duty.rules().ends_by_visit);
            assert!(!is_rung());
            waker.on_visit();
            assert!(!is_rung(), "it is awake already");
        }
    }

    #[test]
    fn a_ring_that_comes_late_ends_one_sleep_and_no_more() {
        let waker = Waker::new().expect("a descriptor");
        let is_rung = || wait_readable(&[waker.fd()], Some(Duration::ZERO));
        let _ = waker.announce(Duty::Watching, LATER);
        // The caller has been kept from its core before it rings, and the sleep ends otherwise.
        assert!(waker.notice.call());
        assert!(waker.awake(false));
        waker.event.signal();
        let _ = waker.announce(Duty::Watching, LATER);
        assert!(is_rung());
        assert!(!waker.awake(true));
        assert!(!is_rung(), "the next sleep is not ended");
    }
}
