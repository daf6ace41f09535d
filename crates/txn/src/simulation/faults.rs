//! The greater faults: crashes, pauses, partitions, a silent configuration service, nodes that leave.
//!
//! The promise holds for f failures at once, so the simulator makes no more. A node that is cut off or paused
//! may be removed and then has lost its memory as surely as by a crash; it counts as a failure until some
//! time after.

use std::collections::BTreeSet;

use crate::id::NodeId;

use super::world::{Ambush, Event, World};

/// How long a disturbance may still lead to a removal after it ended: a suspicion, and a late change at the service.
const AFTERMATH_NS: u64 = 40_000_000;

impl World {
    pub(super) fn run_with_faults(&mut self) {
        self.run(self.plan.faulty_ns, |_| false);
    }

    pub(super) fn inject(&mut self) {
        if self.is_healed {
            return;
        }
        let mean = self.plan.fault_every_ns;
        let next = self.rng.between(mean / 4, mean * 7 / 4);
        self.schedule(next, Event::Fault);
        let all: Vec<NodeId> = self.machines.keys().copied().collect();
        let at = *self.rng.pick(&all);
        let keeps_memory = self.rng.chance(0.5);
        if self.plan.has_disks && self.rng.chance(0.2) {
            return self.strike_disks(at);
        }
        match self.rng.below(12) {
            0..=2 => {
                if self.may_fail(at, !keeps_memory) {
                    let down = self.rng.between(1_000_000, 40_000_000);
                    self.disturb(at, down);
                    self.crash(at, keeps_memory);
                    self.schedule(down, Event::Start { at });
                }
            }
            3..=5 => {
                if self.ambush.is_none() && self.may_fail(at, !keeps_memory) {
                    self.disturb(at, 60_000_000);
                    let at_records = self.rng.chance(0.4);
                    let messages = self.rng.between(1, if at_records { 3 } else { 40 }) as u32;
                    self.ambush = Some(Ambush { at, messages, at_records, keeps_memory });
                }
            }
            6 | 7 => {
                if self.may_fail(at, false) {
                    let pause = *self.rng.pick(&[1_000_000, 5_000_000, 15_000_000, 40_000_000]);
                    self.disturb(at, pause);
                    self.machines.get_mut(&at).expect("a machine of ours").paused_until_ns =
                        self.now_ns + pause;
                    self.report.disturbances += 1;
                }
            }
            8 | 9 => self.partition(at, &all),
            10 => {
                let down = self.rng.between(5_000_000, 40_000_000);
                if self.rng.chance(0.5) {
                    self.without_service_until_ns.insert(at, self.now_ns + 5 * down);
                } else {
                    self.service_down_until_ns = self.now_ns + down;
                }
                self.report.disturbances += 1;
            }
            _ if self.rng.chance(0.5) => self.crash_all(&all),
            _ => {
                let enough = self.service.0.members.len() > self.plan.f + 2;
                let machine = self.machines.get_mut(&at).and_then(|machine| machine.process.as_mut());
                if let Some(process) = machine.filter(|_| enough) {
                    process.node.leave();
                    self.report.disturbances += 1;
                }
            }
        }
        self.restart_those_that_left(&all);
    }

    /// The power goes everywhere, or a disk is full.
    fn strike_disks(&mut self, at: NodeId) {
        if self.rng.chance(0.4) {
            if self.gone().is_empty() {
                self.lose_all_memories();
            }
        } else if self.may_fail(at, false) {
            let lasts = self.rng.between(500_000, 30_000_000);
            self.disturb(at, lasts + AFTERMATH_NS);
            let until_ns = self.now_ns + lasts;
            if let Some(disk) = self.machines.get_mut(&at).and_then(|machine| machine.disk.as_mut()) {
                disk.full_until_ns = until_ns;
            }
            let late = self.rng.below(20_000_000);
            self.schedule(lasts + late, Event::RestartIfHalted { at });
        }
    }

    /// A link, all links of a node in one direction, or all in both.
    fn partition(&mut self, at: NodeId, all: &[NodeId]) {
        if !self.may_fail(at, false) {
            return;
        }
        let lasts = self.rng.between(2_000_000, 40_000_000);
        let kind = self.rng.below(6);
        let only = *self.rng.pick(all);
        self.disturb(at, lasts);
        if kind <= 1 {
            // Either end may have the other removed.
            self.disturb(only, lasts);
        }
        for &other in all.iter().filter(|&&other| other != at && (kind > 1 || other == only)) {
            let mut block = |from, to| {
                self.blocked.insert((from, to));
                self.schedule(lasts, Event::Unblock { from, to });
            };
            if kind != 2 {
                block(at, other);
            }
            if matches!(kind, 1 | 2 | 4) {
                block(other, at);
            }
        }
        self.report.disturbances += 1;
    }

    /// Everything goes down at once, and comes back with its memory.
    fn crash_all(&mut self, all: &[NodeId]) {
        if !self.gone().is_empty() || all.iter().any(|&at| self.is_disturbed(at)) {
            return;
        }
        for &at in all {
            let down = self.rng.between(1_000_000, 6_000_000);
            self.disturb(at, down);
            self.crash(at, true);
            self.schedule(down, Event::Start { at });
        }
    }

    fn restart_those_that_left(&mut self, all: &[NodeId]) {
        for &at in all {
            let process = self.machines[&at].process.as_ref();
            if process.is_some_and(|process| process.node.has_left()) {
                self.crash(at, false);
                self.schedule(2_000_000, Event::Start { at });
            }
        }
    }

    fn disturb(&mut self, at: NodeId, lasts_ns: u64) {
        let until = self.now_ns + lasts_ns + AFTERMATH_NS;
        // In so small a cluster, a single node may remove all others.
        let members = &self.service.0.members;
        let few = members.iter().map(|member| member.0).filter(|_| members.len() <= self.plan.f + 1);
        for node in few.chain([at]) {
            let entry = self.disturbed_until_ns.entry(node).or_insert(0);
            *entry = until.max(*entry);
        }
    }

    fn is_disturbed(&self, at: NodeId) -> bool {
        self.disturbed_until_ns.get(&at).is_some_and(|&until| until > self.now_ns)
    }

    /// Members whose memory is lost.
    fn gone(&self) -> BTreeSet<NodeId> {
        let is_there = |&(node, boot): &(NodeId, u64)| {
            let Some(machine) = self.machines.get(&node) else { return false };
            let runs = machine.process.as_ref().is_some_and(|process| process.node.boot() == boot);
            let is_on_disk = machine.loaded.as_ref().is_some_and(|loaded| loaded.boot == Some(boot));
            runs || is_on_disk || machine.memory.as_ref().is_some_and(|memory| memory.boot == boot)
        };
        self.service.0.members.iter().filter(|member| !is_there(member)).map(|member| member.0).collect()
    }

    /// Whether the cluster must survive another failure of this machine now.
    pub(super) fn may_fail(&self, at: NodeId, loses_memory: bool) -> bool {
        let configuration = &self.service.0;
        let gone = self.gone();
        let will_be_gone = loses_memory || gone.contains(&at);
        if !will_be_gone && gone.is_empty() && self.ambush.is_none_or(|ambush| ambush.keeps_memory) {
            // No memory is lost for good: a node is removed only by the rules, and otherwise the cluster waits for its return.
            return true;
        }
        let risks = |node: NodeId| node == at || gone.contains(&node) || self.is_disturbed(node);
        // A node that asks to be let in may become a member after its end, by a change that is late.
        let outside = self.machines.keys().filter(|&&node| configuration.boot(node).is_none() && risks(node));
        let outside: Vec<NodeId> = outside.copied().collect();
        let survives = |guard: &Vec<(NodeId, u64)>| {
            let risky = guard.iter().filter(|member| risks(member.0) || !configuration.has(**member)).count();
            let others = outside.iter().filter(|&&node| guard.iter().all(|member| member.0 != node)).count();
            risky + others < (self.plan.f + 1).min(guard.len())
        };
        let has_copy = |replicas: &Vec<crate::configuration::Replica>| {
            replicas.iter().any(|replica| replica.synced && !risks(replica.node))
        };
        configuration.guards.iter().all(survives) && configuration.regions.iter().all(has_copy)
    }
}
