//! A leader that sleeps on the descriptors of the work itself: the kernel wakes it without the help of
//! another thread.
//!
//! Threads that do the work in passing post to the leader's word, and it must notice these posts too. It
//! sleeps in `ppoll`, not on the word, so the poster rings a bell among its descriptors. Why no ring is lost:
//! the sleeper says which word is its own, and then counts itself a sleeper of that word; a poster counts its
//! post there, and only if it saw a sleeper looks whose word this is. One of the two counts comes first:
//! either the poster sees all that the sleeper wrote before, or the sleeper sees the post and does not sleep.

use crate::sync::{AtomicU64, Ordering};
use crate::word::{Posted, Slept, WakeWord};
use crate::world::may_switch;

/// The thread that sleeps on the descriptors of the work. Only one can: it takes the seat first.
#[derive(Debug, Default)]
pub struct Rest {
    /// The word of that thread, zero if there is none.
    word: AtomicU64,
}

impl Rest {
    /// Sleeps in `sleep`, unless `word` has more posts than `seen`. The bell must be able to end the sleep
    /// from before this call.
    pub fn sleep(&self, word: &WakeWord, seen: u32, sleep: impl FnOnce() -> Slept) -> Slept {
        // SeqCst, as in `is_taken`: a thread that stays away while another rests says so before it looks.
        self.word.store(name(word), Ordering::SeqCst);
        may_switch();
        let slept = word.sleep_elsewhere(seen, sleep);
        self.word.store(0, Ordering::SeqCst);
        slept
    }

    /// Whether the poster must ring the bell after this post.
    #[inline]
    pub fn is_to_be_rung(&self, word: &WakeWord, posted: Posted) -> bool {
        // Relaxed: the post and the sleeper's count change one word, so the post saw all that came before
        // that count.
        posted == Posted::Woke && self.word.load(Ordering::Relaxed) == name(word)
    }

    /// Whether a thread rests.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.word.load(Ordering::SeqCst) != 0
    }
}

fn name(word: &WakeWord) -> u64 {
    std::ptr::from_ref(word).addr() as u64
}
