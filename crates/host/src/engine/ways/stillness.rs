//! How long a sender waits for a neighbour that takes nothing.
//!
//! A neighbour that has stopped, or does not look, holds up other peers only for a moment. For a neighbour that wants to run
//! and gets no processor the sender waits ten times as long: on a busy machine that is common, and packets of UC and UD that
//! are lost are not repeated.

use highwire_stdx::{Duration, Instant};

/// On a busy machine a process that wants to run may wait for tens of milliseconds.
const PATIENCE: Duration = Duration::from_millis(250);
/// The patience with a process that wants to run.
const PATIENCE_WITH_THE_STARVED: Duration = Duration::from_millis(2_500);
/// How often to ask the kernel whether the process still wants to run.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Since when a neighbour has taken nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stillness {
    since: Instant,
    /// When the kernel was last asked about the neighbour's process, and its answer.
    asked: Instant,
    wants_to_run: bool,
}

impl Stillness {
    /// The neighbour has just taken something.
    pub(super) fn new(now: Instant) -> Stillness {
        Stillness { since: now, asked: Instant::ZERO, wants_to_run: false }
    }

    /// The neighbour has taken something again.
    pub(super) fn on_moved(&mut self, now: Instant) {
        *self = Stillness::new(now);
    }

    /// Whether it is still worth waiting. `wants_to_run` is called rarely, and not at first.
    pub(super) fn is_waited_for(&mut self, now: Instant, wants_to_run: impl FnOnce() -> bool) -> bool {
        let still = now.saturating_since(self.since);
        if still < PATIENCE || still >= PATIENCE_WITH_THE_STARVED {
            return still < PATIENCE;
        }
        if now.saturating_since(self.asked) >= ASK_EVERY {
            (self.asked, self.wants_to_run) = (now, wants_to_run());
        }
        self.wants_to_run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_neighbour_that_does_not_want_to_run_is_waited_for_once_and_shortly() {
        let mut stillness = Stillness::new(at(1_000));
        assert!(stillness.is_waited_for(at(1_249), || panic!("it is not asked so soon")));
        assert!(!stillness.is_waited_for(at(1_250), || false));
        assert!(!stillness.is_waited_for(at(1_260), || panic!("it is asked rarely")));
        stillness.on_moved(at(1_270));
        assert!(stillness.is_waited_for(at(1_500), || panic!("it is not asked so soon")));
    }

    #[test]
    fn a_neighbour_that_gets_no_processor_is_waited_for_longer_and_not_for_ever() {
        let mut stillness = Stillness::new(at(1_000));
        let mut asked = 0;
        for ms in 1_250..3_500 {
            let is_waited_for = stillness.is_waited_for(at(ms), || {
                asked += 1;
                true
            });
            assert!(is_waited_for, "after {} ms", ms - 1_000);
        }
        assert_eq!(asked, 45);
        assert!(!stillness.is_waited_for(at(3_500), || panic!("its time is over")));
    }
}
