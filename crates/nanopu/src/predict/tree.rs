//! Pseudo-least-recent use.

/// Finds an entry that was not used for long: a binary tree of bits that point away from the last use.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    ways: usize,
    /// Whether the upper part of each node's range is the older one, by bit.
    older_is_upper: u32,
    /// For each way, the bits on its path, and those of them that a use sets.
    paths: [(u32, u32); WAYS_MAX],
}

/// Ways are numbers of five bits.
const WAYS_MAX: usize = 32;

impl Tree {
    /// A tree over at most 32 ways.
    pub(super) fn new(ways: usize) -> Tree {
        let mut paths = [(0, 0); WAYS_MAX];
        for (way, path) in paths.iter_mut().enumerate() {
            // A mixture of entries' numbers may be the number of no entry; the tree then goes by its low
            // bits.
            *path = Tree::path(ways, if way < ways { way } else { way.saturating_sub(WAYS_MAX - ways) });
        }
        Tree { ways, older_is_upper: 0, paths }
    }

    /// A range is split so that the lower part is a power of two, at least half of it.
    fn split(count: usize) -> usize {
        count.next_power_of_two() / 2
    }

    fn path(ways: usize, way: usize) -> (u32, u32) {
        let (mut first, mut count, mut node) = (0, ways, 0);
        let (mut all, mut set) = (0, 0);
        while count > 1 {
            let lower = Tree::split(count);
            let is_upper = way >= first + lower;
            all |= 1 << node;
            set |= u32::from(!is_upper) << node;
            (first, count, node) = if is_upper {
                (first + lower, count - lower, node + lower)
            } else {
                (first, lower, node + 1)
            };
        }
        (all, set)
    }

    #[inline(always)]
    pub(super) fn touch(&mut self, way: usize) {
        let (all, set) = self.paths[way % WAYS_MAX];
        self.older_is_upper = self.older_is_upper & !all | set;
    }

    pub(super) fn oldest(&self) -> usize {
        let (mut first, mut count, mut node) = (0, self.ways, 0);
        while count > 1 {
            let lower = Tree::split(count);
            (first, count, node) = if self.older_is_upper >> node & 1 != 0 {
                (first + lower, count - lower, node + lower)
            } else {
                (first, lower, node + 1)
            };
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_way_is_never_the_last_one_used() {
        let mut tree = Tree::new(28);
        assert_eq!(tree.oldest(), 0);
        for step in 0..1000 {
            let way = step * 17 % 28;
            tree.touch(way);
            assert_ne!(tree.oldest(), way);
            assert!(tree.oldest() < 28);
        }
    }
}
