//! The way of messages: whether, when and how often they arrive, and the events that they cause.

use crate::id::NodeId;
use crate::message::{Packet, Request};
use crate::node::{Memory, Reply, ServiceCall};

use super::super::machine::HeldReply;
use super::super::network::{Admission, Frame};
use super::{Event, SERVICE_TIMEOUT_NS, World};

impl World {
    /// A message that a process sent just before it ended may never have left, or be the last of its kind to
    /// arrive.
    pub(super) fn survivor(&mut self, at: NodeId, from: NodeId, frame: Frame) -> Option<Frame> {
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

    pub(super) fn deliver(&mut self, at: NodeId, local: u64, from: NodeId, frame: Frame) {
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

    pub(in crate::simulation) fn answer(
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

    /// Whether an ambush springs before this message, a crash that may tear the record being written.
    pub(super) fn springs(&mut self, at: NodeId, slot: Option<(NodeId, u16)>) -> bool {
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
        // The cluster may have lost other nodes since the ambush was laid.
        if !self.may_fail(at, !keeps_memory) {
            return false;
        }
        self.crash(at, keeps_memory);
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        // With a disk, the disk does the tearing.
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

    pub(super) fn transmit(&mut self, from: NodeId, to: NodeId, frame: Frame) {
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
    pub(super) fn drain(&mut self, at: NodeId) {
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

    pub(super) fn call_service(&mut self, at: NodeId, process: u64, number: u64, call: ServiceCall) {
        // A late call arrives after its caller has given up: a change may be made when no node expects it any more.
        let slow = !self.is_healed && self.rng.chance(0.05);
        let delay =
            if slow { self.rng.below(3 * SERVICE_TIMEOUT_NS) } else { self.rng.between(50_000, 500_000) };
        self.schedule(delay, Event::ServiceHears { at, process, number, call });
        self.schedule(SERVICE_TIMEOUT_NS, Event::ServiceAnswers { at, process, number, answer: None });
    }
}

/// The slot that a request for the log will fill.
fn logged(from: NodeId, bytes: &[u8]) -> Option<(NodeId, u16)> {
    match Packet::parse(bytes).ok()?.request {
        Request::Log { worker, .. } => Some((from, worker)),
        _ => None,
    }
}
