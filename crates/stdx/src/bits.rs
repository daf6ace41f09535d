//! A sliding bitmap: bit 0 is the oldest thing still missing, and the window slides as the front fills.
//!
//! IRN keeps one per direction of a queue pair, as wide as its cap on packets in flight (IRN §3.1, §6).

/// A window of `64 * WORDS` bits whose bit 0 is the window's front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitWindow<const WORDS: usize> {
    words: [u64; WORDS],
}

impl<const WORDS: usize> Default for BitWindow<WORDS> {
    fn default() -> Self {
        BitWindow { words: [0; WORDS] }
    }
}

impl<const WORDS: usize> BitWindow<WORDS> {
    /// How many bits the window holds.
    pub const BITS: u32 = 64 * WORDS as u32;

    /// Whether bit `index` is set; bits beyond the window are clear.
    pub fn get(&self, index: u32) -> bool {
        self.words.get((index / 64) as usize).is_some_and(|w| w >> (index % 64) & 1 == 1)
    }

    /// Sets bit `index`.
    ///
    /// # Panics
    /// If `index` lies beyond the window.
    pub fn set(&mut self, index: u32) {
        self.words[(index / 64) as usize] |= 1 << (index % 64);
    }

    /// Clears every bit.
    pub fn clear(&mut self) {
        self.words = [0; WORDS];
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// How many bits are set.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    /// How many bits are set among the first `n`.
    pub fn count_below(&self, n: u32) -> u32 {
        let full = (n / 64) as usize;
        let head: u32 = self.words.iter().take(full).map(|w| w.count_ones()).sum();
        let rest = self.words.get(full).map_or(0, |w| (w & ((1u64 << (n % 64)) - 1)).count_ones());
        head + rest
    }

    /// How many bits from the front on are set without a hole.
    pub fn leading(&self) -> u32 {
        let mut total = 0;
        for &word in &self.words {
            let ones = word.trailing_ones();
            total += ones;
            if ones < 64 {
                break;
            }
        }
        total
    }

    /// The highest set bit.
    pub fn highest(&self) -> Option<u32> {
        let (i, word) = self.words.iter().enumerate().rev().find(|(_, w)| **w != 0)?;
        Some(i as u32 * 64 + 63 - word.leading_zeros())
    }

    /// The first clear bit at or after `from`, within the window.
    pub fn next_clear(&self, from: u32) -> Option<u32> {
        (from..Self::BITS).find(|&i| !self.get(i))
    }

    /// Slides the window forward: bit `n` becomes the front.
    pub fn slide(&mut self, n: u32) {
        if n >= Self::BITS {
            self.clear();
            return;
        }
        let (words, bits) = ((n / 64) as usize, n % 64);
        for i in 0..WORDS {
            let low = self.words.get(i + words).copied().unwrap_or(0);
            let high = self.words.get(i + words + 1).copied().unwrap_or(0);
            self.words[i] = if bits == 0 { low } else { low >> bits | high << (64 - bits) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// Every operation against a plain vector of booleans.
    #[test]
    fn agrees_with_a_naive_window() {
        let mut rng = Rng::new(11);
        for _ in 0..200 {
            let mut window = BitWindow::<3>::default();
            let mut naive = vec![false; 192];
            for _ in 0..200 {
                match rng.below(4) {
                    0 => {
                        let bound = if rng.chance(0.05) { 400 } else { 20 };
                        let n = rng.below(bound) as usize;
                        window.slide(n as u32);
                        naive.drain(..n.min(192));
                        naive.resize(192, false);
                    }
                    _ => {
                        let i = rng.below(192) as usize;
                        window.set(i as u32);
                        naive[i] = true;
                    }
                }
                assert_eq!(window.leading() as usize, naive.iter().take_while(|b| **b).count());
                assert_eq!(window.count() as usize, naive.iter().filter(|b| **b).count());
                assert_eq!(window.highest().map(|i| i as usize), naive.iter().rposition(|b| *b));
                let n = rng.below(193) as usize;
                assert_eq!(window.count_below(n as u32) as usize, naive[..n].iter().filter(|b| **b).count());
                let from = rng.below(193) as usize;
                let clear = naive[from..].iter().position(|b| !*b).map(|i| (i + from) as u32);
                assert_eq!(window.next_clear(from as u32), clear);
                assert_eq!(window.is_empty(), naive.iter().all(|b| !*b));
            }
        }
    }
}
