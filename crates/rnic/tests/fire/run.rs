//! Runs a plan to its end.

use crate::check;
use crate::common::{Seen, Verdict};
use crate::plan::Plan;
use crate::stage::Stage;
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{PostError, Recovery, RecvWr, SendWr, Service};
use highwire_wire::Operation;
use std::collections::BTreeMap;

/// More virtual time than any run may take once the faults are over.
const LIMIT: Duration = Duration::from_secs(20);
/// An attacker may well make a requester try for ever.
const HOSTILE_LIMIT: Duration = Duration::from_millis(100);

/// The result of a run, and sums over runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub hash: u64,
    pub connections: u64,
    pub requests: u64,
    pub packets: u64,
    pub retransmitted: u64,
    /// Connections that gave up after all retries.
    pub broken: u64,
    /// Messages that unreliable services lost.
    pub lost: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Outcome) {
        self.hash ^= other.hash;
        self.connections += other.connections;
        self.requests += other.requests;
        self.packets += other.packets;
        self.retransmitted += other.retransmitted;
        self.broken += other.broken;
        self.lost += other.lost;
    }
}

/// A run of a plan.
pub(crate) struct Run<'a> {
    pub plan: &'a Plan,
    pub stage: Stage,
    /// Each node's memory before anything moved.
    pub before: Vec<Vec<u8>>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan, with_trace: bool) -> Run<'a> {
        let mut stage = Stage::new(plan);
        stage.net.trace = with_trace.then(Vec::new);
        stage.net.rules.push(plan.faults.rule());
        only_agreed_opcodes(plan, &mut stage);
        let before = stage.net.nodes.iter().map(|node| node.memory.bytes.clone()).collect();
        Run { plan, stage, before }
    }

    pub(crate) fn print_trace(&self) {
        for line in self.stage.net.trace.iter().flatten() {
            eprintln!("{line}");
        }
    }

    /// Runs until everything has completed, and checks everything.
    pub(crate) fn finish(&mut self) -> Outcome {
        let limit = if self.plan.is_hostile { HOSTILE_LIMIT } else { LIMIT };
        let mut last = (Instant::ZERO, 0);
        loop {
            self.post_what_is_due();
            self.take_memory_away();
            check::completions(self);
            check::in_flight(self);
            let due = self.next_post();
            let Some(at) = self.stage.net.next_time().into_iter().chain(due).min() else { break };
            if at > Instant::ZERO + limit {
                break;
            }
            self.stage.net.advance_to(at);
            let now = self.stage.net.now;
            last = if last.0 == now { (now, last.1 + 1) } else { (now, 0) };
            assert!(last.1 < 100_000, "the time stands still at {now:?}");
        }
        if self.plan.is_hostile { check::after_an_attack(self) } else { check::at_rest(self) }
    }

    /// Deregisters the regions that are due, as an impatient application might.
    fn take_memory_away(&mut self) {
        let net = &mut self.stage.net;
        for (at, node, region) in &self.plan.vanishing {
            let node = &mut net.nodes[*node];
            if let Some(buffer) = node.buffers.get(*region).copied().filter(|_| *at <= net.now) {
                node.try_deregister(&buffer);
            }
        }
    }

    /// When the next request or receive is due, except those that a full queue refused.
    fn next_post(&self) -> Option<Instant> {
        let now = self.stage.net.now;
        let sends = self.stage.flows.iter().filter_map(|f| f.requests.get(f.posted).map(|r| r.post_at));
        let receives = self.stage.queues.iter().filter_map(|q| q.list.get(q.posted).map(|r| r.post_at));
        let vanishing = self.plan.vanishing.iter().map(|(at, ..)| *at);
        sends.chain(receives).chain(vanishing).filter(|at| *at > now).min()
    }

    fn post_what_is_due(&mut self) {
        let Stage { net, flows, queues, .. } = &mut self.stage;
        let now = net.now;
        for (index, queue) in queues.iter_mut().enumerate() {
            while let Some(receive) = queue.list.get(queue.posted).filter(|r| r.post_at <= now) {
                let wr_id = check::receive_id(index, queue.posted);
                let wr = RecvWr { wr_id, sges: &receive.sges };
                let rnic = &mut net.nodes[queue.node].rnic;
                let result = match queue.srq {
                    Some(srq) => rnic.post_srq_recv(srq, &wr),
                    None => rnic.post_recv(now, queue.qpn, &wr),
                };
                match result {
                    Ok(()) => queue.posted += 1,
                    Err(PostError::QueueFull) => break,
                    Err(error) => panic!("a receive was refused: {error}"),
                }
            }
        }
        for (index, flow) in flows.iter_mut().enumerate() {
            while let Some(request) = flow.requests.get(flow.posted).filter(|r| r.post_at <= now) {
                let wr = SendWr {
                    wr_id: check::send_id(index, flow.posted),
                    operation: request.operation,
                    flags: request.flags,
                    sges: &request.sges,
                    datagram: request.datagram,
                };
                match net.nodes[flow.node].rnic.post_send(now, flow.qpn, &wr) {
                    Ok(()) => flow.posted += 1,
                    Err(PostError::QueueFull) => break,
                    Err(error) => panic!("{:?} was refused: {error}", request.operation),
                }
                net.drain();
            }
        }
        net.drain();
    }
}

/// Checks that every opcode that leaves is one that both ends agreed on, in both directions of every
/// connection.
fn only_agreed_opcodes(plan: &Plan, stage: &mut Stage) {
    let mut by_destination = BTreeMap::new();
    for (index, ends) in stage.ends.iter().enumerate() {
        for (side, end) in ends.iter().enumerate() {
            let connection = &plan.connections[index];
            let is_irn =
                |side: usize| connection.service == Service::Rc && connection.recovery[side] == Recovery::Irn;
            // This side receives the peer's requests and the answers to its own.
            by_destination.insert((end.node, end.qpn), (is_irn(1 - side), is_irn(side)));
        }
    }
    let is_hostile = plan.is_hostile;
    stage.net.rules.push(Box::new(move |seen: &Seen<'_>, _| {
        let bth = &seen.headers.bth;
        let (requests, answers) = by_destination[&(seen.to, bth.dest_qpn)];
        let agreed = match bth.opcode.info().operation {
            Operation::Congestion => false,
            Operation::Send
            | Operation::Write
            | Operation::Read
            | Operation::CompareSwap
            | Operation::FetchAdd => requests,
            // Acknowledgements of READ responses travel with the requests.
            Operation::ReadAcknowledge | Operation::ReadSelectiveAcknowledge => requests,
            _ => answers,
        };
        // An attacker can make a responder believe that its peer speaks the standard, never that it speaks IRN.
        let is_fine = bth.opcode.is_irn() == agreed || is_hostile && agreed;
        assert!(is_fine, "{} was not agreed on", bth.opcode);
        Verdict::PASS
    }));
}
