//! Membership: which nodes to suspect, when to propose the next configuration, which nodes to let in and out.
//!
//! Any member may propose; the configuration service's compare-and-swap chooses. Members wait their turn, so
//! that two seldom propose at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::configuration::{Configuration, Member};
use crate::defect::planted;
use crate::id::{NodeId, RegionId};
use crate::store::Store;

use super::{Node, Role, ServiceCall};

#[derive(Debug, Default)]
pub(super) struct Membership {
    /// Empty nodes that ask to join, with their boots and when they last asked.
    pub(super) joiners: BTreeMap<NodeId, (u64, u64)>,
    pub(super) leavers: BTreeSet<Member>,
    /// Since when a member has said that it was restarted with its memory, and so can do nothing before the
    /// next configuration.
    pub(super) restarted_since: Option<u64>,
    /// Replicas that members have reported complete to this node as manager.
    pub(super) synced: BTreeSet<(RegionId, NodeId)>,
    pub(super) wants_to_leave: bool,
    /// There is a configuration that this node does not know.
    is_behind: bool,
    suspicious_since: Option<u64>,
    call: Option<ServiceCall>,
    is_calling: bool,
    /// The call under way asks for a change.
    is_changing: bool,
    last_read_ns: u64,
}

impl Membership {
    pub(super) fn poll_call(&mut self) -> Option<ServiceCall> {
        self.call.take()
    }

    fn call(&mut self, call: ServiceCall) {
        self.is_changing = matches!(call, ServiceCall::CompareAndSwap { .. });
        self.call = Some(call);
        self.is_calling = true;
    }
}

impl Node {
    /// A packet named another configuration.
    pub(super) fn notice(&mut self, configuration: u32) {
        self.membership.is_behind |= configuration > self.configuration.id;
    }

    pub(super) fn consider_membership(&mut self) {
        if self.membership.is_calling || self.role == Role::Left {
            return;
        }
        let suspects = !self.suspects().is_empty();
        if !suspects {
            self.membership.suspicious_since = None;
        } else if self.membership.suspicious_since.is_none() {
            self.membership.suspicious_since = Some(self.now_ns);
        }
        let wishes = self.role == Role::Joining || self.revision().is_some() || self.wish().is_some();
        let since_read = self.now_ns.saturating_sub(self.membership.last_read_ns);
        let may_ask = since_read >= self.settings.heartbeat_ns();
        // No message tells a member of a revision, nor of a change that the service made after its proposer
        // had given up. So members read the configuration now and then.
        let is_stale = since_read >= self.settings.stuck_ns;
        if wishes && may_ask || is_stale || self.membership.is_behind {
            self.membership.last_read_ns = self.now_ns;
            // Reads first: the configuration that this node knows may lack a revision that allows the change.
            self.membership.call(ServiceCall::Read);
        }
    }

    pub(super) fn on_service(&mut self, answer: Option<Configuration>) {
        self.membership.is_calling = false;
        // A change without an answer may have been made.
        self.membership.is_behind |= answer.is_none() && self.membership.is_changing;
        let Some(configuration) = answer.filter(|configuration| self.is_sound(configuration)) else { return };
        self.membership.is_behind = false;
        self.follow(configuration);
        if let Some(new) = self.proposal() {
            let (id, revision) = (self.configuration.id, self.configuration.revision);
            self.membership.call(ServiceCall::CompareAndSwap { id, revision, new: Box::new(new) });
        }
    }

    /// The service says that this configuration holds.
    fn follow(&mut self, configuration: Configuration) {
        let newer = self.is_next(&configuration);
        if newer && configuration.has((self.id, self.boot)) {
            let manages = configuration.manager == self.id;
            self.adopt(configuration);
            if manages {
                self.start_managing();
            }
        } else if newer && self.role == Role::Member {
            self.removed(configuration);
        } else if newer
            || (configuration.id, configuration.revision)
                > (self.configuration.id, self.configuration.revision)
        {
            self.configuration = configuration;
            self.heed_agreed();
        }
    }

    /// Whether this node may move on to a configuration from the one that it knows. A node that asks to be
    /// let in knows a configuration without it, or one that was made since its process began. It never moves
    /// to an older configuration of which it is a member: it has been removed from that one since, and a
    /// later one may have let it in again.
    pub(super) fn is_next(&self, configuration: &Configuration) -> bool {
        let is_known = configuration.id == self.configuration.id;
        let asks = self.role == Role::Joining && (is_known || planted!(self, JoinerGoesBack));
        configuration.id > self.configuration.id || asks
    }

    /// The configuration that this node proposes, if it is its turn and the rules allow one.
    fn proposal(&self) -> Option<Configuration> {
        if let Some(revised) = self.revision() {
            return Some(revised);
        }
        let (members, leaving) = self.wish()?;
        let mut new = self.configuration.successor(self.id, members, &leaving, self.settings.f).ok();
        if let Some(new) = new.as_mut().filter(|new| new.agreed.is_none()) {
            new.agreed = Some(self.settings.agreed());
        }
        if planted!(self, StaleReplicaPromoted)
            && let Some(new) = &mut new
        {
            new.regions.iter_mut().for_each(|replicas| replicas.reverse());
            new.regions.iter_mut().flatten().for_each(|replica| replica.synced = true);
        }
        new
    }

    /// The members, and those of them that leave, of the configuration that this node would like to see next.
    fn wish(&self) -> Option<(Vec<Member>, Vec<NodeId>)> {
        if self.role != Role::Member {
            return None;
        }
        let old = &self.configuration;
        let suspects = self.suspects();
        // Nodes leave one at a time, and not while others are suspected: more than f must not go at once.
        let may_go = |node: &NodeId| old.complete && suspects.is_empty() && self.holds_nothing(*node);
        let going = old.leaving.iter().copied().find(may_go);
        let gone = |node: NodeId| going == Some(node);
        // A manager that is about to go leaves its own removal to the next member.
        let leader =
            if gone(old.manager) { old.nodes().find(|&node| !gone(node)) } else { Some(old.manager) };
        let leads = leader == Some(self.id) && self.is_open && self.manager.is_none();
        let newcomers = self.newcomers();
        let leaving = self.leaving();
        let turn = self.turn_ns(&suspects);
        // A restarted node proposes for itself if it reaches the service, so this node helps only after a
        // while.
        let patience = self.settings.suspect_ns() + turn;
        let helps = self.membership.restarted_since.is_some_and(|since| self.now_ns >= since + patience);
        let urgent = self.is_restarted
            || helps
            || self.membership.suspicious_since.is_some_and(|since| self.now_ns >= since + turn)
            || !self.is_open && self.now_ns >= self.leases.since + self.settings.stuck_ns + turn;
        let wanted = !newcomers.is_empty()
            || leaving != old.leaving
            || old.nodes().any(gone)
            || old.complete && old.has_moves_to_finish(self.settings.f);
        if !(urgent || leads && wanted) {
            return None;
        }
        let stays = |member: &Member| {
            let replaced = newcomers.iter().any(|newcomer| newcomer.0 == member.0);
            !suspects.contains(&member.0) && !replaced && (member.0 == self.id || !gone(member.0))
        };
        let mut members: Vec<Member> = old.members.iter().copied().filter(stays).collect();
        members.extend(&newcomers);
        Some((members, leaving))
    }

    /// The same configuration with its progress since: it is complete, and replicas are synced.
    fn revision(&self) -> Option<Configuration> {
        let old = &self.configuration;
        let leads =
            self.role == Role::Member && old.manager == self.id && self.is_open && self.manager.is_none();
        if !leads {
            return None;
        }
        let mut new = old.clone();
        new.revision += 1;
        new.complete = true;
        new.guards = vec![old.core()];
        for &(region, node) in &self.membership.synced {
            let replicas = new.regions.get_mut(usize::from(region.0))?;
            replicas
                .iter_mut()
                .filter(|replica| replica.node == node)
                .for_each(|replica| replica.synced = true);
        }
        let changed = !old.complete || new.regions != old.regions;
        changed.then_some(new)
    }

    /// Members that this node has not heard for too long. Only a member suspects others.
    pub fn suspects(&self) -> Vec<NodeId> {
        let patience = self.settings.suspect_ns();
        let silent = |&node: &NodeId| self.leases.is_silent(node, self.now_ns, patience);
        if self.role == Role::Member {
            self.others().into_iter().filter(silent).collect()
        } else {
            Vec::new()
        }
    }

    /// Nodes that ask to join in a life in which they are no member yet.
    fn newcomers(&self) -> Vec<Member> {
        let fresh = |asked: u64| self.now_ns <= asked + self.settings.suspect_ns();
        let all = self.membership.joiners.iter().map(|(&node, &(boot, asked))| ((node, boot), asked));
        all.filter(|&(member, asked)| fresh(asked) && !self.configuration.has(member))
            .map(|(member, _)| member)
            .collect()
    }

    fn leaving(&self) -> Vec<NodeId> {
        let old = &self.configuration;
        let wish = |member: &&Member| self.membership.leavers.contains(*member);
        let leaves = |node: NodeId| old.leaving.contains(&node);
        // As many must stay as there are copies of everything, however many wish to go at once.
        let stay = old.members.iter().filter(|member| !leaves(member.0)).count();
        let mut may_go = stay.saturating_sub(self.settings.f + 1);
        let mut goes = |member: &&Member| {
            let is_new = !leaves(member.0) && wish(member) && may_go > 0;
            may_go -= usize::from(is_new);
            is_new || leaves(member.0)
        };
        old.members.iter().filter(|member| goes(member)).map(|member| member.0).collect()
    }

    fn holds_nothing(&self, node: NodeId) -> bool {
        self.configuration.regions.iter().flatten().all(|replica| replica.node != node)
    }

    /// How long this node waits for its turn to propose: the manager's comes first, then the others' one
    /// after the other.
    fn turn_ns(&self, suspects: &[NodeId]) -> u64 {
        let manager = self.configuration.manager;
        let before = |node: &NodeId| *node == manager || *node < self.id;
        let rank = match self.id == manager {
            true => 0,
            false => {
                self.configuration.nodes().filter(|node| !suspects.contains(node)).filter(before).count()
            }
        };
        rank as u64 * self.settings.suspect_ns()
    }

    /// Takes a configuration for its own. Transactions of the last one are over; recovery finishes those that had a record.
    pub(super) fn adopt(&mut self, configuration: Configuration) {
        self.role = Role::Member;
        self.is_restarted = false;
        self.is_open = false;
        self.manager = None;
        self.configuration = configuration;
        self.heed_agreed();
        self.note_adopted();
        self.sequence = self.sequence.max(u64::from(self.configuration.id) << 32);
        self.leases.adopt(self.now_ns);
        self.membership.suspicious_since = None;
        self.membership.synced.clear();
        self.membership.restarted_since = None;
        self.forget_requests();
        self.replication = Default::default();
        self.forget_reclaiming();
        self.snapshots.clear();
        for worker in 0..self.settings.workers {
            self.interrupt(worker);
        }
        let configuration = &self.configuration;
        self.membership.leavers.retain(|&member| configuration.has(member));
        // Joiners are forgotten: a node that is still no member asks again, and then it knows this
        // configuration.
        let stays = |node, boot| planted!(self, JoinerGoesBack) && !configuration.has((node, boot));
        self.membership.joiners.retain(|&node, &mut (boot, _)| stays(node, boot));
        self.store.fit(&self.configuration, self.id, &self.settings);
        self.beat();
    }

    /// The cluster goes on without this node, so all its data may be old. It comes back as a new, empty
    /// member, or stays away.
    fn removed(&mut self, configuration: Configuration) {
        self.configuration = configuration;
        self.heed_agreed();
        self.is_open = false;
        self.is_restarted = false;
        self.manager = None;
        self.forget_requests();
        self.replication = Default::default();
        self.forget_reclaiming();
        self.snapshots.clear();
        for worker in 0..self.settings.workers {
            self.give_up(worker);
        }
        self.store = Store::default();
        self.boot = self.rng.next_u64();
        if !planted!(self, LifeIsNotJournalled) {
            self.note_life();
        }
        self.role = if self.membership.wants_to_leave { Role::Left } else { Role::Joining };
        self.leases.adopt(self.now_ns);
    }

    pub(super) fn forget_requests(&mut self) {
        self.tickets.clear();
        self.local.clear();
        self.parked.clear();
        self.outgoing.clear();
        self.held.clear();
    }

    /// A line for diagnosis: why a node makes no progress.
    pub fn standing(&self) -> String {
        let phases: Vec<_> = self.workers.iter().map(|worker| worker.phase).collect();
        format!(
            "{:?} in configuration {}, open {}, restarted {}, calls {}, suspects {:?}, newcomers {:?}, wishes {}, leases {}, manages {:?}, copies {:?}, waits for its disk {:?}, halted {}, workers {phases:?}",
            self.role,
            self.configuration.id,
            self.is_open,
            self.is_restarted,
            self.membership.is_calling,
            self.suspects(),
            self.newcomers(),
            self.wish().is_some(),
            self.leases.held(self.now_ns, |_| true),
            self.manager,
            self.replication,
            self.held.front().map(|held| (held.0, self.durable())),
            self.is_halted,
        )
    }

    /// Whether a received configuration fits this node's settings.
    pub(super) fn is_sound(&self, configuration: &Configuration) -> bool {
        let known = |node: NodeId| configuration.boot(node).is_some();
        let whole = |replicas: &Vec<_>| !replicas.is_empty();
        configuration.cluster == self.configuration.cluster
            && !configuration.members.is_empty()
            && known(configuration.manager)
            && configuration.regions.len() == self.configuration.regions.len()
            && configuration.regions.iter().all(whole)
            && configuration.regions.iter().flatten().all(|replica| known(replica.node))
            && configuration.agreed.is_none_or(|agreed| self.settings.suits(&agreed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::settings::Settings;

    /// The first of four nodes, which all have copies, two of everything.
    fn node_of_four() -> Node {
        let ids: Vec<NodeId> = (0..4).map(NodeId).collect();
        let first = Configuration::first(&ids, &[100, 101, 102, 103], 4, 1);
        Node::new(NodeId(0), 100, first, Settings::of_tests(), 1)
    }

    #[test]
    fn of_nodes_that_wish_to_leave_at_once_as_many_stay_as_there_are_copies() {
        let mut node = node_of_four();
        let members = node.configuration.members.clone();
        node.membership.leavers.extend(&members[1..]);
        assert_eq!(node.leaving(), [NodeId(1), NodeId(2)]);
        // Those that leave already go on.
        let next = node.configuration.successor(NodeId(0), members, &[NodeId(2), NodeId(3)], 1);
        node.configuration = next.expect("none is removed");
        assert_eq!(node.leaving(), [NodeId(2), NodeId(3)]);
    }

    #[test]
    fn a_node_that_leaves_is_removed_when_it_holds_nothing_and_all_copies_are_complete() {
        let mut node = node_of_four();
        let members = node.configuration.members.clone();
        node.membership.leavers.insert(members[3]);
        let next = node.configuration.successor(NodeId(0), members, &[NodeId(3)], 1);
        node.configuration = next.expect("none is removed");
        (node.is_open, node.configuration.complete) = (true, true);
        (node.is_restarted, node.manager) = (false, None);
        let removed = |node: &Node| {
            node.wish().is_some_and(|(members, _)| members.iter().all(|member| member.0 != NodeId(3)))
        };
        assert!(!node.holds_nothing(NodeId(3)) && !removed(&node), "it has copies that others need");
        for replicas in &mut node.configuration.regions {
            replicas.retain(|replica| replica.node != NodeId(3));
        }
        assert!(removed(&node));
        node.configuration.complete = false;
        assert!(!removed(&node), "others are still being filled");
    }
}
