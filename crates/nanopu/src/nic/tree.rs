//! Core selection in two levels, for more cores than one row of comparators reaches in time. Beyond the paper.
//!
//! Cores stand in groups. The upper level gives messages to groups, at most as many as their cores may hold and a few more; each group
//! has a small queue and gives them to its cores by JBSQ. A message that waits near the cores waits for the
//! first free core of a group and not for a certain core, so two levels are nearer to one queue for all than
//! JBSQ(2) is.

use std::collections::VecDeque;

use super::select::Selector;
use super::selection::{Selection, TreeShape};

/// The messages that move on when a core joins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined<M> {
    /// Messages of its group that it gets.
    pub for_core: Vec<M>,
    /// Messages that its group gets, which has more room now.
    pub for_group: Vec<M>,
}

/// The selector of one context in two levels. The caller carries messages and "done"s between the levels,
/// which takes time.
#[derive(Clone, Debug)]
pub struct Tree<M> {
    shape: TreeShape,
    /// Messages that wait for a group.
    waiting: VecDeque<M>,
    groups: Vec<Group<M>>,
}

#[derive(Clone, Debug)]
struct Group<M> {
    /// Its cores that have the context.
    members: u32,
    /// Messages given to it of which the upper level has not heard that they are finished.
    outstanding: u32,
    cores: Selector<M>,
}

impl<M> Tree<M> {
    /// For `cores` cores, none of which has joined.
    pub fn new(shape: TreeShape, cores: usize) -> Tree<M> {
        let group = |_| Group {
            members: 0,
            outstanding: 0,
            // A selector knows its cores by their places in the group.
            cores: Selector::without_cores(
                Selection::Jbsq(shape.per_core),
                shape.cores_per_group.max(1) as usize,
            ),
        };
        Tree { shape, waiting: VecDeque::new(), groups: (0..shape.groups(cores)).map(group).collect() }
    }

    /// `core` has the context from now on; it joins once.
    pub fn join(&mut self, core: usize) -> Joined<M> {
        let (number, place) = (self.shape.group_of(core), self.place(core));
        let for_core = self.groups[number].cores.join(place);
        self.groups[number].members += 1;
        let mut for_group = Vec::new();
        while self.room(number) > 0
            && let Some(message) = self.waiting.pop_front()
        {
            self.groups[number].outstanding += 1;
            for_group.push(message);
        }
        Joined { for_core, for_group }
    }

    /// A message has arrived: the group that gets it, or nothing if it waits here.
    pub fn arrive(&mut self, message: M) -> Option<(usize, M)> {
        // The first of those with most room.
        let roomiest = (0..self.groups.len()).rev().max_by_key(|&number| self.room(number));
        match roomiest.filter(|&number| self.room(number) > 0) {
            Some(number) => {
                self.groups[number].outstanding += 1;
                Some((number, message))
            }
            None => {
                self.waiting.push_back(message);
                None
            }
        }
    }

    /// A message is at its group: the core that gets it, or nothing if it waits there.
    pub fn arrive_at(&mut self, group: usize, message: M) -> Option<(usize, M)> {
        let (place, message) = self.groups[group].cores.arrive(message, 0)?;
        Some((group * self.shape.cores_per_group.max(1) as usize + place, message))
    }

    /// `core` has finished a message. Returns its next one, if any waits in its group.
    pub fn finish(&mut self, core: usize) -> Option<M> {
        let place = self.place(core);
        self.groups[self.shape.group_of(core)].cores.finish(place)
    }

    /// The upper level learns that a core of `group` has finished a message. Returns the group's next one, if
    /// any waits.
    pub fn hear(&mut self, group: usize) -> Option<M> {
        let group = &mut self.groups[group];
        let next = if group.outstanding > 0 { self.waiting.pop_front() } else { None };
        if next.is_none() {
            group.outstanding = group.outstanding.saturating_sub(1);
        }
        next
    }

    /// Messages that wait for a group.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The group of a core.
    pub fn group_of(&self, core: usize) -> usize {
        self.shape.group_of(core)
    }

    fn place(&self, core: usize) -> usize {
        core % self.shape.cores_per_group.max(1) as usize
    }

    /// How many messages more a group may get.
    fn room(&self, group: usize) -> u32 {
        let Group { members, outstanding, .. } = self.groups[group];
        match members {
            0 => 0,
            _ => (members * self.shape.per_core.max(1) + self.shape.per_group).saturating_sub(outstanding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    const SHAPE: TreeShape = TreeShape { cores_per_group: 2, per_core: 1, per_group: 1 };

    fn tree(cores: usize) -> Tree<u32> {
        let mut tree = Tree::new(SHAPE, cores);
        for core in 0..cores {
            tree.join(core);
        }
        tree
    }

    #[test]
    fn groups_with_most_room_come_first() {
        let mut tree = tree(4);
        let given: Vec<_> = (0..7).map(|message| tree.arrive(message)).collect();
        let groups: Vec<_> = given.iter().map(|given| given.map(|(group, _)| group)).collect();
        assert_eq!(groups, [Some(0), Some(1), Some(0), Some(1), Some(0), Some(1), None]);
        assert_eq!(tree.arrive_at(0, 0), Some((0, 0)));
        assert_eq!(tree.arrive_at(0, 2), Some((1, 2)));
        assert_eq!(tree.arrive_at(0, 4), None);
        assert_eq!(tree.arrive_at(1, 1), Some((2, 1)));
        // A message that waits in the group goes to the first core that is done.
        assert_eq!((tree.finish(1), tree.hear(0)), (Some(4), Some(6)));
        assert_eq!((tree.finish(0), tree.hear(0)), (None, None));
        assert_eq!(tree.waiting(), 0);
    }

    #[test]
    fn messages_wait_for_a_core_that_joins() {
        let mut tree: Tree<u32> = Tree::new(SHAPE, 4);
        assert_eq!((tree.arrive(1), tree.arrive(2), tree.arrive(3)), (None, None, None));
        assert_eq!(tree.join(3), Joined { for_core: vec![], for_group: vec![1, 2] });
        assert_eq!(tree.arrive_at(1, 1), Some((3, 1)));
        assert_eq!(tree.arrive_at(1, 2), None);
        assert_eq!(tree.join(2), Joined { for_core: vec![2], for_group: vec![3] });
    }

    /// For any messages in any order: none is lost, and no core has more than it may.
    #[test]
    fn every_message_is_served_once() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let shape = TreeShape {
                cores_per_group: rng.between(1, 5) as u32,
                per_core: rng.between(1, 3) as u32,
                per_group: rng.below(3) as u32,
            };
            let cores = rng.between(1, 17) as usize;
            let mut tree: Tree<u32> = Tree::new(shape, cores);
            let (mut sent, mut next) = (0, 0);
            let mut on_way = VecDeque::new();
            let mut held = vec![Vec::new(); cores];
            let mut news = VecDeque::new();
            let mut served = Vec::new();
            let mut joined = 0;
            while served.len() < 300 {
                match rng.below(5) {
                    0 if joined < cores => {
                        let Joined { for_core, for_group } = tree.join(joined);
                        held[joined].extend(for_core);
                        on_way.extend(for_group.into_iter().map(|it| (shape.group_of(joined), it)));
                        joined += 1;
                    }
                    1 if sent < 300 => {
                        on_way.extend(tree.arrive(sent));
                        sent += 1;
                    }
                    2 => {
                        if let Some((group, message)) = on_way.pop_front()
                            && let Some((core, message)) = tree.arrive_at(group, message)
                        {
                            assert_eq!(shape.group_of(core), group);
                            held[core].push(message);
                        }
                    }
                    3 => {
                        next = (next + 1) % cores;
                        if let Some(message) = held[next].pop() {
                            served.push(message);
                            held[next].extend(tree.finish(next));
                            news.push_back(shape.group_of(next));
                        }
                    }
                    _ => {
                        if let Some(group) = news.pop_front() {
                            on_way.extend(tree.hear(group).map(|message| (group, message)));
                        }
                    }
                }
                assert!(held.iter().all(|held| held.len() <= shape.per_core as usize), "seed {seed}");
            }
            served.sort_unstable();
            assert!(served.into_iter().eq(0..300), "seed {seed}");
        }
    }
}
