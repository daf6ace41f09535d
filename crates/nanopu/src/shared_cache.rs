//! The second-level cache that the cores of a node share, between their first-level caches and memory.
//!
//! It knows which lines it holds, and so how long a line takes to come. It includes the lines of the
//! first-level data caches, as the prototype's does: a line that it drops leaves those as well, and is
//! recalled before its place is free. It does not track instruction caches, so their lines stay, as on
//! Rocket.

use crate::cache::LINE_BYTES;

/// How the cache is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedCacheConfig {
    /// All of its lines.
    pub bytes: usize,
    /// Lines of a set, at most 255.
    pub ways: usize,
    /// Cycles from a first-level cache's request to the first word of a line that is there.
    pub hit_cycles: u64,
    /// Cycles that a line that is not there takes on top of memory's latency.
    pub miss_cycles: u64,
}

impl Default for SharedCacheConfig {
    /// The prototype's: 512 KiB in eight ways. A load that misses the first level and hits here takes 22.6 cycles from use to use
    /// there, one that goes to a memory of `n` cycles without this cache `n` and 17.6. The cache knows after
    /// the same five cycles that a line is missing, and asks memory then.
    fn default() -> SharedCacheConfig {
        SharedCacheConfig { bytes: 512 << 10, ways: 8, hit_cycles: 5, miss_cycles: 5 }
    }
}

/// No line has this number.
const NO_LINE: u64 = u64::MAX;

/// In the number of a line: a first-level data cache has had it, and may have it.
const LENT: u64 = 1 << 63;

/// Cycles from the second-level cache's probe to the answer of a first-level data cache without newer words:
/// three there and three back, as for the instruction cache's probes, measured on the core's RTL.
pub(crate) const PROBE_CYCLES: u64 = 6;

/// The kind of client that asks the cache for a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A first-level data cache, which keeps the line; the second level tracks it.
    Data,
    /// A first-level instruction cache, which keeps the line; the second level does not track it.
    Code,
    /// A device, which keeps nothing.
    Device,
}

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// Cycles to the line's first word.
    pub(crate) cycles: u64,
    /// The address of a line that had to leave. First-level data caches that hold it must drop it.
    pub(crate) recalled: Option<u64>,
}

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

    /// `asker` asks for the line of `address`, with a memory of `memory_cycles` behind the cache.
    pub(crate) fn ask(&mut self, asker: Asker, address: u64, memory_cycles: u64) -> Asked {
        let line = address / LINE_BYTES;
        let first = (line as usize % self.sets) * self.config.ways;
        let set = &mut self.lines[first..first + self.config.ways];
        let place = set.iter().position(|&held| held & !LENT == line);
        // The line goes to the front; without a place it takes that of the last.
        set[..=place.unwrap_or(self.config.ways - 1)].rotate_right(1);
        let before = std::mem::replace(&mut set[0], line);
        if asker == Asker::Data || (place.is_some() && before & LENT != 0) {
            set[0] |= LENT;
        }
        if place.is_some() {
            return Asked { cycles: self.config.hit_cycles, recalled: None };
        }
        let is_lent = before != NO_LINE && before & LENT != 0;
        let cycles = memory_cycles + self.config.miss_cycles;
        match is_lent {
            false => Asked { cycles, recalled: None },
            // Memory is asked when the old line's place is free.
            true => Asked { cycles: cycles + PROBE_CYCLES, recalled: Some((before & !LENT) * LINE_BYTES) },
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
        let mut ask = |line: u64| cache.ask(Asker::Code, 0x8000_0000 + line * step + 8, 40).cycles;
        assert_eq!([ask(0), ask(0), ask(1), ask(0)], [47, 5, 47, 5]);
        // The line used last but one goes.
        assert_eq!([ask(2), ask(0), ask(1), ask(2)], [47, 5, 47, 47]);
    }

    #[test]
    fn a_line_that_leaves_is_recalled_from_data_caches_only() {
        let config = SharedCacheConfig { bytes: 4 * 64 * 2, ways: 2, hit_cycles: 5, miss_cycles: 7 };
        let mut cache = SharedCache::new(config);
        let at = |line: u64| 0x8000_0000 + line * 4 * LINE_BYTES;
        let mut ask = |asker, line| {
            let Asked { cycles, recalled } = cache.ask(asker, at(line) + 8, 40);
            (cycles, recalled)
        };
        assert_eq!(ask(Asker::Data, 0), (47, None));
        assert_eq!(ask(Asker::Code, 1), (47, None));
        // The instruction cache asks for line 0 as well: a data cache may still have it.
        assert_eq!(ask(Asker::Code, 0), (5, None));
        assert_eq!(ask(Asker::Device, 2), (47, None), "line 1 leaves without a word");
        assert_eq!(ask(Asker::Data, 3), (53, Some(at(0))));
        assert_eq!(ask(Asker::Data, 4), (47, None), "a device has kept nothing");
        assert_eq!(ask(Asker::Data, 5), (53, Some(at(3))));
    }
}
