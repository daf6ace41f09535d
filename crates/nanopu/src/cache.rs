//! Which lines a first-level cache holds. Data stays in memory: only presence and dirtiness cost time.

/// A line's last word has passed the hub so many cycles before it reaches its cache.
const HUB_CYCLES: u64 = 1;

/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;

/// Words of a line; the bus brings one a cycle.
pub(crate) const LINE_WORDS: u64 = 8;

/// 16 KiB in four ways.
const SETS: usize = 64;
const WAYS: usize = 4;

/// The number of no line.
const NO_LINE: u64 = u64::MAX;

/// Stands for the cycle of a line's last word while that is not known. Half the range, so that additions do
/// not overflow.
pub(crate) const UNKNOWN: u64 = u64::MAX / 2;

/// The cycle in which a line is complete that would be complete at `last` if it were alone on the bus, while
/// the other cache waits for a line until `other`: the line that was asked for first comes first, and the
/// other one after it. If the other cache waits behind this very line ([`behind_line`]), it is told when.
pub(crate) fn share_bus(last: u64, other: Option<&mut u64>) -> u64 {
    match other {
        Some(other) if *other > UNKNOWN => {
            *other = last + (*other - UNKNOWN);
            last
        }
        Some(other) if *other > last => {
            *other = (*other).max(last + LINE_WORDS);
            last
        }
        Some(other) => last.max(*other + LINE_WORDS),
        None => last,
    }
}

/// The cycle in which a line is complete that is asked for in `cycle` while the other cache waits for the same
/// line until `first`, if the line takes `cycles` alone. The broadcast hub between the caches and memory has one
/// tracker per line, and takes no request for a line whose tracker is busy until the last word has passed.
///
/// If `first` is [`UNKNOWN`], so is the answer: it is counted from `first`, and [`share_bus`] adds the two.
pub(crate) fn behind_line(cycle: u64, first: u64, cycles: u64) -> u64 {
    (first - HUB_CYCLES).max(cycle) + cycles
}

/// The tags of a cache with random replacement.
#[derive(Clone, Debug)]
pub(crate) struct Tags {
    /// The lines in each set, by way.
    lines: [[u64; WAYS]; SETS],
    /// Which lines have been written to, by bit.
    dirty: [u8; SETS],
    /// Which lines a device has read since, by bit: the core must ask for them again before it writes to
    /// them.
    shared: [u8; SETS],
    /// A shift register of the longest period, as hardware draws its random ways.
    random: u16,
}

impl Tags {
    pub(crate) fn new() -> Tags {
        Tags { lines: [[NO_LINE; WAYS]; SETS], dirty: [0; SETS], shared: [0; SETS], random: 1 }
    }

    #[inline]
    pub(crate) fn holds(&self, address: u64) -> bool {
        self.ways(address) != 0
    }

    /// Brings a line in, and replaces the one that [`Tags::drop_dirty`] would drop.
    pub(crate) fn fill(&mut self, address: u64, is_dirty: bool) {
        let (set, way) = (set_index(address), self.place(address));
        self.lines[set][way] = address / LINE_BYTES;
        self.dirty[set] = self.dirty[set] & !(1 << way) | u8::from(is_dirty) << way;
        self.shared[set] &= !(1 << way);
    }

    /// Whether [`Tags::drop_dirty`] would drop a dirty line.
    pub(crate) fn would_drop_dirty(&self, address: u64) -> bool {
        self.dirty[set_index(address)] >> self.place(address) & 1 != 0
    }

    /// Drops the line that makes room for the one of `address`, unless they are the same. Returns whether it
    /// had been written to.
    pub(crate) fn drop_dirty(&mut self, address: u64) -> bool {
        let was_dirty = self.would_drop_dirty(address);
        if was_dirty || self.ways(address) == 0 {
            self.strike(address);
        }
        was_dirty
    }

    /// Drops the line that would make room for the one of `address`.
    pub(crate) fn strike(&mut self, address: u64) {
        let (set, way) = (set_index(address), self.place(address));
        self.lines[set][way] = NO_LINE;
        self.dirty[set] &= !(1 << way);
        self.shared[set] &= !(1 << way);
    }

    /// Draws the next random way: the data cache when a line has come, the instruction cache when it asks for one.
    pub(crate) fn draw(&mut self) {
        let bit = |index: u32| self.random >> index & 1;
        self.random = self.random << 1 | (bit(15) ^ bit(13) ^ bit(12) ^ bit(10));
    }

    /// The way that a line is put into: its own if it is there and was only asked for again, otherwise a
    /// random one, even if another is free.
    fn place(&self, address: u64) -> usize {
        match self.ways(address) {
            0 => usize::from(self.random) % WAYS,
            ways => ways.trailing_zeros() as usize,
        }
    }

    /// Whether the line is there, but must not be written to.
    #[inline]
    pub(crate) fn is_shared(&self, address: u64) -> bool {
        self.ways(address) & self.shared[set_index(address)] != 0
    }

    /// A device takes the line away. Returns whether it was dirty, or `None` if it was not there.
    pub(crate) fn take(&mut self, address: u64) -> Option<bool> {
        let was_dirty = self.share(address)?;
        let (set, ways) = (set_index(address), self.ways(address));
        self.lines[set][ways.trailing_zeros() as usize] = NO_LINE;
        self.shared[set] &= !ways;
        Some(was_dirty)
    }

    /// A device reads the line, which stays, clean. Returns whether it was dirty, or `None` if the cache has
    /// no writable copy of it.
    pub(crate) fn share(&mut self, address: u64) -> Option<bool> {
        let (set, ways) = (set_index(address), self.ways(address));
        if ways == 0 {
            return None;
        }
        let was_dirty = self.dirty[set] & ways != 0;
        self.dirty[set] &= !ways;
        self.shared[set] |= ways;
        Some(was_dirty)
    }

    #[cfg(test)]
    fn is_dirty(&self, address: u64) -> bool {
        self.ways(address) & self.dirty[set_index(address)] != 0
    }

    /// Notes a write to a cached line. Returns whether the line was dirty already.
    #[inline(always)]
    pub(crate) fn mark_dirty(&mut self, address: u64) -> bool {
        let (set, ways) = (set_index(address), self.ways(address));
        let was_dirty = self.dirty[set] & ways != 0;
        self.dirty[set] |= ways;
        was_dirty
    }

    pub(crate) fn clear(&mut self) {
        (self.lines, self.dirty, self.shared) = ([[NO_LINE; WAYS]; SETS], [0; SETS], [0; SETS]);
    }

    /// The ways that hold the line of `address`, by bit.
    #[inline]
    fn ways(&self, address: u64) -> u8 {
        let line = address / LINE_BYTES;
        let set = &self.lines[set_index(address)];
        u8::from(set[0] == line)
            | u8::from(set[1] == line) << 1
            | u8::from(set[2] == line) << 2
            | u8::from(set[3] == line) << 3
    }
}

fn set_index(address: u64) -> usize {
    (address / LINE_BYTES) as usize % SETS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 0x8000_0040;

    #[test]
    fn a_device_takes_lines_or_shares_them() {
        let mut tags = Tags::new();
        assert_eq!((tags.take(LINE), tags.share(LINE)), (None, None));
        tags.fill(LINE, true);
        assert_eq!(tags.share(LINE + 8), Some(true));
        assert!(tags.holds(LINE) && tags.is_shared(LINE) && !tags.is_dirty(LINE));
        assert_eq!(tags.share(LINE), Some(false));
        assert_eq!(tags.take(LINE), Some(false));
        assert!(!tags.holds(LINE) && !tags.is_shared(LINE));
    }

    #[test]
    fn a_shared_line_comes_back_to_its_place() {
        let mut tags = Tags::new();
        tags.fill(LINE, true);
        tags.share(LINE);
        // No other line makes room for it, however often the random way changes.
        for _ in 0..8 {
            assert!(!tags.drop_dirty(LINE));
            tags.fill(LINE, true);
            assert!(tags.holds(LINE) && tags.is_dirty(LINE) && !tags.is_shared(LINE));
            assert_eq!(tags.take(LINE), Some(true));
            assert!(!tags.holds(LINE), "it was there once");
            tags.fill(LINE, true);
            tags.share(LINE);
        }
    }
}
