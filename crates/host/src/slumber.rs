//! A long sleep of the background thread. A thread that leaves work behind has to end it.
//!
//! An application thread may set a timer, for instance for a retransmission, and then do something else. The background thread usually sees
//! the timer soon, because it looks every 100 ms. Where nothing has happened for a while it sleeps longer, and announces that first.
//!
//! Why no timer is missed: the sleeper announces its sleep, and then reads the lanes' timers, each under its lane's token. An application
//! thread sets its timer under the same token, and looks for the announcement afterwards. One of the two holds the token first: either the
//! sleeper sees the timer, or the application thread sees the announcement.

use crate::waker::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by the background thread and the lanes. Alone in its cache line: all threads read it all the time, and it is rarely
/// written.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slumber {
    is_deep: AtomicBool,
    waker: Arc<Waker>,
}

impl Slumber {
    pub(crate) fn new(waker: Arc<Waker>) -> Slumber {
        Slumber { is_deep: AtomicBool::new(false), waker }
    }

    /// The background thread is about to look at the lanes, and then to sleep for long.
    pub(crate) fn begin(&self) {
        self.is_deep.store(true, Ordering::Relaxed);
    }

    /// The background thread is awake.
    pub(crate) fn end(&self) {
        self.is_deep.store(false, Ordering::Relaxed);
    }

    /// A thread has run a lane, and may have left something.
    #[inline]
    pub(crate) fn on_visit(&self) {
        if self.is_deep.load(Ordering::Relaxed) {
            self.disturb();
        }
    }

    #[cold]
    fn disturb(&self) {
        if self.is_deep.swap(false, Ordering::Relaxed) {
            self.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::wait_readable;
    use highwire_stdx::Duration;

    #[test]
    fn the_first_visit_ends_a_long_sleep_and_no_other_rings() {
        let waker = Arc::new(Waker::new().expect("a descriptor"));
        let slumber = Slumber::new(Arc::clone(&waker));
        let was_rung = || wait_readable(&[waker.fd()], Some(Duration::ZERO));
        waker.prepare_sleep();
        slumber.on_visit();
        assert!(!was_rung(), "it looks by itself soon");
        slumber.begin();
        slumber.on_visit();
        assert!(was_rung());
        waker.awake();
        slumber.end();
        waker.prepare_sleep();
        slumber.begin();
        slumber.end();
        slumber.on_visit();
        assert!(!was_rung(), "it is awake already");
    }
}
