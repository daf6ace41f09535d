//! Whether an action pays that costs something each time and saves something sometimes: to stay awake, or to keep something back.
//!
//! An action is tried again soon while it pays, and ever more rarely while it does not ([`Restraint`]). A thread that stays awake so as not
//! to be woken needs two more rules ([`Payoff`]). Two threads that answer each other may both sleep only because the other one does,
//! so a sleep that was over soon brings a trial: some longer polls in a row. And where other threads want the core, there is no polling for a while.
//!
//! Invariant: every figure is a hint. Threads share them without a lock, and a lost update costs a microsecond.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The most occasions in a row that are skipped.
const SKIPS_MAX: u32 = 255;

/// Remembers whether an action has paid.
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

    /// Whether the next occasion may be used.
    pub fn is_free(&self) -> bool {
        self.skips.load(Ordering::Relaxed) == 0
    }

    /// The action has paid so well that the next failure is the first. Occasions that are still to be skipped are skipped.
    pub fn forgive(&self) {
        self.before.store(0, Ordering::Relaxed);
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

/// A time without an action that was at other threads' cost.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until_ns: AtomicU64,
    pause_ns: AtomicU64,
}

impl Pause {
    /// Whether there is one now.
    pub(crate) fn is_on(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns.load(Ordering::Relaxed)
    }

    /// Each is twice as long as the one before, from the first to the longest, and half as long for each time that the action has lasted
    /// long enough in between.
    pub(crate) fn begin(&self, first_ns: u64, longest_ns: u64, now_ns: u64) {
        let before = self.pause_ns.load(Ordering::Relaxed);
        let mut lasted = now_ns.saturating_sub(self.until_ns.load(Ordering::Relaxed));
        let mut pause = before;
        while pause >= first_ns && lasted >= WORTH_PAUSES * pause {
            lasted -= WORTH_PAUSES * pause;
            pause /= 2;
        }
        let pause = if pause == before { 2 * before } else { pause };
        let pause = pause.clamp(first_ns, longest_ns);
        self.pause_ns.store(pause, Ordering::Relaxed);
        self.until_ns.store(now_ns + pause, Ordering::Relaxed);
    }
}

/// Polls of a trial. The peer must have time to notice, and to try as well.
const TRIAL_POLLS: u32 = 8;
/// The longest poll of a trial, and the longest sleep after which there is one, in budgets: two wake-ups.
pub(crate) const TRIAL_BUDGETS: u64 = 4;
/// What has lasted so many times as long as the pause before it was worth it: the next pause is shorter.
const WORTH_PAUSES: u64 = 4;

/// The terms on which a thread stays awake.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long it polls in vain.
    pub budget_ns: u64,
    /// A sleep that is over within the budget brings polling back at once.
    pub quick_sleeps_count: bool,
    /// The pause after another thread wanted the core: the first, and the longest.
    pub pause_ns: u64,
    /// See there.
    pub pause_max_ns: u64,
}

/// What a thread does until there is work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// It polls, for so long in vain.
    Poll(u64),
    /// It polls for longer, to see whether work then comes sooner.
    Trial(u64),
    /// It sleeps.
    Sleep,
}

/// How polling ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polled {
    /// There was work.
    Work,
    /// It was in vain.
    Vain,
    /// Another thread wanted the core.
    Crowded,
    /// For a reason that says nothing.
    Cut,
}

/// Remembers whether staying awake has paid.
#[derive(Debug, Default)]
pub struct Payoff {
    polls: Restraint,
    /// Quick sleeps that bring polling back, and whether the last one has, and the poll has yet to show that it was right.
    returns: Restraint,
    has_returned: AtomicBool,
    trials: Restraint,
    trial_polls_left: AtomicU32,
    pause: Pause,
}

impl Payoff {
    /// What to do now; `may_poll`: it is not known to be at other threads' cost.
    pub fn choose(&self, terms: &Terms, now_ns: u64, may_poll: bool) -> Choice {
        let choice = if self.polls.may_try() {
            Choice::Poll(terms.budget_ns)
        } else if self.trial_polls_left.load(Ordering::Relaxed) > 0 {
            Choice::Trial(TRIAL_BUDGETS * terms.budget_ns)
        } else {
            return Choice::Sleep;
        };
        if self.pause.is_on(now_ns) || !may_poll { Choice::Sleep } else { choice }
    }

    /// A sleep ended with work; `took_ns` includes its wake-up.
    pub fn on_sleep(&self, terms: &Terms, took_ns: u64) {
        if took_ns < terms.budget_ns && terms.quick_sleeps_count {
            if self.returns.may_try() {
                self.polls.try_next();
                self.has_returned.store(true, Ordering::Relaxed);
            }
        } else if took_ns < TRIAL_BUDGETS * terms.budget_ns && self.trials.may_try() {
            self.trial_polls_left.store(TRIAL_POLLS, Ordering::Relaxed);
        }
    }

    /// Polling as it was chosen has ended, after so long.
    pub fn on_poll(&self, terms: &Terms, choice: Choice, polled: Polled, took_ns: u64, now_ns: u64) {
        if polled == Polled::Crowded {
            self.pause.begin(terms.pause_ns, terms.pause_max_ns, now_ns);
        }
        match choice {
            Choice::Trial(_) => self.on_trial(polled, took_ns < terms.budget_ns),
            Choice::Poll(_) | Choice::Sleep => {
                let has_returned = self.has_returned.load(Ordering::Relaxed);
                if has_returned {
                    self.has_returned.store(false, Ordering::Relaxed);
                }
                match polled {
                    Polled::Work => {
                        self.polls.on_success();
                        self.returns.on_success();
                    }
                    Polled::Vain => {
                        self.polls.on_failure();
                        if has_returned {
                            self.returns.on_failure();
                        }
                    }
                    Polled::Crowded | Polled::Cut => {}
                }
            }
        }
    }

    /// A poll of a trial is over; `is_soon`: within the time in which polling pays.
    fn on_trial(&self, polled: Polled, is_soon: bool) {
        let left = match polled {
            Polled::Work if is_soon => {
                self.trials.on_success();
                self.polls.forget_failures();
                0
            }
            Polled::Work => {
                let left = self.trial_polls_left.load(Ordering::Relaxed).saturating_sub(1);
                if left == 0 {
                    self.trials.on_failure();
                }
                left
            }
            Polled::Vain => {
                self.trials.on_failure();
                0
            }
            Polled::Crowded => 0,
            Polled::Cut => return,
        };
        self.trial_polls_left.store(left, Ordering::Relaxed);
    }

    #[cfg(all(test, not(feature = "model")))]
    pub(crate) fn polls(&self) -> &Restraint {
        &self.polls
    }

    #[cfg(all(test, not(feature = "model")))]
    pub(crate) fn is_paused(&self, now_ns: u64) -> bool {
        self.pause.is_on(now_ns)
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
