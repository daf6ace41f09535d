//! Pseudo-least-recent use.

/// Which of several entries was not used for long: a binary tree of bits that point away from the last use.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    ways: usize,
    /// Whether the upper part of each node's range is the older one, by (first, count) of the range.
    older_is_upper: Vec<bool>,
}

impl Tree {
    pub(super) fn new(ways: usize) -> Tree {
        Tree { ways, older_is_upper: vec![false; 2 * ways] }
    }

    /// A range is split so that the lower part is a power of two, at least half of it.
    fn split(count: usize) -> usize {
        count.next_power_of_two() / 2
    }

    pub(super) fn touch(&mut self, way: usize) {
        let (mut first, mut count, mut node) = (0, self.ways, 0);
        while count > 1 {
            let lower = Tree::split(count);
            let is_upper = way >= first + lower;
            self.older_is_upper[node] = !is_upper;
            (first, count, node) = if is_upper {
                (first + lower, count - lower, node + lower)
            } else {
                (first, lower, node + 1)
            };
        }
    }

    pub(super) fn oldest(&self) -> usize {
        let (mut first, mut count, mut node) = (0, self.ways, 0);
        while count > 1 {
            let lower = Tree::split(count);
            (first, count, node) = if self.older_is_upper[node] {
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
