//! The bytes that a sender knows to have arrived beyond the cumulative acknowledgement (RFC 6675 §3, §4).
//!
//! Invariant: ranges are sorted, not empty, and neither touch nor overlap each other.

/// The selectively acknowledged bytes, as half-open ranges of offsets in the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    ranges: Vec<(u64, u64)>,
}

/// A segment counts as lost when so many above it have arrived (RFC 6675 §2).
pub(super) const DUP_THRESH: u32 = 3;

impl Scoreboard {
    /// Marks `from..to`; returns how many bytes were not marked before.
    pub(super) fn insert(&mut self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        // Everything that touches the new range becomes one with it.
        let first = self.ranges.partition_point(|&(_, end)| end < from);
        let after = self.ranges.partition_point(|&(start, _)| start <= to);
        let old: u64 = self.ranges[first..after].iter().map(|(start, end)| end - start).sum();
        let start = self.ranges[first..after].first().map_or(from, |r| r.0.min(from));
        let end = self.ranges[first..after].last().map_or(to, |r| r.1.max(to));
        self.ranges.splice(first..after, [(start, end)]);
        end - start - old
    }

    /// Forgets what lies before `to`.
    pub(super) fn advance(&mut self, to: u64) {
        let gone = self.ranges.partition_point(|&(_, end)| end <= to);
        self.ranges.drain(..gone);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(to);
        }
    }

    /// Where the highest range ends.
    pub(super) fn highest(&self) -> Option<u64> {
        self.ranges.last().map(|r| r.1)
    }

    /// Unmarked bytes before this are lost: three ranges or more than two segments above them have arrived (`IsLost`).
    pub(super) fn lost_before(&self, mss: u32) -> Option<u64> {
        let (mut count, mut bytes) = (0, 0);
        self.ranges.iter().rev().find_map(|&(start, end)| {
            count += 1;
            bytes += end - start;
            (count >= DUP_THRESH || bytes > u64::from((DUP_THRESH - 1) * mss)).then_some(start)
        })
    }

    /// How many bytes of `from..to` are not marked.
    pub(super) fn unmarked(&self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        let begin = self.ranges.partition_point(|&(_, end)| end <= from);
        let overlap = |&(start, end): &(u64, u64)| end.min(to).saturating_sub(start.max(from));
        let marked: u64 =
            self.ranges[begin..].iter().take_while(|&&(start, _)| start < to).map(overlap).sum();
        to - from - marked
    }

    /// The first unmarked stretch of `from..to`.
    pub(super) fn gap(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let next = self.ranges.partition_point(|&(_, end)| end <= from);
        let (start, end) = match self.ranges.get(next) {
            Some(&(start, end)) if start <= from => {
                (end, self.ranges.get(next + 1).map_or(to, |&(start, _)| start))
            }
            Some(&(start, _)) => (from, start),
            None => (from, to),
        };
        (start < to).then_some((start, end.min(to)))
    }

    /// The last unmarked stretch of `from..to`.
    pub(super) fn last_gap(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let mut end = to;
        for &(start, stop) in self.ranges.iter().rev().filter(|&&(start, _)| start < to) {
            if stop < end {
                return (stop.max(from) < end).then_some((stop.max(from), end));
            }
            end = start;
        }
        (from < end).then_some((from, end))
    }

    /// The ranges, lowest first.
    pub(super) fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    /// The same with a boolean per byte.
    fn naive_gap(marked: &[bool], from: u64, to: u64) -> Option<(u64, u64)> {
        let start = (from..to).find(|&i| !marked[i as usize])?;
        let end = (start..to).find(|&i| marked[i as usize]).unwrap_or(to);
        Some((start, end))
    }

    fn naive_last_gap(marked: &[bool], from: u64, to: u64) -> Option<(u64, u64)> {
        let last = (from..to).rev().find(|&i| !marked[i as usize])?;
        let start = (from..last).rev().find(|&i| marked[i as usize]).map_or(from, |i| i + 1);
        Some((start, last + 1))
    }

    #[test]
    fn agrees_with_a_boolean_per_byte() {
        const SIZE: u64 = 120;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut board = Scoreboard::default();
            let mut marked = vec![false; SIZE as usize];
            for _ in 0..40 {
                if rng.chance(0.1) {
                    let to = rng.below(SIZE / 2);
                    board.advance(to);
                    marked[..to as usize].fill(false);
                } else {
                    let from = rng.below(SIZE);
                    let to = (from + rng.below(14)).min(SIZE);
                    let fresh = (from..to).filter(|&i| !marked[i as usize]).count() as u64;
                    marked[from as usize..to.max(from) as usize].fill(true);
                    assert_eq!(board.insert(from, to), fresh);
                }
                let (a, b) = (rng.below(SIZE), rng.below(SIZE + 1));
                let expected = (a..b).filter(|&i| !marked[i as usize]).count() as u64;
                assert_eq!(board.unmarked(a, b), expected);
                if a < b {
                    assert_eq!(board.gap(a, b), naive_gap(&marked, a, b), "{board:?} {a}..{b}");
                    assert_eq!(board.last_gap(a, b), naive_last_gap(&marked, a, b), "{board:?} {a}..{b}");
                }
                let top = marked.iter().rposition(|m| *m).map(|i| i as u64 + 1);
                assert_eq!(board.highest(), top);
            }
        }
    }

    #[test]
    fn lost_is_what_lies_below_three_ranges_or_more_than_two_segments() {
        let mss = 10;
        let mut board = Scoreboard::default();
        assert_eq!(board.lost_before(mss), None);
        board.insert(20, 40);
        assert_eq!(board.lost_before(mss), None, "two segments are not enough");
        board.insert(40, 41);
        assert_eq!(board.lost_before(mss), Some(20));
        let mut board = Scoreboard::default();
        for start in [10, 20, 30] {
            board.insert(start, start + 1);
        }
        assert_eq!(board.lost_before(mss), Some(10), "three ranges, however short");
        board.insert(40, 41);
        assert_eq!(board.lost_before(mss), Some(20));
    }
}
