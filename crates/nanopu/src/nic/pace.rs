//! How fast cores write, for packets that leave while they are written.
//!
//! What matters is how far the words of a packet fall behind one word a cycle. The configuration states it,
//! and the NIC may learn it: a program writes messages of one size at one pace.

use std::collections::{BTreeMap, VecDeque};

use super::CutThrough;

/// The learned pace is kept in so many parts of a cycle.
const PARTS: u64 = 64;
/// Cycles added to the learned pace, for rare delays such as a branch that goes the other way.
const MARGIN_CYCLES: u64 = 2;
/// So many messages are remembered, and the slowest of them counts: a program may take different ways through its code, and one with cold
/// caches is soon forgotten.
const REMEMBERED: usize = 4;

/// The known pace of cores.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    config: CutThrough,
    /// By context and size, as a power of two of words: how far a word of each of the last messages fell behind, in parts of a cycle.
    learned: BTreeMap<(u16, u32), VecDeque<u64>>,
}

impl Pace {
    pub(super) fn new(config: CutThrough) -> Pace {
        Pace { config, learned: BTreeMap::new() }
    }

    /// How many cycles a word of such a message will be behind its place at the most, were there a word in each.
    pub(super) fn lag(&self, context: u16, words: u64) -> u64 {
        let last = self.learned.get(&(context, size(words)));
        match last.and_then(|last| last.iter().max()) {
            Some(parts) => (parts * words).div_ceil(PARTS) + MARGIN_CYCLES,
            None => (words * self.config.quarter_cycles_per_word).div_ceil(4).saturating_sub(words) + 1,
        }
    }

    /// A message was written, and fell so far behind.
    pub(super) fn on_written(&mut self, context: u16, words: u64, lag: u64) {
        if !self.config.learns || words == 0 {
            return;
        }
        let last = self.learned.entry((context, size(words))).or_default();
        last.push_back((lag * PARTS).div_ceil(words));
        if last.len() > REMEMBERED {
            last.pop_front();
        }
    }
}

fn size(words: u64) -> u32 {
    words.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_is_nearer_than_what_is_stated() {
        let mut pace = Pace::new(CutThrough { quarter_cycles_per_word: 7, learns: true });
        assert_eq!(pace.lag(1, 128), 97);
        pace.on_written(1, 128, 32);
        assert_eq!((pace.lag(1, 128), pace.lag(1, 200)), (34, 52));
        // Other contexts and sizes learn by themselves.
        assert_eq!((pace.lag(2, 128), pace.lag(1, 127)), (97, 97));
        pace.on_written(1, 128, 64);
        assert_eq!(pace.lag(1, 128), 66);
        for _ in 0..3 {
            pace.on_written(1, 128, 0);
        }
        assert_eq!(pace.lag(1, 128), 66);
        pace.on_written(1, 128, 0);
        assert_eq!(pace.lag(1, 128), MARGIN_CYCLES);
    }

    #[test]
    fn what_is_stated_stays_if_it_shall() {
        let mut pace = Pace::new(CutThrough { quarter_cycles_per_word: 5, learns: false });
        pace.on_written(1, 128, 0);
        assert_eq!(pace.lag(1, 128), 33);
    }
}
