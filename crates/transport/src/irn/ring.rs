//! Bitmaps indexed by PSN: packet `p` owns bit `p mod capacity`, so that sliding a window clears bits instead of moving
//! them, and the size is a run-time choice. A power-of-two capacity divides the 2^24 PSNs, so nothing special happens where
//! they wrap.

use highwire_wire::Psn;

/// The power of two of bits that holds `packets`, at least one word.
pub(super) fn capacity_for(packets: u32) -> u32 {
    packets.next_power_of_two().max(64)
}

/// The words, each with a mask, that hold `count` bits from `start` on.
pub(super) struct Spans {
    position: u32,
    left: u32,
    capacity: u32,
}

impl Spans {
    pub(super) fn new(start: Psn, count: u32, capacity: u32) -> Spans {
        debug_assert!(
            capacity.is_power_of_two() && count <= capacity,
            "{count} bits in a ring of {capacity}"
        );
        Spans { position: start.value() & (capacity - 1), left: count, capacity }
    }
}

impl Iterator for Spans {
    type Item = (usize, u64);

    fn next(&mut self) -> Option<(usize, u64)> {
        if self.left == 0 {
            return None;
        }
        let (word, bit) = (self.position / 64, self.position % 64);
        let bits = self.left.min(64 - bit);
        self.position = (self.position + bits) & (self.capacity - 1);
        self.left -= bits;
        Some((word as usize, (u64::MAX >> (64 - bits)) << bit))
    }
}
