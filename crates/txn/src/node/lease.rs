//! Leases and the detection of failures: heartbeats between all members.
//!
//! A response grants the sender of the heartbeat a lease from the moment at which it was sent, by the sender's own clock, and only within one
//! configuration. A node answers for its regions while f others grant it leases. Any configuration that removes the node has one of them as
//! a member, and that member granted no more leases once it had adopted the configuration. So a new
//! configuration opens when the length of a lease has passed since all members adopted it.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use crate::configuration::Configuration;
use crate::id::NodeId;
use crate::message::{Request, Response};

use super::{Node, Purpose, Role};

/// For how many beats the node still accepts a heartbeat's response.
const BEATS_KEPT: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Leases {
    expiry_ns: BTreeMap<NodeId, u64>,
    heard_ns: BTreeMap<NodeId, u64>,
    /// When the configuration was adopted.
    pub(super) since: u64,
    pub(super) next_beat: u64,
    /// The first ticket of each beat.
    beats: VecDeque<u64>,
    /// What [`Leases::enough_until`] found, and for which configuration: every request asks.
    enough: Cell<Option<((u32, u32), u64)>>,
}

impl Leases {
    pub(super) fn adopt(&mut self, now_ns: u64) {
        self.expiry_ns.clear();
        self.heard_ns.clear();
        self.since = now_ns;
        self.next_beat = now_ns;
        self.enough.set(None);
    }

    /// Until when `node` holds as many valid leases of members that count as it needs to answer for its regions.
    pub(super) fn enough_until(&self, configuration: &Configuration, node: NodeId, f: usize) -> u64 {
        let name = (configuration.id, configuration.revision);
        if let Some((of, until)) = self.enough.get()
            && of == name
        {
            return until;
        }
        let counting = self.expiry_ns.iter().filter(|&(&granter, _)| configuration.is_core(granter));
        let mut expiries: Vec<u64> = counting.map(|(_, &expiry)| expiry).collect();
        expiries.sort_unstable_by(|a, b| b.cmp(a));
        // As long as the last of them that is needed.
        let until = match configuration.leases_needed(node, f).checked_sub(1) {
            None => u64::MAX,
            Some(last) => expiries.get(last).copied().unwrap_or(0),
        };
        self.enough.set(Some((name, until)));
        until
    }

    /// The number of valid leases from nodes for which `counts` holds.
    pub(super) fn held(&self, now_ns: u64, counts: impl Fn(NodeId) -> bool) -> usize {
        self.expiry_ns.iter().filter(|&(&node, &expiry)| now_ns < expiry && counts(node)).count()
    }

    pub(super) fn is_silent(&self, node: NodeId, now_ns: u64, patience_ns: u64) -> bool {
        let heard = self.heard_ns.get(&node).copied().unwrap_or(self.since);
        now_ns > heard + patience_ns
    }
}

impl Node {
    pub(super) fn beat(&mut self) {
        if self.now_ns < self.leases.next_beat {
            return;
        }
        // A node that did not run for so long has received nothing, so silence is no reason to suspect the
        // others.
        let is_late = self.now_ns >= self.leases.next_beat + self.settings.suspect_ns();
        if is_late {
            self.leases.heard_ns.clear();
            self.leases.since = self.now_ns;
        }
        self.leases.next_beat = self.now_ns + self.settings.heartbeat_ns();
        self.leases.beats.push_back(self.tickets.next());
        if self.leases.beats.len() > BEATS_KEPT
            && let Some(oldest) = self.leases.beats.pop_front()
        {
            self.tickets.retain(|ticket, purpose| {
                ticket >= oldest || !matches!(purpose, Purpose::Heartbeat | Purpose::Join)
            });
        }
        for to in self.others() {
            match self.role {
                Role::Member => {
                    let boot = self.configuration.boot(to).unwrap_or(0);
                    self.send(
                        to,
                        Request::Heartbeat { boot, sent_ns: self.now_ns, is_restarted: self.is_restarted },
                        Purpose::Heartbeat,
                    );
                    if self.membership.wants_to_leave {
                        self.send(to, Request::Leave { boot: self.boot }, Purpose::Join);
                    }
                }
                Role::Joining => self.send(to, Request::Join { boot: self.boot }, Purpose::Join),
                Role::Left => {}
            }
        }
        if self.membership.wants_to_leave {
            self.membership.leavers.insert((self.id, self.boot));
        }
    }

    pub(super) fn answer_heartbeat(
        &mut self,
        configuration: u32,
        boot: u64,
        sent_ns: u64,
    ) -> Option<Response> {
        if self.role != Role::Member || boot != self.boot {
            return None;
        }
        self.notice(configuration);
        Some(Response::Heartbeat { configuration: self.configuration.id, sent_ns })
    }

    pub(super) fn on_heartbeat(&mut self, from: NodeId, response: Response) {
        let Response::Heartbeat { configuration, sent_ns } = response else { return };
        self.notice(configuration);
        if sent_ns > self.now_ns {
            return;
        }
        let heard = self.leases.heard_ns.entry(from).or_insert(sent_ns);
        *heard = sent_ns.max(*heard);
        if configuration == self.configuration.id {
            let expiry = self.leases.expiry_ns.entry(from).or_insert(0);
            *expiry = (sent_ns + self.settings.lease_ns).max(*expiry);
            self.leases.enough.set(None);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    #[test]
    fn leases_suffice_exactly_until_the_last_one_that_is_needed_ends() {
        let mut rng = Rng::new(3);
        let nodes: Vec<NodeId> = (0..5).map(NodeId).collect();
        for _ in 0..500 {
            let f = rng.below(3) as usize;
            let mut configuration = Configuration::first(&nodes, &[1; 5], 4, f);
            let mut leases = Leases::default();
            for &granter in &nodes[1..] {
                if rng.chance(0.8) {
                    leases.expiry_ns.insert(granter, rng.below(10));
                }
            }
            // The same leases count otherwise in the next configuration, in which a member leaves.
            for revision in 0..2 {
                configuration.revision = revision;
                configuration.leaving = if revision > 0 { vec![*rng.pick(&nodes)] } else { Vec::new() };
                let needed = configuration.leases_needed(nodes[0], f);
                for now in 0..11 {
                    let held = leases.held(now, |node| configuration.is_core(node));
                    let until = leases.enough_until(&configuration, nodes[0], f);
                    assert_eq!(now < until, held >= needed, "{leases:?}, f {f}, now {now}");
                }
            }
        }
    }

    #[test]
    fn a_lease_counts_at_once_and_none_outlasts_its_configuration() {
        let nodes = [NodeId(0), NodeId(1)];
        let configuration = Configuration::first(&nodes, &[1, 2], 4, 1);
        let settings = crate::simulation::Plan::from_seed(1).settings();
        let settings = crate::settings::Settings { f: 1, ..settings };
        let mut node = Node::new(nodes[0], 1, configuration.clone(), settings, 1000);
        let until = |node: &Node| node.leases.enough_until(&node.configuration, nodes[0], 1);
        assert_eq!(until(&node), 0, "nobody has granted a lease");
        let lease_ns = node.settings.lease_ns;
        for sent_ns in [900, 1000, 950] {
            let (configuration, latest) =
                (configuration.id, sent_ns.max(until(&node).saturating_sub(lease_ns)));
            node.on_heartbeat(nodes[1], Response::Heartbeat { configuration, sent_ns });
            assert_eq!(until(&node), latest + lease_ns);
        }
        node.leases.adopt(1000);
        assert_eq!(until(&node), 0);
    }
}
