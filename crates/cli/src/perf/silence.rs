//! Waits for a peer that may have gone: looks at the clock rarely, and at the peer more rarely still.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 4096;
const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// A reliable service reports what it gave up; only a peer that has gone altogether is silent for longer.
const SILENT_AFTER: Duration = Duration::from_secs(20);

/// The length of a silence.
#[derive(Debug, Default)]
pub(super) struct Silence {
    polls: u32,
    since: Option<Instant>,
    /// The thread's processor time when it began.
    time_since: Option<Duration>,
    last_check: Option<Instant>,
}

impl Silence {
    /// Counts a fruitless poll. Now and then looks at the clock, and then returns how long this thread has polled in vain, by its own processor
    /// time: where other programs keep it from its core, they keep the peer from answering, too, and time that passes says nothing.
    #[inline]
    pub(super) fn grows(&mut self) -> Option<Duration> {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_PER_LOOK) {
            return None;
        }
        self.since.get_or_insert_with(Instant::now);
        let time = highwire_wake::thread_time();
        Some(time - *self.time_since.get_or_insert(time))
    }

    /// Ends the silence.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.since.is_some() {
            *self = Self::default();
        }
    }

    /// Checks the peer from time to time, and gives up in the end.
    ///
    /// # Errors
    /// The error of `check_peer`, or that the silence is too long.
    pub(super) fn check(&mut self, check_peer: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now - *self.last_check.get_or_insert(since) > PEER_CHECK_INTERVAL {
            self.last_check = Some(now);
            check_peer()?;
        }
        if now - since > SILENT_AFTER {
            bail!("nothing has happened for {} s although the other end is there", SILENT_AFTER.as_secs());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_as_long_as_the_thread_has_polled_and_not_as_time_has_passed() {
        let mut silence = Silence::default();
        let look = |silence: &mut Silence| (0..POLLS_PER_LOOK).find_map(|_| silence.grows()).expect("a look");
        assert_eq!(look(&mut silence), Duration::ZERO);
        let pause = Duration::from_millis(300);
        std::thread::sleep(pause);
        assert!(look(&mut silence) < pause, "the thread slept and did not poll");
        let begun = highwire_wake::thread_time();
        while highwire_wake::thread_time() - begun < pause {
            std::hint::spin_loop();
        }
        assert!(look(&mut silence) >= pause);
        silence.end();
        assert_eq!(look(&mut silence), Duration::ZERO);
    }
}
