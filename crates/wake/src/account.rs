//! What waiting has cost a channel, and how its waits ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The event was there already.
    Ready,
    /// The waiting thread found it, polling.
    Own,
    /// Another thread found it and woke this one.
    Woken,
    /// The time was up, or a signal ended it.
    InVain,
}

/// The account of one channel. Several threads may wait there.
#[derive(Debug, Default)]
pub struct Account {
    ended: [AtomicU64; 4],
    turns: AtomicU64,
    polled_ns: AtomicU64,
    sleeps: AtomicU64,
    rescues: AtomicU64,
}

impl Account {
    /// Takes note of the end of a wait, the turns that the thread made, and how long they took.
    #[inline]
    pub fn note(&self, kind: Kind, turns: u64, polled: Duration) {
        self.ended[kind as usize].fetch_add(1, Ordering::Relaxed);
        if turns > 0 {
            self.turns.fetch_add(turns, Ordering::Relaxed);
            self.polled_ns.fetch_add(polled.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Takes note of a sleep.
    #[inline]
    pub fn note_sleep(&self) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of an event that lay there when a sleep ended of itself: whoever found it has told nobody.
    #[inline]
    pub fn note_rescue(&self) {
        self.rescues.fetch_add(1, Ordering::Relaxed);
    }

    /// Every figure by name.
    pub fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let of = |kind: Kind| self.ended[kind as usize].load(Ordering::Relaxed);
        each("wakes_ready", of(Kind::Ready));
        each("wakes_own", of(Kind::Own));
        each("wakes_woken", of(Kind::Woken));
        each("wakes_in_vain", of(Kind::InVain));
        each("wake_sleeps", self.sleeps.load(Ordering::Relaxed));
        each("wake_rescues", self.rescues.load(Ordering::Relaxed));
        each("wake_polls", self.turns.load(Ordering::Relaxed));
        each("wake_polled_us", self.polled_ns.load(Ordering::Relaxed) / 1000);
    }
}
