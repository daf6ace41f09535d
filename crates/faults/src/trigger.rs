//! When a rule applies: to which of the things that it is about, counted from one.

use highwire_stdx::Rng;

/// How often a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// So often.
    Count(u64),
    /// Always.
    Forever,
}

/// Which of the things that a rule is about it applies to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// The first, counted from 1.
    pub nth: u64,
    /// Then one of each so many.
    pub every: u64,
    /// So often at most.
    pub times: Times,
    /// Each of them with this probability only.
    pub probability: f64,
}

impl Default for Trigger {
    fn default() -> Trigger {
        Trigger { nth: 1, every: 1, times: Times::Count(1), probability: 1.0 }
    }
}

/// A trigger's state.
#[derive(Clone, Debug)]
pub(crate) struct Fires {
    trigger: Trigger,
    seen: u64,
    fired: u64,
    rng: Rng,
}

impl Fires {
    pub(crate) fn new(trigger: Trigger, rng: Rng) -> Fires {
        Fires { trigger, seen: 0, fired: 0, rng }
    }

    /// One more thing of the rule's kind; its number if the rule applies to it.
    pub(crate) fn on(&mut self) -> Option<u64> {
        let Trigger { nth, every, times, probability } = self.trigger;
        self.seen += 1;
        if matches!(times, Times::Count(count) if self.fired >= count) {
            return None;
        }
        let is_due = self.seen >= nth && (self.seen - nth).is_multiple_of(every);
        // Drawn for each that is due, so that one choice does not move the others.
        let applies = is_due && (probability >= 1.0 || self.rng.chance(probability));
        self.fired += u64::from(applies);
        applies.then_some(self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(trigger: Trigger, expected: &[u64]) {
        let mut fires = Fires::new(trigger, Rng::new(1));
        let found: Vec<u64> = (0..12).filter_map(|_| fires.on()).collect();
        assert_eq!(found, expected, "{trigger:?}");
    }

    #[test]
    fn the_nth_then_every_mth_so_many_times() {
        let first = Trigger::default();
        check(first, &[1]);
        check(Trigger { nth: 3, ..first }, &[3]);
        check(Trigger { nth: 3, times: Times::Count(2), ..first }, &[3, 4]);
        check(Trigger { nth: 2, every: 4, times: Times::Forever, ..first }, &[2, 6, 10]);
        check(Trigger { probability: 0.0, times: Times::Forever, ..first }, &[]);
    }

    #[test]
    fn chance_comes_from_the_seed() {
        let trigger = Trigger { probability: 0.5, times: Times::Forever, ..Trigger::default() };
        let run = |seed| {
            let mut fires = Fires::new(trigger, Rng::new(seed));
            (0..64).map(|_| fires.on().is_some()).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
