//! Threads that wait in `poll` or `epoll_wait`, for a channel's descriptor among others.
//!
//! Such a thread leads like one that blocks on the channel, and meanwhile looks at its descriptors now and then. Where another thread
//! leads it ends its wait here, and sleeps on its descriptors.

use super::lanes::Lanes;
use super::{Sleepers, Waiting};
use crate::device::Shared;
use highwire_wake::{Outcome, Slept, Turn, Wait, WakeWord, Work, world};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Turns between two looks at the program's descriptors, if no turn has told of an event: about 10 µs.
const TURNS_PER_LOOK: u32 = 32;

/// How often queues may be armed between two such waits: a thread that is back from `epoll_wait` takes the events of several channels.
const ARMED_BETWEEN_MAX: u8 = 64;

/// What a thread waits for in `poll` or `epoll_wait`.
pub struct Descriptors<'a> {
    /// The descriptors, as `poll` takes them; for `epoll_wait` the set's own, with `POLLIN`.
    pub fds: &'a [libc::pollfd],
    /// Looks whether one of them is ready, or the call has failed. It is not called again once it has said so.
    pub is_ready: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Descriptors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptors").field("count", &self.fds.len()).finish_non_exhaustive()
    }
}

/// The lanes, and a look at the descriptors.
struct Beside<'a> {
    lanes: Lanes<'a>,
    waiting: &'a Waiting,
    /// The thread's own word: a post makes it look.
    word: &'a WakeWord,
    told: Cell<u64>,
    turns: Cell<u32>,
}

impl Work for Beside<'_> {
    fn turn(&self) -> Turn {
        let turn = self.lanes.turn();
        let (told, turns) = (self.waiting.told(), self.turns.get().wrapping_add(1));
        self.turns.set(turns);
        if self.told.replace(told) != told || turns.is_multiple_of(TURNS_PER_LOOK) {
            self.word.post();
        }
        turn
    }

    fn hand_over(&self) {
        self.lanes.hand_over();
    }

    fn sleeps_elsewhere(&self) -> bool {
        true
    }

    fn shares_core(&self) -> bool {
        self.lanes.shares_core()
    }

    fn make_way(&self) {
        self.lanes.make_way();
    }

    fn leave_to_leader(&self) {
        self.lanes.leave_to_leader();
    }

    fn rest(&self, word: &WakeWord, seen: u32, deadline: Option<Instant>) -> Option<Slept> {
        self.lanes.rest(word, seen, deadline)
    }
}

impl Waiting {
    /// Waits until a descriptor is ready, or this thread is to sleep on them itself.
    pub(crate) fn wait_beside(
        &self,
        device: &Shared,
        sleepers: &Sleepers,
        wanted: &Descriptors<'_>,
        timeout: Option<Duration>,
    ) -> Outcome {
        let word = WakeWord::default();
        let work = Beside {
            lanes: Lanes::beside(device, wanted.fds),
            waiting: self,
            word: &word,
            told: Cell::new(self.told()),
            turns: Cell::new(0),
        };
        let deadline = timeout.and_then(|timeout| world::now().checked_add(timeout));
        let (account, is_over) = (&*sleepers.account, wanted.is_ready);
        let outcome = self.run(&Wait { word: &word, place: None, account, is_over, work: &work, deadline });
        self.beside.store(ARMED_BETWEEN_MAX, Ordering::Relaxed);
        outcome
    }
}
