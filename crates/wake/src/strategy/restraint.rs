//! A restraint: an action is tried again soon while it pays, and ever more rarely while it does not.

use std::sync::atomic::{AtomicU32, Ordering};

/// The most occasions in a row that are skipped.
const SKIPS_MAX: u32 = 255;

/// Remembers whether an action has paid. Every figure is a hint: a lost update costs a microsecond.
#[derive(Debug, Default)]
pub struct Restraint {
    /// Occasions still to be skipped, and how many were skipped after the last failure.
    skips: AtomicU32,
    before: AtomicU32,
}

impl Restraint {
    /// Whether this occasion may be used.
    pub fn may_try(&self) -> bool {
        let skips = self.skips.load(Ordering::Relaxed);
        if skips > 0 {
            self.skips.store(skips - 1, Ordering::Relaxed);
        }
        skips == 0
    }

    /// The action has paid. One success among failures is no reason to reset the skips.
    pub fn on_success(&self) {
        let before = self.before.load(Ordering::Relaxed);
        if before > 0 {
            self.before.store(before / 2, Ordering::Relaxed);
        }
    }

    /// The action has not paid: one occasion is skipped, then three, seven, up to 255.
    pub fn on_failure(&self) {
        let skips = (2 * self.before.load(Ordering::Relaxed) + 1).min(SKIPS_MAX);
        self.skips.store(skips, Ordering::Relaxed);
        self.before.store(skips, Ordering::Relaxed);
    }

    /// The next occasion may be used; if that fails, as many are skipped as if none had been given away.
    pub fn try_next(&self) {
        self.skips.store(0, Ordering::Relaxed);
    }

    /// The action would have paid.
    pub fn forget_failures(&self) {
        self.skips.store(0, Ordering::Relaxed);
        self.before.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    fn tries_of(restraint: &Restraint, occasions: usize) -> usize {
        (0..occasions).filter(|_| restraint.may_try()).count()
    }

    #[test]
    fn failures_make_it_rare_and_forgetting_them_brings_it_back() {
        let restraint = Restraint::default();
        for expected in [1, 3, 7, 15, 31, 63, 127, 255, 255] {
            assert!(restraint.may_try());
            restraint.on_failure();
            assert_eq!(tries_of(&restraint, expected), 0);
        }
        assert!(restraint.may_try());
        restraint.on_failure();
        assert!(!restraint.may_try());
        restraint.forget_failures();
        assert_eq!(tries_of(&restraint, 5), 5);
        for expected in [1, 3, 7] {
            restraint.on_failure();
            assert_eq!(tries_of(&restraint, expected), 0);
        }
        restraint.on_success();
        restraint.on_failure();
        assert_eq!((tries_of(&restraint, 7), tries_of(&restraint, 1)), (0, 1));
        restraint.on_failure();
        restraint.try_next();
        assert!(restraint.may_try());
        restraint.on_failure();
        assert_eq!((tries_of(&restraint, 31), tries_of(&restraint, 1)), (0, 1));
    }
}
