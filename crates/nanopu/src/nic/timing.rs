//! How long core selection takes, by how many cores there are.
//!
//! The prototype's constants are those of its four cores. Where cores are many, comparators are deeper and wires longer; both are
//! estimates, made here, with their reasons.

use super::selection::Selection;

/// Cycles from a message to its first word in a core's queue, on the prototype.
const DISPATCH_CYCLES: u64 = 2;
/// Cycles from a core's "done" to the next message on its way, on the prototype.
const NEXT_CYCLES: u64 = 2;

/// Cycles of core selection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectionTiming {
    /// From a message to its first word on the way to its core or group.
    pub dispatch_cycles: u64,
    /// From a core's "done" at the NIC to the next message on its way.
    pub next_cycles: u64,
    /// One message is selected a core in so many cycles: a choice depends on the counts that the one before it has changed.
    pub choice_cycles: u64,
    /// Between the NIC and a core, or its group, each way.
    pub wire_cycles: u64,
    /// From a message's first word at its group to the word's way to a core, and from a core's "done" to the
    /// group's next message.
    pub group_cycles: u64,
}

impl SelectionTiming {
    /// The prototype's, however many cores there are.
    pub const PROTOTYPE: SelectionTiming = SelectionTiming {
        dispatch_cycles: DISPATCH_CYCLES,
        next_cycles: NEXT_CYCLES,
        choice_cycles: 1,
        wire_cycles: 0,
        group_cycles: NEXT_CYCLES,
    };

    /// An estimate for so many cores.
    pub fn estimate(selection: Selection, cores: usize) -> SelectionTiming {
        let (compared, near) = match selection {
            Selection::Rss => (1, 1),
            Selection::Jbsq(_) => (cores, 1),
            Selection::Tree(shape) => (shape.groups(cores), cores.min(shape.cores_per_group.max(1) as usize)),
        };
        let choice_cycles = comparison_cycles(compared);
        SelectionTiming {
            dispatch_cycles: choice_cycles,
            next_cycles: choice_cycles,
            choice_cycles,
            wire_cycles: wire_cycles(cores),
            group_cycles: comparison_cycles(near),
        }
    }
}

/// Cycles to find the shortest of so many queues. `rtl/core_selector.sv` is 61 gates deep for 4 cores and 113
/// for 32 (docs/rtl.md), so 17 more for twice as many; and the prototype does the former in two cycles.
fn comparison_cycles(queues: usize) -> u64 {
    const GATES_OF_FOUR: f64 = 61.0;
    const GATES_PER_DOUBLING: f64 = (113.0 - GATES_OF_FOUR) / 3.0;
    let doublings = (queues.max(4) as f64 / 4.0).log2();
    let depth = 1.0 + doublings * GATES_PER_DOUBLING / GATES_OF_FOUR;
    (depth * DISPATCH_CYCLES as f64).ceil() as u64
}

/// Cycles of the wire to the farthest core: a square of tiles of 1 mm² with the NIC in the middle of an edge,
/// and wires with repeaters that cross 3 mm in a cycle of 312.5 ps, about 100 ps for each. The prototype's
/// own wires, one cycle by this rule, are in its constants.
fn wire_cycles(cores: usize) -> u64 {
    const MILLIMETRES_PER_CYCLE: f64 = 3.0;
    let millimetres = 1.5 * (cores.max(1) as f64).sqrt();
    ((millimetres / MILLIMETRES_PER_CYCLE) as u64).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::TreeShape;

    #[test]
    fn four_cores_take_what_the_prototype_does() {
        let SelectionTiming { dispatch_cycles, next_cycles, wire_cycles, .. } =
            SelectionTiming::estimate(Selection::Jbsq(2), 4);
        assert_eq!((dispatch_cycles, next_cycles, wire_cycles), (2, 2, 0));
    }

    #[test]
    fn many_cores_take_longer_and_trees_less() {
        let flat = [32, 64, 128, 256].map(|cores| SelectionTiming::estimate(Selection::Jbsq(2), cores));
        assert_eq!(flat.map(|timing| timing.choice_cycles), [4, 5, 5, 6]);
        assert_eq!(flat.map(|timing| timing.wire_cycles), [1, 3, 4, 7]);
        let shape = TreeShape { cores_per_group: 16, per_core: 1, per_group: 1 };
        let tree = SelectionTiming::estimate(Selection::Tree(shape), 256);
        assert_eq!((tree.choice_cycles, tree.group_cycles, tree.wire_cycles), (4, 4, 7));
    }
}
