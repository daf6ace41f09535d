//! The word that threads sleep on, one per channel.
//!
//! ```text
//!   63              32 31               0
//!  ┌──────────────────┬──────────────────┐
//!  │ posts so far     │ sleepers         │
//!  └──────────────────┴──────────────────┘
//!    the futex          threads that sleep, or are about to
//! ```
//!
//! Why no wake-up is lost: a waiting thread reads the count of posts, looks for its event, and only then
//! counts itself among the sleepers; a poster makes the event visible and only then counts its post. Both
//! counts are one word, and both steps read the word that they change, so one comes before the other. If the
//! post comes first, the thread sees another count than it had read, and looks again; if the sleeper does,
//! the poster sees it and wakes it. Between the sleeper's count and its sleep the futex takes care: it
//! compares the posts once more.

use crate::sync::{AtomicU64, Gate, Ordering};
use crate::world;
use std::time::{Duration, Instant};

const ONE_POST: u64 = 1 << 32;

/// The threads that may sleep on a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// Threads of this process.
    #[default]
    Process,
    /// Threads of every process that has the word mapped.
    Machine,
}

/// What a post found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// A thread slept, or was about to: it has been woken.
    Woke,
    /// No thread slept. The next thread that looks finds the event by itself.
    NobodySlept,
}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slept {
    /// There was a post, or the sleep ended without reason: look for the event.
    Posted,
    /// The deadline passed.
    TimedOut,
    /// A signal was handled.
    Interrupted,
}

/// A futex with a count of its sleepers: a post without a sleeper makes no system call.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WakeWord {
    word: AtomicU64,
    gate: Gate,
    scope: Scope,
}

impl WakeWord {
    /// A word on which no thread sleeps.
    pub fn new(scope: Scope) -> WakeWord {
        WakeWord { scope, ..WakeWord::default() }
    }

    /// The count of posts, to be read *before* the last look for the event that [`sleep`](Self::sleep) waits
    /// for.
    #[inline]
    pub fn posts(&self) -> u32 {
        // Acquire: the look that follows sees what was made visible before a post that is counted here.
        (self.word.load(Ordering::Acquire) >> 32) as u32
    }

    /// Threads that sleep or are about to.
    #[inline]
    pub fn sleepers(&self) -> u32 {
        self.word.load(Ordering::Acquire) as u32
    }

    /// Says that there is an event for a thread that sleeps here, and wakes one. The event must be visible
    /// before.
    #[inline]
    pub fn post(&self) -> Posted {
        self.post_to(false)
    }

    /// The same for all sleepers.
    #[inline]
    pub fn post_all(&self) -> Posted {
        self.post_to(true)
    }

    #[inline]
    fn post_to(&self, all: bool) -> Posted {
        // Release: the event. Acquire: a sleeper that is seen here had looked before.
        world::may_switch();
        let before = self.word.fetch_add(ONE_POST, Ordering::AcqRel);
        world::may_switch();
        if before as u32 == 0 {
            return Posted::NobodySlept;
        }
        self.gate.wake(&self.word, self.scope == Scope::Machine, all);
        Posted::Woke
    }

    /// Sleeps until there are more posts than `seen`, or until `deadline`. After any end: look for the event
    /// again.
    pub fn sleep(&self, seen: u32, deadline: Option<Instant>) -> Slept {
        self.sleep_elsewhere(seen, || {
            self.gate.sleep(&self.word, seen, self.scope == Scope::Machine, left(deadline))
        })
    }

    /// The same for a thread that sleeps in `sleep` on something other than this word. A post that finds it
    /// counted wakes no thread by itself: the poster asks its [`Rest`](crate::Rest) whether there is such a
    /// thread.
    pub fn sleep_elsewhere(&self, seen: u32, sleep: impl FnOnce() -> Slept) -> Slept {
        world::may_switch();
        let before = self.word.fetch_add(1, Ordering::AcqRel);
        world::may_switch();
        let slept = if (before >> 32) as u32 == seen { sleep() } else { Slept::Posted };
        self.word.fetch_sub(1, Ordering::AcqRel);
        slept
    }
}

/// The time left until `deadline`.
pub(crate) fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(world::now()))
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_post_for_nobody_ends_the_next_sleep() {
        let word = WakeWord::new(Scope::Process);
        let seen = word.posts();
        assert_eq!(word.post(), Posted::NobodySlept);
        assert_eq!(word.sleep(seen, None), Slept::Posted, "it does not sleep at all");
        assert_eq!(word.sleepers(), 0);
        assert_eq!(word.sleep(word.posts(), Some(Instant::now())), Slept::TimedOut);
        assert_eq!(word.sleepers(), 0);
    }

    #[test]
    fn one_post_wakes_a_sleeper_and_posts_to_all_wake_all() {
        for scope in [Scope::Process, Scope::Machine] {
            let word = WakeWord::new(scope);
            let is_there = AtomicBool::new(false);
            std::thread::scope(|threads| {
                for _ in 0..3 {
                    threads.spawn(|| {
                        loop {
                            let seen = word.posts();
                            if is_there.load(Ordering::Acquire) {
                                break;
                            }
                            word.sleep(seen, None);
                        }
                    });
                }
                while word.sleepers() < 3 {
                    std::thread::yield_now();
                }
                is_there.store(true, Ordering::Release);
                assert_eq!(word.post_all(), Posted::Woke);
            });
            assert_eq!(word.sleepers(), 0);
        }
    }

    #[test]
    fn the_count_of_posts_wraps_without_touching_the_sleepers() {
        let word = WakeWord { word: AtomicU64::new(u64::from(u32::MAX) << 32 | 5), ..WakeWord::default() };
        word.post();
        assert_eq!((word.posts(), word.sleepers()), (0, 5));
    }
}
