//! A node: participant for its regions, coordinator for its workers, member of a configuration. Its world is requests, their responses, a
//! clock of its own and the configuration service, all of which the driver brings.
//!
//! The driver promises: a request is executed at most once by a receiver in one of its lives, and is repeated until it is answered or
//! the node waits for it no longer ([`Node::is_waiting`]). Unreliable requests may simply be lost.

mod coordinator;
mod disk;
mod lease;
mod member;
mod outbox;
mod participant;
mod reclaim;
mod recovery;
mod replicate;
mod rules;
mod snapshot;
mod tickets;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;

use highwire_stdx::Rng;

use crate::codec::Encode;
use crate::configuration::Configuration;
use crate::defect::planted;
use crate::id::{Key, NodeId, TableId, Txid};
use crate::journal::Journal;
use crate::message::{Packet, Request, Response, key_of};
use crate::settings::Settings;
use crate::store::Store;
use crate::worker::{AbortReason, Worker};

pub use coordinator::TransactionError;
pub(crate) use reclaim::Floor;
pub use snapshot::{SnapshotError, SnapshotOf, SnapshotPage};

/// A reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// It must not leave before [`Node::durable`] is as great. 0: at once, as always without a disk.
    pub after: u64,
    /// The answer.
    pub bytes: Vec<u8>,
}

/// A request for another node.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Names the response.
    pub ticket: u64,
    /// Where to.
    pub to: NodeId,
    /// The request.
    pub bytes: Vec<u8>,
    /// To be repeated until answered.
    pub is_reliable: bool,
}

/// Where a request goes, for drivers that keep its bytes elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressed {
    /// Names the response.
    pub ticket: u64,
    /// Where to.
    pub to: NodeId,
    /// To be repeated until answered.
    pub is_reliable: bool,
}

/// A call to the configuration service.
#[derive(Clone, Debug)]
pub enum ServiceCall {
    /// The configuration that holds.
    Read,
    /// A change from this id and revision; the answer is the one that holds afterwards.
    CompareAndSwap {
        /// The one to be replaced.
        id: u32,
        /// Its revision.
        revision: u32,
        /// The one to take its place.
        new: Box<Configuration>,
    },
}

/// What happened to a worker's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An execution ended: values are read and locks held, or the application must abort.
    Executed {
        /// Whose.
        worker: u16,
        /// What stood in the way.
        result: Result<(), AbortReason>,
    },
    /// It is committed, at f + 1 nodes.
    Committed {
        /// Whose.
        worker: u16,
        /// The transaction.
        txid: Txid,
    },
    /// It aborted: none of its writes happened or will happen.
    Aborted {
        /// Whose.
        worker: u16,
        /// The transaction.
        txid: Txid,
        /// Why.
        reason: AbortReason,
    },
    /// This node was removed from the cluster while the transaction was being committed; the others decide.
    Unknown {
        /// Whose.
        worker: u16,
        /// The transaction.
        txid: Txid,
    },
}

/// The state that survives when a process ends and its memory does not.
pub struct Memory {
    pub(crate) boot: u64,
    pub(crate) configuration: Configuration,
    pub(crate) store: Store,
}

impl Memory {
    /// The configuration in which the node was a member.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }
}

/// What a ticket was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Item or range of a worker; also the phase, which is its worker's.
    Worker {
        worker: u16,
        part: usize,
    },
    Heartbeat,
    Join,
    Adopt,
    Recover,
    Open,
    Fetch,
    Synced,
    Reclaim,
}

/// A node's standing in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Member,
    /// Empty, and asking to be let in.
    Joining,
    /// It has left by its own wish.
    Left,
}

/// Requests to other nodes, by the kinds that FaSST counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads and locks.
    pub execute: u64,
    /// Versions compared.
    pub validate: u64,
    /// Records logged elsewhere.
    pub log: u64,
    /// Writes to backups.
    pub commit_backup: u64,
    /// Writes to primaries.
    pub commit_primary: u64,
    /// Locks given back.
    pub unlock: u64,
    /// Requests refused because of another configuration.
    pub fenced: u64,
    /// Reads of [`Node::read_at_home`] that were answered.
    pub reads_at_home: u64,
}

/// One node of the store.
pub struct Node {
    id: NodeId,
    boot: u64,
    settings: Settings,
    rng: Rng,
    now_ns: u64,
    role: Role,
    configuration: Configuration,
    /// Recovery is over: the data plane runs.
    is_open: bool,
    /// This process does not know what the last process promised in its configuration, so it waits for the
    /// next configuration.
    is_restarted: bool,
    store: Store,
    workers: Vec<Worker>,
    sequence: u64,
    leases: lease::Leases,
    membership: member::Membership,
    manager: Option<recovery::Manager>,
    replication: replicate::Replication,
    reclaiming: reclaim::Reclaiming,
    /// Snapshots that are being read, by their names, or why they are lost.
    snapshots: BTreeMap<u64, Result<snapshot::Snapshot, SnapshotError>>,
    counters: Counters,
    tickets: tickets::Tickets,
    /// Requests to this node itself, which need no network.
    local: VecDeque<(u64, Request)>,
    /// Local requests that could not be answered yet.
    parked: Vec<(u64, Request)>,
    outgoing: outbox::Outbox,
    /// Empty: memory for a phase's requests.
    requests: Vec<(usize, TableId, Key, Request)>,
    /// Empty: memory for a list of nodes.
    replicas: Vec<NodeId>,
    events: VecDeque<Event>,
    /// The journal, if this node keeps one on a disk.
    journal: Option<Journal>,
    /// Answers and responses that wait until the entries before a number are durable.
    held: VecDeque<(u64, disk::Held)>,
    /// The disk failed: this node says and does nothing any more.
    is_halted: bool,
    #[cfg(all(test, not(loom)))]
    pub(crate) defect: Option<crate::defect::Defect>,
}

impl Node {
    /// A member of the first configuration. `boot` is this life's own number, as in the configuration.
    pub fn new(id: NodeId, boot: u64, configuration: Configuration, settings: Settings, now_ns: u64) -> Node {
        let mut node = Node::with(id, boot, configuration, Store::default(), settings, now_ns);
        node.is_open = true;
        node.store.fit(&node.configuration, id, &node.settings);
        node.leases.adopt(now_ns);
        node
    }

    /// A node with nothing, which asks the members of `known` to be let in.
    pub fn join(id: NodeId, boot: u64, known: Configuration, settings: Settings, now_ns: u64) -> Node {
        let mut node = Node::with(id, boot, known, Store::default(), settings, now_ns);
        node.role = Role::Joining;
        node
    }

    /// A node whose process ended and whose memory did not.
    pub fn restart(id: NodeId, memory: Memory, settings: Settings, now_ns: u64) -> Node {
        let mut node = Node::with(id, memory.boot, memory.configuration, memory.store, settings, now_ns);
        node.is_restarted = true;
        node.leases.adopt(now_ns);
        node
    }

    fn with(
        id: NodeId,
        boot: u64,
        configuration: Configuration,
        store: Store,
        settings: Settings,
        now_ns: u64,
    ) -> Node {
        let nobody = |worker| Txid { node: id, worker, sequence: 0 };
        let mut node = Node {
            id,
            boot,
            rng: Rng::new(boot),
            now_ns,
            role: Role::Member,
            is_open: false,
            is_restarted: false,
            store,
            workers: (0..settings.workers).map(|worker| Worker::new(nobody(worker))).collect(),
            sequence: u64::from(configuration.id) << 32,
            leases: lease::Leases::default(),
            membership: member::Membership::default(),
            manager: None,
            replication: replicate::Replication::default(),
            reclaiming: reclaim::Reclaiming::default(),
            snapshots: BTreeMap::new(),
            counters: Counters::default(),
            tickets: tickets::Tickets::default(),
            local: VecDeque::new(),
            parked: Vec::new(),
            outgoing: outbox::Outbox::default(),
            requests: Vec::new(),
            replicas: Vec::new(),
            events: VecDeque::new(),
            journal: None,
            held: VecDeque::new(),
            is_halted: false,
            configuration,
            settings,
            #[cfg(all(test, not(loom)))]
            defect: None,
        };
        node.heed_agreed();
        node
    }

    /// Works with the numbers that the members have agreed on.
    fn heed_agreed(&mut self) {
        if let Some(agreed) = &self.configuration.agreed {
            self.settings.heed(agreed);
        }
    }

    /// This node's settings, with the numbers that the members have agreed on.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What would survive this process. `None` if it holds nothing that the cluster counts on.
    pub fn into_memory(self) -> Option<Memory> {
        let memory = Memory { boot: self.boot, configuration: self.configuration, store: self.store };
        (self.role == Role::Member).then_some(memory)
    }

    /// Handles a request of another node. `None`: no answer, at least not now, and nothing was done.
    pub fn handle_request(&mut self, now_ns: u64, from: NodeId, bytes: &[u8]) -> Option<Reply> {
        let mut answer = Vec::new();
        let after = self.handle_request_into(now_ns, from, bytes, &mut answer)?;
        Some(Reply { after, bytes: answer })
    }

    /// Like [`Node::handle_request`], but appends the answer's bytes to `answer` and returns
    /// [`Reply::after`].
    pub fn handle_request_into(
        &mut self,
        now_ns: u64,
        from: NodeId,
        bytes: &[u8],
        answer: &mut Vec<u8>,
    ) -> Option<u64> {
        self.now_ns = self.now_ns.max(now_ns);
        let packet = Packet::parse(bytes).ok().filter(|packet| packet.from == from && !self.is_halted)?;
        let response = self.answer_packet(packet.configuration, from, &packet.request);
        let after = self.after(packet.request.is_promise());
        self.run_local();
        response?.put(answer);
        Some(after)
    }

    /// Expects a request, which arrived together with others: its key's bucket is fetched from memory at the
    /// same time as theirs. Changes nothing.
    pub fn expect_request(&self, bytes: &[u8]) {
        let Some((table, key)) = key_of(bytes) else { return };
        if usize::from(table.0) < self.settings.tables.len() {
            let region = self.settings.region_of(&self.configuration, table, key);
            if let Some(table) = self.store.table(region, table) {
                table.touch(key);
            }
        }
    }

    /// Handles the response to a request of this node.
    pub fn handle_response(&mut self, now_ns: u64, ticket: u64, bytes: &[u8]) {
        self.now_ns = self.now_ns.max(now_ns);
        if let Ok(response) = Response::parse(bytes)
            && !self.is_halted
        {
            self.on_response(ticket, response);
            self.run_local();
        }
    }

    /// Handles the service's answer; `None` if there was none in time, or an error.
    pub fn handle_service(&mut self, now_ns: u64, answer: Option<Configuration>) {
        self.now_ns = self.now_ns.max(now_ns);
        if !self.is_halted {
            self.on_service(answer);
            self.run_local();
        }
    }

    /// Acts on timeouts. The driver calls it at [`Node::next_timeout`], or at any time.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.is_halted {
            return;
        }
        if self.is_restarted && planted!(self, RestartIsNotNoticed) {
            self.is_restarted = false;
            self.is_open = true;
        }
        self.local.extend(take(&mut self.parked));
        self.beat();
        self.manage();
        self.replicate();
        self.reclaim();
        self.consider_membership();
        self.run_local();
    }

    /// When to call [`Node::handle_timeout`] next.
    pub fn next_timeout(&self) -> u64 {
        if self.is_halted {
            return u64::MAX;
        }
        let manage = self.manager.as_ref().and_then(recovery::Manager::wake);
        let replicate = self.replication.wake();
        let soonest = [manage, replicate].into_iter().flatten().fold(self.leases.next_beat, u64::min);
        soonest.max(self.now_ns + 1)
    }

    /// The next request to be sent.
    pub fn poll_request(&mut self) -> Option<Outgoing> {
        if self.may_send() { self.outgoing.pop() } else { None }
    }

    /// Like [`Node::poll_request`], but appends the request's bytes to `bytes`.
    pub fn poll_request_into(&mut self, bytes: &mut Vec<u8>) -> Option<Addressed> {
        if self.may_send() { self.outgoing.pop_into(bytes) } else { None }
    }

    /// Whether requests may leave. They name the node's configuration and life, so both must be durable, or a
    /// crash could take them back.
    fn may_send(&self) -> bool {
        self.after(false) == 0 || planted!(self, MessagesLeaveBeforeDurable)
    }

    /// The next call to the configuration service; one at a time.
    pub fn poll_service(&mut self) -> Option<ServiceCall> {
        self.membership.poll_call()
    }

    /// The next event of a worker.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the node still waits for this response.
    pub fn is_waiting(&self, ticket: u64) -> bool {
        self.tickets.contains(ticket)
    }

    /// The latest time that the driver gave.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// This node's name.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The number of this life.
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// The configuration that this node is in, or knows of.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Where a key's writes go first, as far as this node knows.
    pub fn primary(&self, table: TableId, key: Key) -> NodeId {
        self.configuration.primary(self.settings.region_of(&self.configuration, table, key))
    }

    /// Whether transactions can run here.
    pub fn is_open(&self) -> bool {
        self.role == Role::Member && self.is_open
    }

    /// Whether this node has left for good.
    pub fn has_left(&self) -> bool {
        self.role == Role::Left
    }

    /// A worker and its transaction.
    pub fn worker(&self, worker: u16) -> &Worker {
        &self.workers[usize::from(worker)]
    }

    /// Data and log.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Asks the cluster to move this node's data elsewhere and to remove it.
    pub fn leave(&mut self) {
        self.membership.wants_to_leave = true;
    }

    /// How many members would stay, and neither leave nor be this node, if it left.
    pub fn staying_without_me(&self) -> usize {
        let leaves = |node: &NodeId| self.configuration.leaving.contains(node) || *node == self.id;
        self.configuration.nodes().filter(|node| !leaves(node)).count()
    }

    /// Whether members have been heard lately: a silent one may be gone.
    pub fn hears(&self, node: NodeId) -> bool {
        self.is_open() && self.configuration.boot(node).is_some() && !self.suspects().contains(&node)
    }

    fn send(&mut self, to: NodeId, request: Request, purpose: Purpose) {
        // A replica is complete when its disk has it.
        let says_durable = matches!(request, Request::Synced { .. }) && !planted!(self, SyncedBeforeDurable);
        let after = if says_durable { self.after(true) } else { 0 };
        if after > 0 {
            self.held.push_back((after, disk::Held::Request(to, request, purpose)));
            return;
        }
        let ticket = self.tickets.issue(to, purpose);
        if to == self.id {
            self.local.push_back((ticket, request));
            return;
        }
        self.count(&request);
        let is_reliable = !matches!(purpose, Purpose::Heartbeat | Purpose::Join);
        let packet = Packet { configuration: self.configuration.id, from: self.id, request };
        self.outgoing.push(Addressed { ticket, to, is_reliable }, &packet);
    }

    /// Sends one reliable request to several nodes, and gives it back. Its bytes are made once.
    fn send_all(&mut self, to: &[NodeId], request: Request, purpose: Purpose) -> Request {
        let packet = Packet { configuration: self.configuration.id, from: self.id, request };
        let mut is_first = true;
        for &to in to {
            let ticket = self.tickets.issue(to, purpose);
            if to == self.id {
                self.local.push_back((ticket, packet.request.clone()));
                continue;
            }
            self.count(&packet.request);
            let addressed = Addressed { ticket, to, is_reliable: true };
            match is_first {
                true => self.outgoing.push(addressed, &packet),
                false => self.outgoing.push_again(addressed),
            }
            is_first = false;
        }
        packet.request
    }

    fn run_local(&mut self) {
        while let Some((ticket, request)) = self.local.pop_front() {
            if !self.is_waiting(ticket) {
                continue;
            }
            match self.answer_packet(self.configuration.id, self.id, &request) {
                Some(response) => match self.after(request.is_promise()) {
                    0 => self.on_response(ticket, response),
                    after => self.held.push_back((after, disk::Held::Response(ticket, response))),
                },
                None => self.parked.push((ticket, request)),
            }
        }
    }

    fn on_response(&mut self, ticket: u64, response: Response) {
        let Some((from, purpose)) = self.tickets.redeem(ticket) else { return };
        match purpose {
            Purpose::Worker { worker, part } => self.on_worker_response(worker, part, response),
            Purpose::Heartbeat => self.on_heartbeat(from, response),
            Purpose::Join => {}
            Purpose::Adopt | Purpose::Recover | Purpose::Open => {
                self.on_manager_response(from, purpose, response)
            }
            Purpose::Fetch => self.on_page(response),
            Purpose::Synced => {}
            Purpose::Reclaim => self.on_reclaimed(),
        }
    }

    fn others(&self) -> BTreeSet<NodeId> {
        self.configuration.nodes().filter(|&node| node != self.id).collect()
    }

    fn count(&mut self, request: &Request) {
        let counters = &mut self.counters;
        match request {
            Request::Read { .. } | Request::Scan { .. } | Request::Lock { .. } => counters.execute += 1,
            Request::Validate { .. } | Request::ValidateScan { .. } => counters.validate += 1,
            Request::Log { .. } => counters.log += 1,
            Request::CommitBackup { .. } => counters.commit_backup += 1,
            Request::CommitPrimary { .. } => counters.commit_primary += 1,
            Request::Unlock { .. } => counters.unlock += 1,
            _ => {}
        }
    }
}
