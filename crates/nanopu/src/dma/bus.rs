//! Between the engines and memory: one bus of eight bytes a cycle in each direction, and the second-level cache behind it.
//!
//! A block is at most a line, a power of two in size and aligned to it. Its data moves when an engine asks,
//! and the time is added afterwards: the cache first takes the line away from the first level, or brings its
//! dirty words down. Requests and answers of the core's own misses pass over the same bus.

use std::collections::VecDeque;

use highwire_riscv::Ram;

use crate::cache::{LINE_BYTES, LINE_WORDS};
use crate::config::DATA_MISS_CYCLES;
use crate::core::Core;
use crate::shared_cache::{Asked, Asker, PROBE_CYCLES, SharedCache};

/// Bytes of a beat.
pub(super) const BEAT_BYTES: u64 = 8;

/// Cycles from a request at the cache to its first word, without the cache's own time: those of a first-level
/// cache's miss, but for its words.
const ACCESS_CYCLES: u64 = DATA_MISS_CYCLES - LINE_WORDS;

/// The caches and the memory behind the bus.
pub(crate) struct Memory<'a> {
    pub(crate) ram: &'a mut Ram,
    pub(crate) cache: &'a mut SharedCache,
    pub(crate) core: &'a mut Core,
    /// Cycles of memory behind the second-level cache.
    pub(crate) memory_cycles: u64,
}

impl Memory<'_> {
    /// An engine asks for a line. Returns the cycles to its first word. A line that has to leave the second
    /// level for it leaves the first as well.
    fn ask(&mut self, address: u64, memory_cycles: u64) -> u64 {
        let Asked { cycles, recalled } = self.cache.ask(Asker::Device, address, memory_cycles);
        if let Some(recalled) = recalled {
            self.core.take_line(recalled);
        }
        cycles
    }
}

/// The bus.
#[derive(Clone, Debug)]
pub(super) struct Bus {
    hop_cycles: u64,
    requests: Channel,
    answers: Channel,
    pub(super) probed: u64,
}

/// One direction at the cache's port: a beat a cycle, and the beats of one transfer together.
#[derive(Clone, Debug, Default)]
struct Channel {
    /// First cycles of transfers, and those behind their last; in order.
    taken: VecDeque<(u64, u64)>,
}

impl Channel {
    /// Takes so many free cycles in a row, not before `earliest`, and returns the first. No caller asks for
    /// cycles before `cycle`, so older ones are forgotten.
    fn take(&mut self, cycle: u64, earliest: u64, beats: u64) -> u64 {
        while self.taken.front().is_some_and(|&(_, end)| end <= cycle) {
            self.taken.pop_front();
        }
        let mut first = earliest;
        let mut place = 0;
        for &(start, end) in &self.taken {
            if first + beats <= start {
                break;
            }
            first = first.max(end);
            place += 1;
        }
        self.taken.insert(place, (first, first + beats));
        first
    }
}

impl Bus {
    pub(super) fn new(hop_cycles: u64) -> Bus {
        Bus { hop_cycles, requests: Channel::default(), answers: Channel::default(), probed: 0 }
    }

    /// An engine asks in `cycle` for a block. Returns the cycle in which the engine has the block's first
    /// word; the others follow, one a cycle.
    pub(super) fn read(&mut self, cycle: u64, address: u64, bytes: u64, memory: &mut Memory<'_>) -> u64 {
        let asked = self.requests.take(cycle, cycle + self.hop_cycles, 1);
        let found = asked + ACCESS_CYCLES + memory.ask(address, memory.memory_cycles);
        let ready = found + self.probe(memory.core.share_line(address));
        self.answers.take(cycle, ready, bytes.div_ceil(BEAT_BYTES)) + self.hop_cycles
    }

    /// An engine begins in `cycle` to write a block, a word a cycle. Returns the cycle in which its last word
    /// has left the engine, and that of the acknowledgement.
    pub(super) fn write(
        &mut self,
        cycle: u64,
        address: u64,
        bytes: &[u8],
        memory: &mut Memory<'_>,
    ) -> (u64, u64) {
        let beats = (bytes.len() as u64).div_ceil(BEAT_BYTES);
        let first = self.requests.take(cycle, cycle + self.hop_cycles, beats);
        let last = first + beats - 1;
        // A line that is written whole need not be fetched first.
        let is_whole = bytes.len() as u64 == LINE_BYTES;
        let memory_cycles = if is_whole { 0 } else { memory.memory_cycles };
        let found = last + ACCESS_CYCLES + memory.ask(address, memory_cycles);
        let ready = found + self.probe(memory.core.take_line(address));
        memory.core.hart.on_foreign_store(address);
        if let Some(place) = memory.ram.slice_mut(address, bytes.len()) {
            place.copy_from_slice(bytes);
        }
        (last - self.hop_cycles, self.answers.take(cycle, ready, 1) + self.hop_cycles)
    }

    /// A first-level cache asks for a line in `cycle`, whose first word would be there after `cycles` on a
    /// free bus. Returns after how many cycles it is there.
    pub(super) fn fill(&mut self, cycle: u64, cycles: u64) -> u64 {
        let asked = self.requests.take(cycle, cycle, 1);
        self.answers.take(cycle, asked + cycles, LINE_WORDS) - cycle
    }

    /// Cycles of a first-level cache's answer: `held` says whether it held the line, and whether dirty.
    fn probe(&mut self, held: Option<bool>) -> u64 {
        let Some(is_dirty) = held else { return 0 };
        self.probed += 1;
        PROBE_CYCLES + if is_dirty { LINE_WORDS } else { 0 }
    }
}

/// The size of the next block of so many bytes at `address`, both multiples of a beat: a power of two, aligned to itself.
pub(super) fn block_bytes(address: u64, bytes: u64) -> u64 {
    let alignment = 1 << address.trailing_zeros().min(LINE_BYTES.trailing_zeros());
    let fitting = 1 << bytes.max(1).ilog2();
    LINE_BYTES.min(alignment).min(fitting)
}
