//! How many receives a queue holds, for threads that post while another one runs the engine.
//!
//! Such a thread leaves its receive in the ring, which has room beside that of the RNIC's own list: without a count the two
//! together would hold more than the queue was made for, and a completion queue of that size could overflow. A place is free
//! again once the receive has left the RNIC's list, which is before the program can see its completion.

use std::sync::atomic::{AtomicU64, Ordering};

/// The places of one receive queue, private or shared. All numbers but the limit only count.
#[derive(Debug)]
pub(crate) struct ReceiveRoom {
    limit: AtomicU64,
    /// Receives that were taken from the program, wherever they are.
    posted: AtomicU64,
    /// Of these, those that the engine has come to.
    given: AtomicU64,
    /// Of these, those that the RNIC holds no longer.
    done: AtomicU64,
}

impl ReceiveRoom {
    pub(crate) fn new(limit: u32) -> ReceiveRoom {
        let zero = || AtomicU64::new(0);
        ReceiveRoom { limit: AtomicU64::new(limit.into()), posted: zero(), given: zero(), done: zero() }
    }

    /// Takes a place for a receive that is about to be posted; false if there is none.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let mut posted = self.posted.load(Ordering::Relaxed);
        loop {
            // A program that has seen a completion sees the count that was stored before it. Another thread may have gone
            // further than `posted`: then the exchange fails.
            let held = posted.saturating_sub(self.done.load(Ordering::Relaxed));
            if held >= self.limit.load(Ordering::Relaxed) {
                return false;
            }
            match self.posted.compare_exchange_weak(posted, posted + 1, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => posted = now,
            }
        }
    }

    /// The receive was not posted after all.
    pub(crate) fn give_back(&self) {
        self.posted.fetch_sub(1, Ordering::Relaxed);
    }

    /// The engine has come to so many more receives, and the RNIC holds `waiting` now. Called with the lane's token.
    #[inline]
    pub(crate) fn note(&self, come_to: u32, waiting: u32) {
        let given = self.given.load(Ordering::Relaxed) + u64::from(come_to);
        self.given.store(given, Ordering::Relaxed);
        self.done.store(given.saturating_sub(waiting.into()), Ordering::Relaxed);
    }

    /// The queue holds another number of receives from now on.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit.into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_once_the_rnic_has_used_the_receive() {
        let room = ReceiveRoom::new(2);
        assert!(room.take() && room.take() && !room.take());
        // One still lies in the ring, the other one in the RNIC.
        room.note(1, 1);
        assert!(!room.take());
        room.note(1, 1);
        assert!(room.take() && !room.take(), "one was used");
        room.give_back();
        assert!(room.take() && !room.take());
        room.set_limit(3);
        assert!(room.take() && !room.take());
        room.note(2, 0);
        assert!(room.take() && room.take() && room.take() && !room.take(), "all were used");
    }
}
