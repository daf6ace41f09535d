//! Numbers that have been taken: each is taken once. Those that are much older than the newest are taken to have been.

const WORDS: usize = 32;
/// How far a datagram may be overtaken.
const BITS: u64 = WORDS as u64 * 64;

/// The last numbers, and which of them have been taken. Numbers begin with 1.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    newest: u64,
    /// Bit `n % BITS` stands for the number `n`, of those that are newer than `newest - BITS`.
    taken: [u64; WORDS],
}

impl Window {
    /// Takes a number; `false`: it has been taken, or it is too old to tell.
    pub(super) fn take(&mut self, number: u64) -> bool {
        if number == 0 || number + BITS <= self.newest {
            return false;
        }
        if number > self.newest {
            let skipped = number - self.newest;
            match skipped >= BITS {
                true => self.taken = [0; WORDS],
                false => (self.newest + 1..=number).for_each(|number| self.set(number, false)),
            }
            self.newest = number;
        } else if self.has(number) {
            return false;
        }
        self.set(number, true);
        true
    }

    fn has(&self, number: u64) -> bool {
        self.taken[(number / 64) as usize % WORDS] >> (number % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, is_taken: bool) {
        let word = &mut self.taken[(number / 64) as usize % WORDS];
        *word = *word & !(1 << (number % 64)) | u64::from(is_taken) << (number % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn a_number_is_taken_once_and_an_old_one_not_at_all() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (mut window, mut taken, mut newest) = (Window::default(), BTreeSet::new(), 0u64);
            for _ in 0..3000 {
                let number = match rng.below(20) {
                    0 => newest + rng.below(3 * BITS),
                    1 => newest.saturating_sub(rng.below(2 * BITS)),
                    2 => (newest + 1).saturating_sub(BITS),
                    3 => newest.saturating_sub(BITS),
                    _ => (newest + 3).saturating_sub(rng.below(6)),
                };
                let is_new = number > 0 && number + BITS > newest && taken.insert(number);
                assert_eq!(window.take(number), is_new, "seed {seed}: {number} after {newest}");
                newest = newest.max(if is_new { number } else { 0 });
            }
        }
    }

    #[test]
    fn the_oldest_number_that_counts_is_the_last_of_the_window() {
        let mut window = Window::default();
        assert!(window.take(BITS + 10));
        assert!(window.take(11) && !window.take(11), "it is the oldest");
        assert!(!window.take(10), "it is too old to tell");
        assert!(window.take(u64::MAX - BITS) && !window.take(0));
    }
}
