//! The second-level cache that the cores of a node share, between their first-level caches and memory.
//!
//! It knows which lines it holds, and so how long a line takes to come. Lines that it drops stay in the first-level caches,
//! where the hardware, whose cache is inclusive, would take them away.

use crate::cache::LINE_BYTES;

/// How the cache is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedCacheConfig {
    /// All of its lines.
    pub bytes: usize,
    /// Lines of a set, at most 255.
    pub ways: usize,
    /// From a first-level cache's request to the first word of a line that is there.
    pub hit_cycles: u64,
    /// What a line that is not there takes on top of memory's latency.
    pub miss_cycles: u64,
}

impl Default for SharedCacheConfig {
    /// The prototype's: 512 KiB in eight ways. A load that misses the first level and hits here takes 22.6 cycles from use to use
    /// there, one that goes to a memory of `n` cycles without this cache `n` and 17.6. That a line is not here is known after the same five
    /// cycles, and memory is asked then.
    fn default() -> SharedCacheConfig {
        SharedCacheConfig { bytes: 512 << 10, ways: 8, hit_cycles: 5, miss_cycles: 5 }
    }
}

/// No line has this number.
const NO_LINE: u64 = u64::MAX;

/// The cache.
#[derive(Clone, Debug)]
pub(crate) struct SharedCache {
    config: SharedCacheConfig,
    /// The lines by set, in each the one that was used last first.
    lines: Vec<u64>,
    sets: usize,
}

impl SharedCache {
    pub(crate) fn new(config: SharedCacheConfig) -> SharedCache {
        let ways = config.ways.max(1);
        let sets = (config.bytes / LINE_BYTES as usize / ways).max(1).next_power_of_two();
        SharedCache { config: SharedCacheConfig { ways, ..config }, lines: vec![NO_LINE; sets * ways], sets }
    }

    /// A first-level cache asks for the line of `address`: cycles to its first word, with a memory of `memory_cycles`.
    pub(crate) fn ask(&mut self, address: u64, memory_cycles: u64) -> u64 {
        let line = address / LINE_BYTES;
        let first = (line as usize % self.sets) * self.config.ways;
        let set = &mut self.lines[first..first + self.config.ways];
        let place = set.iter().position(|&held| held == line);
        // The line goes to the front; without a place it takes that of the last.
        set[..=place.unwrap_or(self.config.ways - 1)].rotate_right(1);
        set[0] = line;
        match place {
            Some(_) => self.config.hit_cycles,
            None => memory_cycles + self.config.miss_cycles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_until_a_set_of_others_has_been_used() {
        let config = SharedCacheConfig { bytes: 4 * 64 * 2, ways: 2, hit_cycles: 5, miss_cycles: 7 };
        let mut cache = SharedCache::new(config);
        let step = 4 * LINE_BYTES;
        let mut ask = |line: u64| cache.ask(0x8000_0000 + line * step + 8, 40);
        assert_eq!([ask(0), ask(0), ask(1), ask(0)], [47, 5, 47, 5]);
        // The line used last but one goes.
        assert_eq!([ask(2), ask(0), ask(1), ask(2)], [47, 5, 47, 47]);
    }
}
