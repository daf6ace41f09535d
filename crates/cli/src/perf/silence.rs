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
    last_check: Option<Instant>,
}

impl Silence {
    /// Counts a fruitless poll. Now and then looks at the clock, and then returns the length of the silence.
    #[inline]
    pub(super) fn grows(&mut self) -> Option<Duration> {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_PER_LOOK) {
            return None;
        }
        Some(self.since.get_or_insert_with(Instant::now).elapsed())
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
