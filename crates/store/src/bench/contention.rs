//! How long a transaction pauses after a conflict, before its next attempt.
//!
//! All transactions of a node draw their pauses from one window, which grows with each conflict and shrinks
//! with each commit. Were it each transaction's own, doubled by each of its conflicts, the oldest would pause
//! longest and those that have just begun would overtake them, again and again.

/// Without contention a pause is shorter than a round trip.
const WINDOW_MIN_NS: f64 = 2_000.0;
/// A few hundred transactions that queue for one key.
const WINDOW_MAX_NS: f64 = 16_000_000.0;
/// Growth and shrinkage balance when one attempt of three meets another transaction.
const GROWS: f64 = 1.25;
const SHRINKS: f64 = 0.9;

/// What a node's transactions have met lately.
#[derive(Debug)]
pub(super) struct Contention {
    window_ns: f64,
}

impl Contention {
    pub(super) fn new() -> Contention {
        Contention { window_ns: WINDOW_MIN_NS }
    }

    /// An attempt met another transaction.
    pub(super) fn met(&mut self) {
        self.window_ns = (self.window_ns * GROWS).min(WINDOW_MAX_NS);
    }

    /// An attempt committed.
    pub(super) fn committed(&mut self) {
        self.window_ns = (self.window_ns * SHRINKS).max(WINDOW_MIN_NS);
    }

    /// The longest pause now.
    pub(super) fn window_ns(&self) -> u64 {
        self.window_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window after many attempts, of which this share conflicts.
    fn after(share: f64) -> u64 {
        let (mut contention, mut debt) = (Contention::new(), 0.0);
        for _ in 0..10_000 {
            debt += share;
            if debt >= 1.0 {
                debt -= 1.0;
                contention.met();
            } else {
                contention.committed();
            }
        }
        contention.window_ns()
    }

    #[test]
    fn pauses_are_short_until_one_attempt_of_three_conflicts_and_then_grow_within_bounds() {
        assert!(after(0.1) <= 3 * WINDOW_MIN_NS as u64);
        assert!(after(0.3) <= 3 * WINDOW_MIN_NS as u64);
        assert!(after(0.4) > WINDOW_MAX_NS as u64 / 3);
        assert_eq!(after(1.0), WINDOW_MAX_NS as u64);
    }
}
