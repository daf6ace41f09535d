//! The event loop: what happens when, to which machine.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use highwire_stdx::Rng;

use crate::check::{History, Observation, Outcome, Transaction};
use crate::configuration::{Configuration, ConfigurationService, Register};
use crate::id::{NodeId, Txid};
use crate::journal::{FileName, Loaded};
use crate::message::{Packet, Request};
use crate::node::{Event as NodeEvent, Memory, Node, Reply, ServiceCall};
use crate::settings::Settings;

use super::clients::{self, Client, Next};
use super::disk::Disk;
use super::machine::{Clock, HeldReply, Machine, Process};
use super::network::{Admission, Frame, Sender};
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
    pub(super) processes: u64,
    pub(super) history: History,
    pub(super) disturbed_until_ns: BTreeMap<NodeId, u64>,
    pub(super) report: Report,
    /// Processes that ended in the middle of sending: what they sent last may never have left.
    dead: BTreeSet<u64>,
    /// Something that no check of the history would see.
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

    /// Money comes from somewhere: a transaction before all others.
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

    /// Gives a machine a process.
    pub(super) fn begin_process(&mut self, at: NodeId, node: Node) {
        self.processes += 1;
        #[cfg_attr(not(all(test, not(loom))), expect(unused_mut))]
        let mut node = node;
        #[cfg(all(test, not(loom)))]
        {
            node.defect = self.plan.defect;
        }
        let last = self.settings.workers - 1;
        let client = |worker| Client::new(self.rng.fork(7), worker == last);
        let clients: Vec<Client> = (0..self.settings.workers).map(client).collect();
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        machine.memory = None;
        machine.process = Some(Process {
            number: self.processes,
            node,
            sender: Sender::default(),
            receivers: BTreeMap::new(),
            clients,
            timer_ns: u64::MAX,
            service_call: 0,
            held: Vec::new(),
        });
        let process = self.processes;
        for worker in 0..self.settings.workers {
            let think = self.rng.below(2_000_000);
            self.schedule(think, Event::Client { at, process, worker });
        }
        self.schedule(0, Event::Timer { at, process });
    }

    /// Ends a machine's process. What its clients had under way is over for them.
    pub(super) fn crash(&mut self, at: NodeId, keeps_memory: bool) -> bool {
        let now_ns = self.now_ns;
        let Some(machine) = self.machines.get_mut(&at) else { return false };
        let Some(process) = machine.process.take() else { return false };
        self.dead.insert(process.number);
        for (worker, client) in process.clients.iter().enumerate().filter(|(_, client)| client.job.is_some())
        {
            let worker = process.node.worker(worker as u16);
            let outcome = clients::outcome_of(worker);
            let completed_ns = (outcome == Outcome::Aborted).then_some(now_ns);
            let transaction = clients::record(worker, client.invoked_ns, completed_ns, outcome);
            self.history.transactions.push(transaction);
        }
        machine.paused_until_ns = 0;
        machine.memory = if keeps_memory { process.node.into_memory() } else { None };
        self.report.crashes += 1;
        if self.plan.has_disks {
            machine.loaded = None;
            if !keeps_memory {
                machine.disk = Some(Disk::default());
            }
            let loses_power = self.rng.chance(0.8);
            self.load_disk(at, loses_power);
        }
        true
    }

    /// Puts into the history what clients have under way, as after a crash.
    pub(super) fn end_history(&mut self) {
        let all: Vec<NodeId> = self.machines.keys().copied().collect();
        for at in all {
            self.crash(at, false);
        }
    }

    /// Starts a machine that is down, with the memory it has.
    pub(super) fn start(&mut self, at: NodeId) {
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        if machine.process.is_some() {
            return;
        }
        let now = machine.clock.local(self.now_ns);
        let loaded = machine.loaded.take().unwrap_or_default();
        let mut node = match machine.memory.take() {
            Some(memory) => Node::restart(at, memory, self.settings.clone(), now),
            None => {
                let boot = loaded.boot.unwrap_or_else(|| self.rng.next_u64());
                Node::join(at, boot, self.service.0.clone(), self.settings.clone(), now)
            }
        };
        self.begin_journal(at, &mut node, &loaded);
        self.begin_process(at, node);
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

    pub(super) fn stop_clients(&mut self) {
        self.is_stopping = true;
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

    /// What a process sent just before it ended may never have left, or be the last message of its kind to arrive.
    fn survivor(&mut self, at: NodeId, from: NodeId, frame: Frame) -> Option<Frame> {
        let Frame::Request { process, .. } = &frame else { return Some(frame) };
        if self.is_healed || !self.dead.contains(process) {
            return Some(frame);
        }
        match self.rng.below(10) {
            0..=3 => None,
            4..=6 => {
                let late = self.rng.below(15_000_000);
                self.schedule(late, Event::Deliver { from, to: at, frame });
                None
            }
            _ => Some(frame),
        }
    }

    fn deliver(&mut self, at: NodeId, local: u64, from: NodeId, frame: Frame) {
        self.report.messages += 1;
        self.report.fingerprint =
            crate::id::mix(self.report.fingerprint ^ self.now_ns ^ u64::from(at.0) << 48);
        #[cfg(all(test, not(loom)))]
        let repeats = self.plan.defect == Some(crate::defect::Defect::MoreThanOneExecution);
        #[cfg(not(all(test, not(loom))))]
        let repeats = false;
        let Some(process) = self.machines.get_mut(&at).and_then(|machine| machine.process.as_mut()) else {
            return;
        };
        match frame {
            Frame::Request { process: sender, .. } if self.dead.contains(&sender) && self.rng.chance(0.5) => {
            }
            Frame::Request { process: sender, ticket, oldest, is_reliable, bytes } => {
                let receiver = process.receivers.entry((from, sender)).or_default();
                let admission =
                    if is_reliable && !repeats { receiver.admit(ticket, oldest) } else { Admission::Execute };
                let is_new = admission == Admission::Execute;
                let reply = match admission {
                    Admission::Drop => None,
                    Admission::Answer(reply) => Some(reply),
                    Admission::Execute => {
                        let reply = process.node.handle_request(local, from, &bytes);
                        if let Some(Reply { after, bytes }) = &reply {
                            if *after > 0 {
                                receiver.begin(ticket);
                                let (after, bytes) = (*after, bytes.clone());
                                let held = HeldReply { after, to: from, process: sender, ticket, bytes };
                                return process.held.push(held);
                            }
                            if is_reliable {
                                receiver.remember(ticket, bytes);
                            }
                        }
                        reply.map(|reply| reply.bytes)
                    }
                };
                if let Some(reply) = reply {
                    let slot = if is_new { logged(from, &bytes) } else { None };
                    self.answer(at, from, sender, ticket, reply, slot);
                }
            }
            Frame::Response { process: number, ticket, bytes } => {
                if number == process.number {
                    process.sender.outstanding.remove(&ticket);
                    process.node.handle_response(local, ticket, &bytes);
                }
            }
        }
    }

    pub(super) fn answer(
        &mut self,
        at: NodeId,
        to: NodeId,
        process: u64,
        ticket: u64,
        bytes: Vec<u8>,
        slot: Option<(NodeId, u16)>,
    ) {
        if !self.springs(at, slot) {
            self.transmit(at, to, Frame::Response { process, ticket, bytes });
        }
    }

    /// Whether an ambush springs before this message. A record that was being written may be torn then.
    fn springs(&mut self, at: NodeId, slot: Option<(NodeId, u16)>) -> bool {
        let Some(ambush) = self.ambush.as_mut().filter(|ambush| ambush.at == at) else { return false };
        if ambush.at_records && slot.is_none() {
            return false;
        }
        ambush.messages = ambush.messages.saturating_sub(1);
        if ambush.messages > 0 {
            return false;
        }
        let keeps_memory = ambush.keeps_memory;
        self.ambush = None;
        // Much may have happened since it was laid.
        if !self.may_fail(at, !keeps_memory) {
            return false;
        }
        self.crash(at, keeps_memory);
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        // A disk tears by itself.
        if let Some(slot) = slot.filter(|_| !self.plan.has_disks)
            && let Some(record) =
                machine.memory.as_mut().and_then(|memory: &mut Memory| memory.store.slots.get_mut(&slot))
        {
            let cut = self.rng.below(record.len() as u64 + 1) as usize;
            record[cut..].fill(0);
        }
        let down = self.rng.between(1_000_000, 30_000_000);
        self.schedule(down, Event::Start { at });
        true
    }

    fn transmit(&mut self, from: NodeId, to: NodeId, frame: Frame) {
        let (loss, duplication, delay) = match self.is_healed {
            true => (0.0, 0.0, 0.0),
            false => (self.plan.loss, self.plan.duplication, self.plan.delay),
        };
        let copies = if self.network.chance(duplication) { 2 } else { 1 };
        for _ in 0..copies {
            if self.network.chance(loss) || self.blocked.contains(&(from, to)) {
                continue;
            }
            let mut wait = self.network.between(3_000, 25_000);
            if self.network.chance(delay) {
                let late = *self.network.pick(&[200_000, 2_000_000, 20_000_000]);
                wait += self.network.below(late);
            }
            self.schedule(wait, Event::Deliver { from, to, frame: frame.clone() });
        }
    }

    /// Carries out what a node asks for after an event: requests, answers, disk operations.
    fn drain(&mut self, at: NodeId) {
        let mut is_first = true;
        loop {
            let Some(machine) = self.machines.get_mut(&at) else { return };
            let Some(process) = machine.process.as_mut() else { return };
            let number = process.number;
            if let Some(request) = process.node.poll_request() {
                let oldest = process.sender.oldest(request.to, request.ticket);
                if request.is_reliable {
                    process.sender.outstanding.insert(request.ticket, (request.to, request.bytes.clone()));
                }
                let own = if is_first { logged(at, &request.bytes) } else { None };
                is_first = false;
                if self.springs(at, own) {
                    return;
                }
                let (ticket, is_reliable, bytes) = (request.ticket, request.is_reliable, request.bytes);
                let frame = Frame::Request { process: number, ticket, oldest, is_reliable, bytes };
                self.transmit(at, request.to, frame);
                if is_reliable {
                    let pause_ns = 300_000;
                    self.schedule(pause_ns, Event::Repeat { at, process: number, ticket, pause_ns });
                }
            } else if let Some(call) = process.node.poll_service() {
                let call_number = process.service_call;
                self.call_service(at, number, call_number, call);
            } else if let Some(event) = process.node.poll_event() {
                self.tell_client(at, number, event);
            } else if let Some(operation) = process.node.poll_disk() {
                self.operate(at, number, operation);
            } else {
                break;
            }
        }
        let Some(machine) = self.machines.get_mut(&at) else { return };
        let Some(process) = machine.process.as_mut() else { return };
        let due = process.node.next_timeout();
        if due == u64::MAX {
            return;
        }
        let due = machine.clock.true_time(due).max(self.now_ns + 1);
        if due < process.timer_ns {
            process.timer_ns = due;
            let number = process.number;
            self.schedule(due - self.now_ns, Event::Timer { at, process: number });
        }
    }

    fn call_service(&mut self, at: NodeId, process: u64, number: u64, call: ServiceCall) {
        // A late call arrives after its caller has given up: a change may be made when no node expects it any more.
        let slow = !self.is_healed && self.rng.chance(0.05);
        let delay =
            if slow { self.rng.below(3 * SERVICE_TIMEOUT_NS) } else { self.rng.between(50_000, 500_000) };
        self.schedule(delay, Event::ServiceHears { at, process, number, call });
        self.schedule(SERVICE_TIMEOUT_NS, Event::ServiceAnswers { at, process, number, answer: None });
    }

    fn begin_transaction(&mut self, at: NodeId, local: u64, worker: u16) {
        let stopping = self.is_stopping;
        let now_ns = self.now_ns;
        let Some(process) = self.machines.get_mut(&at).and_then(|machine| machine.process.as_mut()) else {
            return;
        };
        let number = process.number;
        let client = &mut process.clients[usize::from(worker)];
        if stopping || client.job.is_some() {
            return;
        }
        if process.node.begin(worker).is_err() {
            self.schedule(500_000, Event::Client { at, process: number, worker });
            return;
        }
        client.begin(&mut process.node, worker, now_ns);
        process.node.execute(local, worker).expect("it has just begun");
    }

    fn tell_client(&mut self, at: NodeId, process: u64, event: NodeEvent) {
        let now_ns = self.now_ns;
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        let local = machine.clock.local(now_ns);
        let Some(running) = machine.process.as_mut() else { return };
        let (worker, outcome) = match event {
            NodeEvent::Executed { worker, result: Ok(()) } => {
                let txid = running.node.worker(worker).txid();
                if self.rng.chance(0.2) {
                    let think = self.rng.below(1_000_000);
                    self.schedule(think, Event::Thought { at, process, worker, txid });
                } else {
                    self.go_on(at, worker);
                }
                return;
            }
            NodeEvent::Executed { worker, result: Err(_) } => {
                running.node.abort(local, worker).expect("its turn");
                return;
            }
            NodeEvent::Committed { worker, .. } => (worker, Outcome::Committed),
            NodeEvent::Aborted { worker, .. } => (worker, Outcome::Aborted),
            NodeEvent::Unknown { worker, .. } => (worker, Outcome::Unknown),
        };
        let client = &mut running.clients[usize::from(worker)];
        if client.job.take().is_none() {
            return;
        }
        let completed_ns = (outcome != Outcome::Unknown).then_some(now_ns);
        let transaction =
            clients::record(running.node.worker(worker), client.invoked_ns, completed_ns, outcome);
        self.history.transactions.push(transaction);
        match outcome {
            Outcome::Committed => {
                client.committed += 1;
                self.report.committed += 1;
            }
            Outcome::Aborted => self.report.aborted += 1,
            Outcome::Unknown => self.report.unknown += 1,
        }
        let longest = if client.is_local { 400_000 } else { 1_500_000 };
        let think = self.rng.between(10_000, longest);
        self.schedule(think, Event::Client { at, process, worker });
    }

    fn go_on(&mut self, at: NodeId, worker: u16) {
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        let local = machine.clock.local(self.now_ns);
        let Some(process) = machine.process.as_mut() else { return };
        let next = process.clients[usize::from(worker)].go_on(&mut process.node, worker);
        match next {
            Next::Execute => process.node.execute(local, worker),
            Next::Commit => process.node.commit(local, worker),
            Next::Abort => process.node.abort(local, worker),
        }
        .expect("its turn");
    }
}

/// The slot that a request for the log will fill.
fn logged(from: NodeId, bytes: &[u8]) -> Option<(NodeId, u16)> {
    match Packet::parse(bytes).ok()?.request {
        Request::Log { worker, .. } => Some((from, worker)),
        _ => None,
    }
}
