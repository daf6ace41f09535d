//! Threads of other devices and processes that poll on this machine, as the user's roster shows them.
//!
//! A thread that polls says so there, and looks whether others poll on its core, every [`LOOK_INTERVAL_NS`] at most. Both cost a few loads
//! and stores and no system call, and touch cache lines of this core's threads alone. A thread that polls now and then, for
//! instance once in a millisecond, keeps no core from others and does not say so. One that goes to sleep takes back what it has said.
//!
//! A device joins the roster when one of its threads polls in vain for the first time.

use crate::sys;
use highwire_link::shm::{Poller, Registry, Roster};
use highwire_stdx::Instant;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The time between two looks.
const LOOK_INTERVAL_NS: u64 = 50_000;
/// A thread that takes longer from one look to the next does not poll all the time, or was kept from its core: then the next look is soon.
const RAPID_NS: u64 = 5_000_000;

/// A device's view of the roster.
#[derive(Debug, Default)]
pub(crate) struct Company {
    /// None where there is no directory for it.
    roster: OnceLock<Option<Roster>>,
    /// Looks that have found another thread on the same core.
    met: AtomicU64,
}

/// What a thread has seen at its last look. Several threads may share one: then each sees what the last of them has seen.
#[derive(Debug, Default)]
pub(crate) struct Look {
    at_ns: AtomicU64,
    is_shared: AtomicBool,
    /// The core where the thread last said that it polls, plus one; 0 if it has taken that back.
    said_on: AtomicU32,
}

impl Look {
    /// Whether another thread polled on the same core.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }
}

impl Company {
    /// Whether another thread polls on this thread's core, and says that this one does.
    pub(crate) fn shares_core(&self, look: &Look, now: Instant) -> bool {
        let since = now.as_nanos().saturating_sub(look.at_ns.load(Ordering::Relaxed));
        if since < LOOK_INTERVAL_NS {
            return look.is_shared();
        }
        look.at_ns.store(now.as_nanos(), Ordering::Relaxed);
        let is_shared = self.look_around(look, since < RAPID_NS);
        look.is_shared.store(is_shared, Ordering::Relaxed);
        is_shared
    }

    fn look_around(&self, look: &Look, is_rapid: bool) -> bool {
        let roster = self.roster.get_or_init(|| Roster::join(&Registry::open().ok()?).ok());
        let Some(roster) = roster else { return false };
        let poller = Poller { thread: sys::thread_number(), core: highwire_wake::current_core() };
        let now_ms = sys::machine_time_ms();
        let is_shared = roster.others_here(poller, now_ms) > 0;
        if is_rapid {
            roster.beat(poller, now_ms);
            look.said_on.store(poller.core + 1, Ordering::Relaxed);
        }
        if is_shared {
            self.met.fetch_add(1, Ordering::Relaxed);
        }
        is_shared
    }

    /// This thread is about to sleep.
    pub(crate) fn leave(&self, look: &Look) {
        let said_on = look.said_on.load(Ordering::Relaxed);
        if let Some(core) = said_on.checked_sub(1)
            && let Some(Some(roster)) = self.roster.get()
        {
            look.said_on.store(0, Ordering::Relaxed);
            roster.leave(Poller { thread: sys::thread_number(), core });
        }
    }

    /// How many looks have found another thread on the same core.
    pub(crate) fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// How many threads of this user poll on this machine now, as far as this device has joined the roster.
    pub(crate) fn pollers(&self) -> u64 {
        let roster = self.roster.get().and_then(Option::as_ref);
        roster.map_or(0, |roster| roster.everywhere(sys::machine_time_ms()).into())
    }
}
