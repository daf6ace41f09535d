//! Pauses between attempts to find a node that answers.
//!
//! The first attempt at each door needs none: a node that is lost should not be felt. After that a pause doubles with each failure,
//! up to a limit, and has a random part, so that the clients of a node that comes back, or of one that is full, do not all come at once.

use highwire_stdx::Rng;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Backoff {
    rng: Rng,
    /// Attempts that have failed since the last one that worked.
    failures: usize,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Backoff {
        Backoff { rng: Rng::new(seed), failures: 0 }
    }

    pub(super) fn has_failed(&mut self) {
        self.failures += 1;
    }

    pub(super) fn has_worked(&mut self) {
        self.failures = 0;
    }

    /// The pause before the next attempt at one of so many doors.
    pub(super) fn pause(&mut self, doors: usize) -> Option<Duration> {
        let repeated = self.failures.checked_sub(doors)?;
        let most = FIRST.saturating_mul(1 << repeated.min(16)).min(LONGEST);
        Some(self.part_of(most))
    }

    /// A random time from half of `most` on.
    pub(super) fn part_of(&mut self, most: Duration) -> Duration {
        let most = most.as_nanos() as u64;
        Duration::from_nanos(self.rng.between(most / 2, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(seed: u64, failures: usize) -> Vec<Option<Duration>> {
        let mut backoff = Backoff::new(seed);
        let mut next = || {
            let pause = backoff.pause(3);
            backoff.has_failed();
            pause
        };
        (0..failures).map(|_| next()).collect()
    }

    #[test]
    fn pauses_begin_when_every_door_has_failed_grow_to_a_limit_and_come_from_the_seed() {
        let found = pauses(1, 40);
        assert_eq!(found[..3], [None; 3]);
        for (at, pause) in found[3..].iter().enumerate() {
            let most = FIRST.saturating_mul(1 << at.min(16)).min(LONGEST);
            let pause = pause.expect("a pause");
            assert!(most / 2 <= pause && pause <= most, "{at}: {pause:?}");
        }
        assert_eq!(found, pauses(1, 40));
        let same = found.iter().zip(pauses(2, 40)).filter(|(one, other)| **one == *other).count();
        assert!(same <= 4, "{same} pauses of another seed are the same");
    }

    #[test]
    fn a_door_that_works_ends_the_pauses() {
        let mut backoff = Backoff::new(1);
        (0..9).for_each(|_| backoff.has_failed());
        assert!(backoff.pause(3).is_some());
        backoff.has_worked();
        assert_eq!(backoff.pause(3), None);
    }
}
