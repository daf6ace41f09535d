//! Which lines a first-level cache holds. Data stays in memory: only presence and dirtiness cost time.

/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;

/// The bus brings it in so many words, one a cycle.
pub(crate) const LINE_WORDS: u64 = 8;

/// 16 KiB in four ways.
const SETS: usize = 64;
const WAYS: usize = 4;

/// The number of no line.
const NO_LINE: u64 = u64::MAX;

/// When a line arrives that would, alone on the bus, be complete at `last`, while the other cache waits for one until
/// `other`: whichever was asked for first comes first, and the second after it.
pub(crate) fn share_bus(last: u64, other: Option<&mut u64>) -> u64 {
    match other {
        Some(other) if *other > last => {
            *other = (*other).max(last + LINE_WORDS);
            last
        }
        Some(other) => last.max(*other + LINE_WORDS),
        None => last,
    }
}

/// The tags of a cache with random replacement.
#[derive(Clone, Debug)]
pub(crate) struct Tags {
    /// The lines in each set, by way.
    lines: [[u64; WAYS]; SETS],
    /// Which of them have been written to, by bit.
    dirty: [u8; SETS],
    /// A shift register of the longest period, as hardware draws its random ways.
    random: u16,
}

impl Tags {
    pub(crate) fn new() -> Tags {
        Tags { lines: [[NO_LINE; WAYS]; SETS], dirty: [0; SETS], random: 1 }
    }

    #[inline]
    pub(crate) fn holds(&self, address: u64) -> bool {
        self.ways(address) != 0
    }

    /// Brings a line in, in the place of the one that [`Tags::drop_dirty`] would drop.
    pub(crate) fn fill(&mut self, address: u64, is_dirty: bool) {
        let (set, way) = (set_index(address), self.victim());
        self.lines[set][way] = address / LINE_BYTES;
        self.dirty[set] = self.dirty[set] & !(1 << way) | u8::from(is_dirty) << way;
        self.draw();
    }

    /// If the line that makes room for another has been written to, drops it and says so.
    pub(crate) fn drop_dirty(&mut self, address: u64) -> bool {
        let (set, way) = (set_index(address), self.victim());
        let was_dirty = self.dirty[set] >> way & 1 != 0;
        if was_dirty {
            self.lines[set][way] = NO_LINE;
            self.dirty[set] &= !(1 << way);
        }
        was_dirty
    }

    /// Draws the next random way.
    pub(crate) fn draw(&mut self) {
        let bit = |index: u32| self.random >> index & 1;
        self.random = self.random << 1 | (bit(15) ^ bit(13) ^ bit(12) ^ bit(10));
    }

    /// A way at random, even if another is free.
    fn victim(&self) -> usize {
        usize::from(self.random) % WAYS
    }

    pub(crate) fn is_dirty(&self, address: u64) -> bool {
        self.ways(address) & self.dirty[set_index(address)] != 0
    }

    pub(crate) fn mark_dirty(&mut self, address: u64) {
        self.dirty[set_index(address)] |= self.ways(address);
    }

    pub(crate) fn clear(&mut self) {
        (self.lines, self.dirty) = ([[NO_LINE; WAYS]; SETS], [0; SETS]);
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
