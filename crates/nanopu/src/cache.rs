//! Which lines a first-level cache holds. Data stays in memory: only presence and dirtiness cost time.

/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;

/// The bus brings it in so many words, one a cycle.
pub(crate) const LINE_WORDS: u64 = 8;

/// 16 KiB in four ways.
const SETS: usize = 64;
const WAYS: usize = 4;

#[derive(Clone, Copy, Default, Debug)]
struct Way {
    line: Option<u64>,
    is_dirty: bool,
}

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
    sets: [[Way; WAYS]; SETS],
    /// A shift register of the longest period, as hardware draws its random ways.
    random: u16,
}

impl Tags {
    pub(crate) fn new() -> Tags {
        Tags { sets: [[Way::default(); WAYS]; SETS], random: 1 }
    }

    pub(crate) fn holds(&self, address: u64) -> bool {
        self.set(address).iter().any(|way| way.line == Some(address / LINE_BYTES))
    }

    /// Brings a line in, in the place of the one that [`Tags::drop_dirty`] would drop.
    pub(crate) fn fill(&mut self, address: u64, is_dirty: bool) {
        let way = self.victim();
        self.sets[set_index(address)][way] = Way { line: Some(address / LINE_BYTES), is_dirty };
        self.draw();
    }

    /// If the line that makes room for another has been written to, drops it and says so.
    pub(crate) fn drop_dirty(&mut self, address: u64) -> bool {
        let way = self.victim();
        let victim = &mut self.sets[set_index(address)][way];
        let was_dirty = victim.is_dirty;
        if was_dirty {
            *victim = Way::default();
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
        self.set(address).iter().any(|way| way.is_dirty && way.line == Some(address / LINE_BYTES))
    }

    pub(crate) fn mark_dirty(&mut self, address: u64) {
        let set = &mut self.sets[set_index(address)];
        set.iter_mut()
            .filter(|way| way.line == Some(address / LINE_BYTES))
            .for_each(|way| way.is_dirty = true);
    }

    pub(crate) fn clear(&mut self) {
        self.sets = [[Way::default(); WAYS]; SETS];
    }

    fn set(&self, address: u64) -> &[Way; WAYS] {
        &self.sets[set_index(address)]
    }
}

fn set_index(address: u64) -> usize {
    (address / LINE_BYTES) as usize % SETS
}
