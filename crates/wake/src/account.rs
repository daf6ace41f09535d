//! The cost of waiting on a channel, and how its waits ended.

use crate::strategy::Errand;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The event was there when the wait began.
    Ready,
    /// The waiting thread found the event, polling.
    Own,
    /// Another thread found the event and woke this one.
    Woken,
    /// The deadline passed, or a signal ended the wait.
    InVain,
}

/// The processor time of one in this many waits is measured: asking for it costs as much as a short wait.
const WAITS_PER_SAMPLE: u64 = 16;

/// The account of one channel. Several threads may wait there.
#[derive(Debug, Default)]
pub struct Account {
    ended: [AtomicU64; 4],
    turns: AtomicU64,
    polled_ns: AtomicU64,
    sleeps: AtomicU64,
    rescues: AtomicU64,
    /// Waits that have begun, those whose processor time was measured, and the sum of those times.
    waits: AtomicU64,
    samples: AtomicU64,
    sampled_ns: AtomicU64,
    errand: Errand,
}

/// The figures of an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures([u64; Figures::NAMES.len()]);

impl Account {
    /// Counts the beginning of a wait; true if its processor time is to be measured.
    #[inline]
    pub fn begin(&self) -> bool {
        self.waits.fetch_add(1, Ordering::Relaxed).is_multiple_of(WAITS_PER_SAMPLE)
    }

    /// Adds the measured processor time of a wait.
    pub fn note_sample(&self, taken: Duration) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.sampled_ns.fetch_add(taken.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Counts the end of a wait, the turns that the thread made, and how long they took.
    #[inline]
    pub fn note(&self, kind: Kind, turns: u64, polled: Duration) {
        self.ended[kind as usize].fetch_add(1, Ordering::Relaxed);
        if turns > 0 {
            self.turns.fetch_add(turns, Ordering::Relaxed);
            self.polled_ns.fetch_add(polled.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Counts a sleep.
    #[inline]
    pub fn note_sleep(&self) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an event that was there when a sleep ended of itself: the thread that found it has not posted.
    #[inline]
    pub fn note_rescue(&self) {
        self.rescues.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a thread that waits there is away with an event.
    pub(crate) fn errand(&self) -> &Errand {
        &self.errand
    }

    /// Every figure.
    pub fn figures(&self) -> Figures {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let ended = |kind: Kind| of(&self.ended[kind as usize]);
        // The unmeasured waits are taken to cost the same on average.
        let cpu_ns = u128::from(of(&self.sampled_ns)) * u128::from(of(&self.waits))
            / u128::from(of(&self.samples).max(1));
        Figures([
            ended(Kind::Ready),
            ended(Kind::Own),
            ended(Kind::Woken),
            ended(Kind::InVain),
            of(&self.sleeps),
            of(&self.rescues),
            of(&self.turns),
            of(&self.polled_ns) / 1000,
            u64::try_from(cpu_ns / 1000).unwrap_or(u64::MAX),
        ])
    }
}

impl Figures {
    /// The names of the figures.
    pub const NAMES: [&str; 9] = [
        "wakes_ready",
        "wakes_own",
        "wakes_woken",
        "wakes_in_vain",
        "wake_sleeps",
        "wake_rescues",
        "wake_polls",
        "wake_polled_us",
        "wake_cpu_us",
    ];

    /// The figures in the order of their names.
    pub fn values(&self) -> &[u64] {
        &self.0
    }

    /// Waits whose event the waiting thread found by itself, polling.
    pub fn own(&self) -> u64 {
        self.0[Kind::Own as usize]
    }

    /// Waits that have ended.
    pub fn waits(&self) -> u64 {
        self.0[..4].iter().sum()
    }

    /// Every figure by name.
    pub fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        Figures::NAMES.iter().zip(self.0).for_each(|(name, value)| each(name, value));
    }
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Figures) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, value)| *sum += value);
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_sampled_waits_stands_for_all() {
        let account = Account::default();
        for _ in 0..4 * WAITS_PER_SAMPLE {
            if account.begin() {
                account.note_sample(Duration::from_micros(3));
            }
            account.note(Kind::Woken, 0, Duration::ZERO);
        }
        let figures = account.figures();
        let mut by_name = Vec::new();
        figures.each(&mut |name, value| by_name.push((name, value)));
        assert!(by_name.contains(&("wake_cpu_us", 3 * 4 * WAITS_PER_SAMPLE)), "{by_name:?}");
        assert!(by_name.contains(&("wakes_woken", 4 * WAITS_PER_SAMPLE)), "{by_name:?}");
        let mut sum = figures;
        sum += figures;
        assert_eq!((figures.waits(), sum.waits()), (4 * WAITS_PER_SAMPLE, 8 * WAITS_PER_SAMPLE));
    }
}
