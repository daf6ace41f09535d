//! The events of a node's membership, with their times: for a person who wants to know how long a fault was
//! felt, and why.
//!
//! Times are of `CLOCK_BOOTTIME`, which all processes of one machine share; those of two machines must not be compared.

use highwire_txn::{Node, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Older milestones are forgotten.
const KEPT: usize = 64;

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestone {
    /// When, in nanoseconds of `CLOCK_BOOTTIME`.
    pub at_ns: u64,
    /// The configuration that the node knew then.
    pub configuration: u32,
    /// What happened.
    pub event: MilestoneEvent,
}

/// What may happen to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MilestoneEvent {
    /// It has heard nothing of another member for too long.
    Suspected(u16),
    /// It has taken a configuration with these members for its own; no transaction runs until recovery is
    /// over.
    Adopted(Vec<u16>),
    /// Recovery is over: transactions run.
    Opened,
    /// It knows that all data has all its copies. Only the configuration's manager learns it at once.
    Settled,
    /// The others go on without it.
    Removed,
}

/// Notices changes, and keeps the latest.
#[derive(Debug, Default)]
pub(crate) struct Milestones {
    kept: VecDeque<Milestone>,
    suspects: Vec<NodeId>,
    configuration: u32,
    revision: u32,
    is_member: bool,
    is_open: bool,
    is_settled: bool,
}

impl Milestones {
    pub(crate) fn list(&self) -> Vec<Milestone> {
        self.kept.iter().cloned().collect()
    }

    /// The node's thread calls this when time has passed: only time makes suspicion.
    pub(crate) fn look_for_suspects(&mut self, node: &Node, now_ns: u64) {
        let suspects = node.suspects();
        for suspect in suspects.iter().filter(|suspect| !self.suspects.contains(suspect)) {
            keep(&mut self.kept, node, now_ns, MilestoneEvent::Suspected(suspect.0));
        }
        self.suspects = suspects;
    }

    /// The node's thread calls this after every turn; most turns change nothing.
    pub(crate) fn look(&mut self, node: &Node, f: usize, now_ns: u64) {
        let known = node.configuration();
        let same = (known.id, known.revision) == (self.configuration, self.revision);
        if same && node.is_open() == self.is_open {
            return;
        }
        let is_new = known.id != self.configuration;
        let is_member = known.boot(node.id()) == Some(node.boot());
        if is_member && (is_new || !self.is_member) {
            let members = known.nodes().map(|member| member.0).collect();
            keep(&mut self.kept, node, now_ns, MilestoneEvent::Adopted(members));
        } else if !is_member && self.is_member {
            keep(&mut self.kept, node, now_ns, MilestoneEvent::Removed);
        }
        if node.is_open() && (is_new || !self.is_open) {
            keep(&mut self.kept, node, now_ns, MilestoneEvent::Opened);
        }
        let is_settled = is_member && known.is_settled(f);
        if is_settled && (is_new || !self.is_settled) {
            keep(&mut self.kept, node, now_ns, MilestoneEvent::Settled);
        }
        (self.configuration, self.revision) = (known.id, known.revision);
        (self.is_member, self.is_open, self.is_settled) = (is_member, node.is_open(), is_settled);
    }
}

fn keep(kept: &mut VecDeque<Milestone>, node: &Node, at_ns: u64, event: MilestoneEvent) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(Milestone { at_ns, configuration: node.configuration().id, event });
}
