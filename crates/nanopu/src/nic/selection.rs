//! Which way of core selection a NIC has.

/// How messages find their cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// The core with the fewest messages, if it has less than this many; at least one.
    Jbsq(u32),
    /// The core that the flow's hash picks.
    Rss,
    /// JBSQ in two levels: see [`Tree`](super::Tree).
    Tree(TreeShape),
}

/// The shape of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeShape {
    /// Cores of a group, at least one. The last group has the remaining ones.
    pub cores_per_group: u32,
    /// The most messages that a core holds, as in JBSQ; at least one.
    pub per_core: u32,
    /// Messages that a group holds beyond those of its cores.
    pub per_group: u32,
}

impl TreeShape {
    /// The group of a core.
    pub fn group_of(self, core: usize) -> usize {
        core / self.cores_per_group.max(1) as usize
    }

    /// How many groups so many cores are.
    pub fn groups(self, cores: usize) -> usize {
        cores.max(1).div_ceil(self.cores_per_group.max(1) as usize)
    }
}
