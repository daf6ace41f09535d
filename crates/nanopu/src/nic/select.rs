//! Core selection: which core of a nanoPU serves a message (nanoPU §3.3).
//!
//! Join bounded shortest queue, JBSQ(n): a core holds at most *n* messages, the one that it works on included; the rest wait
//! in arrival order. With n = 1 it is one queue for all cores, without a bound it is join-shortest-queue.
//! RSS, for comparison, looks at nothing but the message's flow.

use std::collections::VecDeque;

use super::selection::Selection;

/// The selector of one context: counts per core, and the messages that wait for one. It has one level; of a tree it knows the cores'
/// bound only.
///
/// `M` stands for a message: a buffer's number, or a record of a queueing model.
#[derive(Clone, Debug)]
pub struct Selector<M> {
    selection: Selection,
    outstanding: Vec<u32>,
    /// The cores that have the context, in order.
    members: Vec<usize>,
    waiting: VecDeque<M>,
}

impl<M> Selector<M> {
    /// Selects among `cores` cores, at least one.
    pub fn new(selection: Selection, cores: usize) -> Selector<M> {
        Selector { members: (0..cores.max(1)).collect(), ..Selector::without_cores(selection, cores) }
    }

    /// A selector that selects a core only once it has joined.
    pub fn without_cores(selection: Selection, cores: usize) -> Selector<M> {
        let outstanding = vec![0; cores.max(1)];
        Selector { selection, outstanding, members: Vec::new(), waiting: VecDeque::new() }
    }

    /// `core` has the context from now on. Returns the messages that have waited for it.
    pub fn join(&mut self, core: usize) -> Vec<M> {
        let Err(place) = self.members.binary_search(&core) else { return Vec::new() };
        self.members.insert(place, core);
        let count = self.waiting.len().min(self.bound() as usize);
        self.outstanding[core] += count as u32;
        self.waiting.drain(..count).collect()
    }

    /// The most messages that a core holds.
    fn bound(&self) -> u32 {
        match self.selection {
            Selection::Jbsq(bound) => bound.max(1),
            Selection::Tree(shape) => shape.per_core.max(1),
            Selection::Rss => u32::MAX,
        }
    }

    /// A message has arrived whose flow hashes to `hash`: the core that gets it, or nothing if it waits here.
    pub fn arrive(&mut self, message: M, hash: u64) -> Option<(usize, M)> {
        // The first of the shortest: the hardware's comparators prefer lower numbers.
        let shortest = self.members.iter().copied().min_by_key(|&core| self.outstanding[core]);
        let core = match self.selection {
            Selection::Rss => self.members.get((hash % self.members.len().max(1) as u64) as usize).copied(),
            Selection::Jbsq(_) | Selection::Tree(_) => {
                shortest.filter(|&core| self.outstanding[core] < self.bound())
            }
        };
        let Some(core) = core else {
            self.waiting.push_back(message);
            return None;
        };
        self.outstanding[core] += 1;
        Some((core, message))
    }

    /// `core` has finished a message: the next one for it, if any waits.
    ///
    /// A core that finishes more than it was given gets nothing for it, and its count stays at zero.
    pub fn finish(&mut self, core: usize) -> Option<M> {
        let next = if self.outstanding[core] > 0 { self.waiting.pop_front() } else { None };
        if next.is_none() {
            self.outstanding[core] = self.outstanding[core].saturating_sub(1);
        }
        next
    }

    /// Messages that `core` has been given and not finished.
    pub fn outstanding(&self, core: usize) -> u32 {
        self.outstanding[core]
    }

    /// The messages that wait for a core, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &M> {
        self.waiting.iter()
    }

    /// Messages that wait for a core.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_the_shortest_queue_first_and_then_waits() {
        let mut selector = Selector::new(Selection::Jbsq(2), 2);
        let given: Vec<_> = (0..5).map(|message| selector.arrive(message, 0)).collect();
        assert_eq!(given, [Some((0, 0)), Some((1, 1)), Some((0, 2)), Some((1, 3)), None]);
        assert_eq!((selector.outstanding(0), selector.waiting()), (2, 1));
        assert_eq!(selector.finish(1), Some(4));
        assert_eq!(selector.finish(1), None);
        assert_eq!((selector.outstanding(1), selector.waiting()), (1, 0));
        assert_eq!(selector.arrive(5, 0), Some((1, 5)));
    }

    #[test]
    fn hashes_are_obeyed_whatever_the_queues() {
        let mut selector = Selector::new(Selection::Rss, 3);
        assert_eq!(selector.arrive('a', 7), Some((1, 'a')));
        assert_eq!(selector.arrive('b', 7), Some((1, 'b')));
        assert_eq!(selector.finish(1), None);
        assert_eq!(selector.outstanding(1), 1);
    }

    #[test]
    fn only_cores_that_have_the_context_get_messages() {
        let mut selector = Selector::without_cores(Selection::Jbsq(1), 4);
        assert_eq!((selector.arrive('a', 0), selector.arrive('b', 0)), (None, None));
        assert_eq!(selector.join(2), ['a']);
        assert_eq!(selector.join(2), []);
        assert_eq!(selector.join(0), ['b']);
        assert_eq!((selector.arrive('c', 0), selector.finish(2)), (None, Some('c')));
        let mut selector = Selector::without_cores(Selection::Rss, 4);
        assert!(selector.join(3).is_empty());
        assert_eq!(selector.arrive('d', 5), Some((3, 'd')));
    }

    #[test]
    fn too_many_finishes_do_no_harm() {
        let mut selector = Selector::<u8>::new(Selection::Jbsq(0), 0);
        assert_eq!(selector.finish(0), None);
        assert_eq!(selector.arrive(1, 0), Some((0, 1)));
        assert_eq!(selector.arrive(2, 0), None);
    }
}
