//! Membership in scenarios: what the configuration service does to a proposal, and how a cluster fares whose
//! members get no answer.

use std::collections::{BTreeMap, BTreeSet};

use highwire_txn::{
    Configuration, ConfigurationService, Node, NodeId, Outgoing, Register, ServiceCall, Settings, TableKind,
};

const STEP_NS: u64 = 200_000;

/// Nodes, perfect links between those that run, and a configuration service that can be cut off.
struct Cluster {
    nodes: BTreeMap<NodeId, Node>,
    settings: Settings,
    service: Register,
    /// Changes of these nodes reach the service late, and their answers never come.
    slow_changes: BTreeSet<NodeId>,
    late: Vec<ServiceCall>,
    unanswered: BTreeMap<NodeId, Vec<Outgoing>>,
    without_service: BTreeSet<NodeId>,
    silent: BTreeSet<NodeId>,
    now_ns: u64,
}

impl Cluster {
    fn new(nodes: u16, f: usize) -> Cluster {
        let ids: Vec<NodeId> = (0..nodes).map(NodeId).collect();
        let boots: Vec<u64> = (100..).take(ids.len()).collect();
        let settings = Settings {
            f,
            tables: vec![TableKind::Hash],
            rows_max: 100,
            scan_rows_max: 10,
            workers: 1,
            lease_ns: 4_000_000,
            drift_ppm_max: 1000,
            stuck_ns: 40_000_000,
            page_rows: 10,
            page_pause_ns: 1000,
            part_bytes: 4 << 20,
            page_pause_times: 0,
            tombstones_max: 4096,
        };
        let first = Configuration::first(&ids, &boots, 4, f);
        let node =
            |(&id, &boot): (&NodeId, &u64)| (id, Node::new(id, boot, first.clone(), settings.clone(), 1));
        Cluster {
            nodes: ids.iter().zip(&boots).map(node).collect(),
            settings,
            service: Register(first),
            slow_changes: BTreeSet::new(),
            late: Vec::new(),
            unanswered: BTreeMap::new(),
            without_service: BTreeSet::new(),
            silent: BTreeSet::new(),
            now_ns: 1,
        }
    }

    /// Lets time pass for every node, then delivers one round of messages. A request without an answer is
    /// sent again in the next step, while its sender waits.
    fn step(&mut self) {
        self.now_ns += STEP_NS;
        let now_ns = self.now_ns;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for &id in &ids {
            self.node(id).handle_timeout(now_ns);
            while let Some(call) = self.node(id).poll_service() {
                let answer = self.call(id, call);
                self.node(id).handle_service(now_ns, answer);
            }
            let mut requests = self.unanswered.remove(&id).unwrap_or_default();
            while let Some(request) = self.node(id).poll_request() {
                requests.push(request);
            }
            for request in requests
                .into_iter()
                .filter(|request| self.nodes[&id].is_waiting(request.ticket))
                .collect::<Vec<_>>()
            {
                self.carry(id, request);
            }
        }
    }

    fn carry(&mut self, from: NodeId, request: Outgoing) {
        let now_ns = self.now_ns;
        let is_heard = !self.silent.contains(&from) && !self.silent.contains(&request.to);
        let receiver = self.nodes.get_mut(&request.to).filter(|_| is_heard);
        match receiver.and_then(|node| node.handle_request(now_ns, from, &request.bytes)) {
            Some(reply) => self.node(from).handle_response(now_ns, request.ticket, &reply.bytes),
            None if request.is_reliable => self.unanswered.entry(from).or_default().push(request),
            None => {}
        }
    }

    fn call(&mut self, from: NodeId, call: ServiceCall) -> Option<Configuration> {
        if self.without_service.contains(&from) {
            return None;
        }
        let is_change = matches!(call, ServiceCall::CompareAndSwap { .. });
        if is_change && self.slow_changes.contains(&from) {
            self.late.push(call);
            return None;
        }
        Some(self.serve(call))
    }

    fn serve(&mut self, call: ServiceCall) -> Configuration {
        let Ok(now) = match call {
            ServiceCall::Read => self.service.read(),
            ServiceCall::CompareAndSwap { id, revision, new } => {
                self.service.compare_and_swap(id, revision, *new)
            }
        };
        now
    }

    fn run_until(&mut self, what: &str, mut done: impl FnMut(&Cluster) -> bool) {
        for _ in 0..5_000 {
            self.step();
            if done(self) {
                return;
            }
        }
        panic!("never: {what}");
    }

    fn node(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).expect("a node")
    }

    fn restart(&mut self, id: NodeId, keeps_memory: bool, boot: u64) {
        let node = self.nodes.remove(&id).expect("a node");
        let (settings, now_ns) = (self.settings.clone(), self.now_ns);
        let memory = node.into_memory().filter(|_| keeps_memory);
        let node = match memory {
            Some(memory) => Node::restart(id, memory, settings, now_ns),
            None => Node::join(id, boot, self.service.0.clone(), settings, now_ns),
        };
        self.unanswered.remove(&id);
        self.nodes.insert(id, node);
    }

    /// Whether every node is open in the current configuration, and that is complete.
    fn is_settled(&self) -> bool {
        let now = &self.service.0;
        let follows = |node: &Node| node.is_open() && node.configuration().id == now.id;
        now.is_settled(self.settings.f)
            && now.members.len() == self.nodes.len()
            && self.nodes.values().all(follows)
    }
}

#[test]
fn a_change_that_was_made_when_its_proposer_had_given_up_is_found() {
    let mut cluster = Cluster::new(3, 1);
    cluster.run_until("leases", |cluster| cluster.is_settled());
    cluster.slow_changes = (0..3).map(NodeId).collect();
    cluster.silent.insert(NodeId(2));
    cluster.run_until("a proposal", |cluster| !cluster.late.is_empty());
    // The suspect is heard again, all proposers see that nothing has changed and drop their proposals, and
    // then the service makes the change.
    cluster.silent.clear();
    (0..100).for_each(|_| cluster.step());
    cluster.slow_changes.clear();
    for call in std::mem::take(&mut cluster.late) {
        cluster.serve(call);
    }
    assert_eq!(cluster.service.0.id, 2);
    cluster.run_until("rest in a configuration that has all", |cluster| cluster.is_settled());
}

#[test]
fn a_member_that_came_back_and_does_not_reach_the_service_is_helped_by_those_that_do() {
    let mut cluster = Cluster::new(3, 1);
    cluster.run_until("leases", |cluster| cluster.is_settled());
    cluster.restart(NodeId(1), true, 0);
    cluster.without_service.insert(NodeId(1));
    cluster.run_until("a configuration in which it serves", |cluster| {
        cluster.service.0.id > 1 && cluster.nodes[&NodeId(1)].is_open()
    });
    assert!(cluster.service.0.has((NodeId(1), 101)), "it kept its memory and need not come anew");
}

#[test]
fn a_node_that_wanted_to_leave_and_lost_its_memory_is_not_sent_away_in_its_next_life() {
    let mut cluster = Cluster::new(4, 1);
    cluster.run_until("leases", |cluster| cluster.is_settled());
    cluster.node(NodeId(3)).leave();
    cluster.run_until("the wish in a configuration", |cluster| !cluster.service.0.leaving.is_empty());
    cluster.restart(NodeId(3), false, 777);
    let mut was_sent_away = false;
    cluster.run_until("rest in a configuration that has all", |cluster| {
        let now = &cluster.service.0;
        was_sent_away |= now.has((NodeId(3), 777)) && now.leaving.contains(&NodeId(3));
        cluster.is_settled()
    });
    assert!(!was_sent_away);
    assert!(cluster.service.0.has((NodeId(3), 777)));
}

#[test]
fn a_node_that_was_asleep_does_not_remove_those_that_were_awake() {
    let mut cluster = Cluster::new(2, 1);
    cluster.run_until("leases", |cluster| cluster.is_settled());
    // No other node runs meanwhile, as when a whole machine is stopped for a while: the other node cannot have been faster.
    cluster.now_ns += 30_000_000;
    let now_ns = cluster.now_ns;
    let manager = cluster.service.0.manager;
    cluster.node(manager).handle_timeout(now_ns);
    assert!(cluster.node(manager).poll_service().is_none(), "it asks for a change at once");
    (0..200).for_each(|_| cluster.step());
    assert_eq!(cluster.service.0.id, 1);
}

#[test]
fn a_node_that_left_is_not_missed_when_another_fails_at_the_same_moment() {
    let mut cluster = Cluster::new(4, 1);
    cluster.run_until("leases", |cluster| cluster.is_settled());
    cluster.node(NodeId(3)).leave();
    cluster.run_until("a configuration without it", |cluster| cluster.service.0.boot(NodeId(3)).is_none());
    assert!(!cluster.service.0.complete, "the failure must come before recovery is recorded");
    cluster.restart(NodeId(3), false, 777);
    // One failure, as f allows. The node that left did not count as one.
    cluster.nodes.remove(&NodeId(2));
    cluster.run_until("rest among those that are there", |cluster| cluster.is_settled());
}

#[test]
fn a_node_that_was_let_in_and_removed_before_it_knew_does_not_go_back_to_that() {
    let mut cluster = Cluster::new(3, 1);
    cluster.run_until("leases", |cluster| cluster.is_settled());
    let node = NodeId(2);
    cluster.restart(node, false, 777);
    // The answer that makes the node a member is still on its way when the node is removed again, and let in
    // once more.
    cluster.run_until("it is let in", |cluster| cluster.service.0.has((node, 777)));
    let let_in = cluster.service.0.clone();
    let asks = Node::join(node, 777, Cluster::new(3, 1).service.0, cluster.settings.clone(), cluster.now_ns);
    cluster.nodes.insert(node, asks);
    cluster.unanswered.clear();
    cluster.silent.insert(node);
    cluster.without_service.insert(node);
    cluster.run_until("it is removed", |cluster| !cluster.service.0.has((node, 777)));
    let removed = cluster.service.0.clone();
    // The node is heard again and knows no more than before. A member that let it in now could not know to
    // which configuration it would move.
    cluster.silent.clear();
    (0..200).for_each(|_| cluster.step());
    assert!(
        !cluster.service.0.has((node, 777)),
        "it knows of no removal, and may still turn to {}",
        let_in.id
    );
    // The node learns of its removal. The late answer changes nothing, and the node joins in the same life.
    let now_ns = cluster.now_ns;
    cluster.node(node).handle_service(now_ns, Some(removed));
    cluster.node(node).handle_service(now_ns, Some(let_in));
    assert!(!cluster.nodes[&node].is_open());
    cluster.without_service.clear();
    cluster.run_until("rest in a configuration that has all", |cluster| cluster.is_settled());
    assert!(cluster.service.0.has((node, 777)), "it has lost nothing");
}
