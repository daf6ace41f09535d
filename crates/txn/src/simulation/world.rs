//! The event loop: what happens when, to which machine.

mod applications;
mod life;
mod messages;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use highwire_stdx::Rng;

use crate::check::{History, Observation, Outcome, Transaction};
use crate::configuration::{Configuration, ConfigurationService, Register};
use crate::id::{NodeId, Txid};
use crate::journal::{FileName, Loaded};
use crate::node::{Node, ServiceCall};
use crate::settings::Settings;

use super::clients;
use super::disk::Disk;
use super::machine::{Clock, Machine};
use super::network::Frame;
use super::{Plan, Report};

#[derive(Debug)]
pub(super) enum Event {
    Deliver { from: NodeId, to: NodeId, frame: Frame },
    Timer { at: NodeId, process: u64 },
    Repeat { at: NodeId, process: u64, ticket: u64, pause_ns: u64 },
    Client { at: NodeId, process: u64, worker: u16 },
    Thought { at: NodeId, process: u64, worker: u16, txid: Txid },
    ServiceHears { at: NodeId, process: u64, number: u64, call: ServiceCall },
    ServiceAnswers { at: NodeId, process: u64, number: u64, answer: Option<Box<Configuration>> },
    Fault,
    Start { at: NodeId },
    Unblock { from: NodeId, to: NodeId },
    Synced { at: NodeId, process: u64, file: FileName },
    RestartIfHalted { at: NodeId },
}

struct Scheduled {
    time_ns: u64,
    order: u64,
    event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time_ns, other.order).cmp(&(self.time_ns, self.order))
    }
}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Scheduled {}

/// A crash in the middle of something: after so many more messages of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ambush {
    pub(super) at: NodeId,
    pub(super) messages: u32,
    /// Only messages that belong to a record that has just been written count.
    pub(super) at_records: bool,
    pub(super) keeps_memory: bool,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) settings: Settings,
    pub(super) now_ns: u64,
    pub(super) rng: Rng,
    network: Rng,
    queue: BinaryHeap<Scheduled>,
    order: u64,
    pub(super) machines: BTreeMap<NodeId, Machine>,
    pub(super) service: Register,
    pub(super) service_down_until_ns: u64,
    /// Nodes that do not reach the service.
    pub(super) without_service_until_ns: BTreeMap<NodeId, u64>,
    pub(super) blocked: BTreeSet<(NodeId, NodeId)>,
    pub(super) ambush: Option<Ambush>,
    pub(super) is_healed: bool,
    is_stopping: bool,
    /// Reads of local clients that were answered at once.
    home_reads: u64,
    pub(super) processes: u64,
    pub(super) history: History,
    pub(super) disturbed_until_ns: BTreeMap<NodeId, u64>,
    pub(super) report: Report,
    /// Processes that ended in the middle of sending: their last messages may never have left.
    dead: BTreeSet<u64>,
    /// A mistake that no check of the history would find.
    pub(super) wrong: Option<String>,
}

const SERVICE_TIMEOUT_NS: u64 = 8_000_000;

impl World {
    pub(super) fn new(plan: &Plan) -> World {
        let mut rng = Rng::new(plan.seed);
        let ids: Vec<NodeId> = (0..plan.nodes).map(NodeId).collect();
        let boots: Vec<u64> = ids.iter().map(|_| rng.next_u64()).collect();
        let regions = rng.between(2, 5) as usize;
        let first = Configuration::first(&ids, &boots, regions, plan.f);
        let mut world = World {
            settings: plan.settings(),
            now_ns: 0,
            network: rng.fork(1),
            rng,
            queue: BinaryHeap::new(),
            order: 0,
            machines: BTreeMap::new(),
            service: Register(first.clone()),
            service_down_until_ns: 0,
            without_service_until_ns: BTreeMap::new(),
            blocked: BTreeSet::new(),
            ambush: None,
            is_healed: false,
            is_stopping: false,
            home_reads: 0,
            processes: 0,
            history: History { transactions: Vec::new(), lists: [clients::LISTS].into() },
            disturbed_until_ns: BTreeMap::new(),
            report: Report::default(),
            dead: BTreeSet::new(),
            wrong: None,
            plan: plan.clone(),
        };
        world.load();
        for (id, boot) in ids.into_iter().zip(boots) {
            let drift = plan.drift_ppm as i64;
            let drift_ppm = world.rng.between(0, 2 * plan.drift_ppm) as i64 - drift;
            let clock = Clock { offset_ns: world.rng.below(1 << 40), drift_ppm };
            let disk = plan.has_disks.then(Disk::default);
            let (process, memory, loaded) = (None, None, None);
            let machine = Machine { id, clock, process, memory, disk, loaded, paused_until_ns: 0 };
            world.machines.insert(id, machine);
            let mut node = Node::new(id, boot, first.clone(), world.settings.clone(), clock.local(0));
            world.begin_journal(id, &mut node, &Loaded::default());
            for write in world.history.transactions[0].writes.clone() {
                let txid = world.history.transactions[0].txid;
                let (table, key, value) = (write.table, write.key, write.value);
                node.apply(txid, &crate::record::Write { table, key, read: 0, value });
            }
            world.sync_at_once(id, &mut node);
            world.begin_process(id, node);
        }
        if plan.fault_every_ns > 0 {
            world.schedule(plan.fault_every_ns, Event::Fault);
        }
        world
    }

    /// Loads the accounts, as a transaction before all others.
    fn load(&mut self) {
        let txid = Txid { node: NodeId(u16::MAX), worker: 0, sequence: 0 };
        let deposit = |key: u64| Observation {
            table: clients::ACCOUNTS,
            key,
            version: 1,
            value: Some(clients::account(clients::BALANCE, key.to_le_bytes())),
        };
        let writes = (0..clients::ACCOUNT_KEYS).map(deposit).collect();
        let outcome = Outcome::Committed;
        let (invoked_ns, completed_ns, reads) = (0, Some(0), Vec::new());
        self.history.transactions.push(Transaction {
            txid,
            invoked_ns,
            completed_ns,
            outcome,
            reads,
            writes,
        });
    }

    pub(super) fn schedule(&mut self, after_ns: u64, event: Event) {
        self.order += 1;
        self.queue.push(Scheduled { time_ns: self.now_ns + after_ns, order: self.order, event });
    }

    /// Runs until `until_ns` or until `done`.
    pub(super) fn run(&mut self, until_ns: u64, mut done: impl FnMut(&mut World) -> bool) -> bool {
        let mut steps = 0u32;
        while let Some(next) = self.queue.peek() {
            if next.time_ns > until_ns {
                break;
            }
            let scheduled = self.queue.pop().expect("it was there");
            self.now_ns = scheduled.time_ns;
            self.handle(scheduled.event);
            steps += 1;
            if steps.is_multiple_of(64) && done(self) {
                return true;
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
        done(self)
    }

    fn handle(&mut self, event: Event) {
        let at = match &event {
            Event::Deliver { to, .. } => Some((*to, None)),
            Event::Timer { at, process }
            | Event::Repeat { at, process, .. }
            | Event::Client { at, process, .. }
            | Event::Thought { at, process, .. }
            | Event::Synced { at, process, .. }
            | Event::ServiceAnswers { at, process, .. } => Some((*at, Some(*process))),
            _ => None,
        };
        let Some((at, process)) = at else { return self.handle_world(event) };
        let Some(machine) = self.machines.get(&at) else { return };
        let Some(running) = &machine.process else { return };
        if process.is_some_and(|process| process != running.number) {
            return;
        }
        if machine.paused_until_ns > self.now_ns {
            let wait = machine.paused_until_ns - self.now_ns;
            self.schedule(wait, event);
            return;
        }
        self.handle_machine(at, event);
        self.drain(at);
        self.check_rules(at);
    }

    fn check_rules(&mut self, at: NodeId) {
        #[cfg(all(test, not(loom)))]
        if !self.plan.checks_rules {
            return;
        }
        let process = self.machines.get(&at).and_then(|machine| machine.process.as_ref());
        if let Some(rule) = process.and_then(|process| process.node.broken_rule()) {
            self.wrong.get_or_insert_with(|| format!("{at}: {rule}"));
        }
    }

    fn handle_world(&mut self, event: Event) {
        match event {
            Event::Fault => self.inject(),
            Event::Start { at } => self.start(at),
            Event::RestartIfHalted { at } => self.restart_if_halted(at),
            Event::Unblock { from, to } => {
                self.blocked.remove(&(from, to));
            }
            Event::ServiceHears { at, process, number, call } => {
                let cut_off_until_ns = self.without_service_until_ns.get(&at).copied().unwrap_or(0);
                let reaches = self.now_ns >= self.service_down_until_ns.max(cut_off_until_ns);
                if !reaches {
                    return;
                }
                let Ok(now) = match call {
                    ServiceCall::Read => self.service.read(),
                    ServiceCall::CompareAndSwap { id, revision, new } => {
                        self.service.compare_and_swap(id, revision, *new)
                    }
                };
                // An answer may be lost: then the caller does not know whether its change was made.
                if self.is_healed || !self.rng.chance(0.1) {
                    let delay = self.rng.between(50_000, 500_000);
                    let answer = Some(Box::new(now));
                    self.schedule(delay, Event::ServiceAnswers { at, process, number, answer });
                }
            }
            _ => {}
        }
    }

    fn handle_machine(&mut self, at: NodeId, event: Event) {
        let Some(machine) = self.machines.get_mut(&at) else { return };
        let local = machine.clock.local(self.now_ns);
        let Some(process) = &mut machine.process else { return };
        match event {
            Event::Timer { .. } => {
                process.timer_ns = u64::MAX;
                process.node.handle_timeout(local);
            }
            Event::Deliver { from, frame, .. } => {
                if let Some(frame) = self.survivor(at, from, frame) {
                    self.deliver(at, local, from, frame);
                }
            }
            Event::Repeat { ticket, pause_ns, .. } => {
                let Some((to, bytes)) = process.sender.outstanding.get(&ticket).cloned() else { return };
                if !process.node.is_waiting(ticket) {
                    process.sender.outstanding.remove(&ticket);
                    return;
                }
                let oldest = process.sender.oldest(to, ticket);
                let number = process.number;
                let frame = Frame::Request { process: number, ticket, oldest, is_reliable: true, bytes };
                self.transmit(at, to, frame);
                let pause_ns = (pause_ns * 2).min(4_000_000);
                self.schedule(pause_ns, Event::Repeat { at, process: number, ticket, pause_ns });
            }
            Event::Client { worker, .. } => self.begin_transaction(at, local, worker),
            Event::Synced { file, .. } => self.on_synced(at, local, file),
            Event::Thought { worker, txid, .. } => {
                let is_same = process.node.worker(worker).txid() == txid;
                if is_same && process.clients[usize::from(worker)].job.is_some() {
                    self.go_on(at, worker);
                }
            }
            Event::ServiceAnswers { number, answer, .. } if number == process.service_call => {
                process.service_call += 1;
                process.node.handle_service(local, answer.map(|configuration| *configuration));
            }
            _ => {}
        }
    }
}
