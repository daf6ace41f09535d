//! The packets that a sender knows to have arrived beyond the cumulative acknowledgement (IRN §3.1).
//!
//! Invariants: every set bit lies in `front..front + capacity`; `highest` is meaningful exactly while `count > 0`. An
//! empty window slides without touching its words, which is all that a loss-free flow ever does.

use super::ring::{self, Spans};
use highwire_wire::Psn;

/// The selectively acknowledged packets from the first unacknowledged one on.
#[derive(Clone, Debug)]
pub struct SackWindow {
    front: Psn,
    highest: Psn,
    count: u32,
    words: Box<[u64]>,
}

impl SackWindow {
    /// An empty window that starts at `front` and can hold `packets`, rounded up to a power of two.
    pub fn new(front: Psn, packets: u32) -> SackWindow {
        let words = vec![0; (ring::capacity_for(packets) / 64) as usize].into_boxed_slice();
        SackWindow { front, highest: front, count: 0, words }
    }

    /// The oldest packet of the window.
    #[inline]
    pub fn front(&self) -> Psn {
        self.front
    }

    /// How many packets from the front on the window can track.
    pub fn capacity(&self) -> u32 {
        self.words.len() as u32 * 64
    }

    /// How many packets are marked.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether no packet is marked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The last packet that is marked.
    pub fn highest(&self) -> Option<Psn> {
        (self.count > 0).then_some(self.highest)
    }

    /// Whether `psn` is marked; packets outside the window are not.
    pub fn contains(&self, psn: Psn) -> bool {
        if self.count == 0 || psn.is_before(self.front) || self.highest.is_before(psn) {
            return false;
        }
        let index = psn.value() & (self.capacity() - 1);
        self.words[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Marks the `run` packets that end at `high`, except those outside the window; returns how many were not yet marked.
    pub fn insert_run(&mut self, high: Psn, run: u32) -> u32 {
        let height = high.distance_from(self.front);
        if height < 0 || height as u32 >= self.capacity() {
            return 0;
        }
        let run = run.min(height as u32 + 1);
        let mut fresh = 0;
        for (word, mask) in Spans::new(high.sub(run).next(), run, self.capacity()) {
            fresh += (mask & !self.words[word]).count_ones();
            self.words[word] |= mask;
        }
        if run > 0 && (self.count == 0 || self.highest.is_before(high)) {
            self.highest = high;
        }
        self.count += fresh;
        fresh
    }

    /// Moves the front forward to `to`, forgetting what lies before it; returns how many marked packets that were. Does
    /// nothing if `to` does not lie after the front.
    #[inline]
    pub fn advance(&mut self, to: Psn) -> u32 {
        let steps = to.distance_from(self.front);
        if steps <= 0 {
            return 0;
        }
        let forgotten = if self.count == 0 { 0 } else { self.forget(steps as u32) };
        self.front = to;
        forgotten
    }

    /// The first packet at or after `from` that is not marked although a later one is: a hole, hence presumed lost.
    pub fn next_hole(&self, from: Psn) -> Option<Psn> {
        let start = if from.is_before(self.front) { self.front } else { from };
        let width = self.highest.distance_from(start);
        if self.count == 0 || width <= 0 {
            return None;
        }
        let capacity = self.capacity();
        Spans::new(start, width as u32, capacity).find_map(|(word, mask)| {
            let clear = !self.words[word] & mask;
            let index = word as u32 * 64 + clear.trailing_zeros();
            (clear != 0).then(|| start.add(index.wrapping_sub(start.value()) & (capacity - 1)))
        })
    }

    /// The marked packets in order.
    pub fn iter(&self) -> impl Iterator<Item = Psn> + '_ {
        let width = if self.count == 0 { 0 } else { self.highest.distance_from(self.front) + 1 };
        (0..width as u32).map(|i| self.front.add(i)).filter(|&psn| self.contains(psn))
    }

    fn forget(&mut self, steps: u32) -> u32 {
        let mut forgotten = 0;
        for (word, mask) in Spans::new(self.front, steps.min(self.capacity()), self.capacity()) {
            forgotten += (self.words[word] & mask).count_ones();
            self.words[word] &= !mask;
        }
        self.count -= forgotten;
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    /// The same as a plain list of booleans, of which the first stands for `front`.
    struct Naive {
        front: Psn,
        marked: Vec<bool>,
    }

    impl Naive {
        fn hole(&self, from: Psn) -> Option<Psn> {
            let last = self.marked.iter().rposition(|m| *m)?;
            let start = from.distance_from(self.front).max(0) as usize;
            (start..last).find(|&i| !self.marked[i]).map(|i| self.front.add(i as u32))
        }
    }

    fn check(seed: u64, packets: u32) {
        let mut rng = Rng::new(seed);
        // Half of the runs cross the wrap.
        let front = Psn::new(if rng.chance(0.5) {
            rng.next_u32()
        } else {
            0u32.wrapping_sub(rng.below(2000) as u32)
        });
        let mut window = SackWindow::new(front, packets);
        let capacity = window.capacity() as usize;
        let mut naive = Naive { front, marked: vec![false; capacity] };
        for _ in 0..300 {
            if rng.chance(0.3) {
                let bound = if rng.chance(0.1) { 2 * capacity as u64 } else { 9 };
                let steps = rng.below(bound) as usize;
                let gone = naive.marked.drain(..steps.min(capacity)).filter(|m| *m).count();
                naive.marked.resize(capacity, false);
                naive.front = naive.front.add(steps as u32);
                assert_eq!(window.advance(naive.front), gone as u32);
            } else {
                let high = rng.below(capacity as u64 + 8) as usize;
                let run = rng.below(12) as usize;
                let mut fresh = 0;
                for i in (high + 1).saturating_sub(run)..=high {
                    if high < capacity && run > 0 && !naive.marked[i] {
                        naive.marked[i] = true;
                        fresh += 1;
                    }
                }
                assert_eq!(window.insert_run(naive.front.add(high as u32), run as u32), fresh);
            }
            let at = |i: usize| naive.front.add(i as u32);
            assert_eq!(window.front(), naive.front);
            assert_eq!(window.count() as usize, naive.marked.iter().filter(|m| **m).count());
            assert_eq!(window.highest(), naive.marked.iter().rposition(|m| *m).map(at));
            let from = at(rng.below(capacity as u64) as usize).sub(3);
            assert_eq!(window.next_hole(from), naive.hole(from));
            let probe = rng.below(capacity as u64) as usize;
            assert_eq!(window.contains(at(probe)), naive.marked[probe]);
            assert!(!window.contains(at(0).sub(1)) && !window.contains(at(capacity)));
            let listed = (0..capacity).filter(|&i| naive.marked[i]).map(at);
            assert!(window.iter().eq(listed));
        }
    }

    #[test]
    fn agrees_with_a_naive_window() {
        for seed in 0..60 {
            check(seed, [1, 64, 111, 512][seed as usize % 4]);
        }
    }
}
