//! The checkers: of every completion as it comes, of the windows all the time, of everything when the network
//! is quiet.

use crate::common::BASE;
use crate::flow::{Effect, Flow, Spans};
use crate::plan::Plan;
use crate::run::{Outcome, Run};
use crate::stage::Stage;
use highwire_rnic::Counter;
use highwire_verbs::{Completion, CompletionOp, CompletionStatus, Operation, Recovery, Service};
use std::ops::Range;

const RECEIVE: u64 = 1 << 63;
/// Bytes of the GRH in front of a datagram's payload.
const GRH_LEN: usize = 40;

pub(crate) fn send_id(flow: usize, request: usize) -> u64 {
    (flow as u64) << 32 | request as u64
}

pub(crate) fn receive_id(queue: usize, receive: usize) -> u64 {
    RECEIVE | (queue as u64) << 32 | receive as u64
}

fn split(wr_id: u64) -> (usize, usize) {
    (((wr_id & !RECEIVE) >> 32) as usize, wr_id as u32 as usize)
}

/// The bytes in these runs of memory.
fn gather(stage: &Stage, node: usize, spans: &Spans) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(spans.iter().map(|span| (span.end - span.start) as usize).sum());
    for span in spans {
        bytes.extend_from_slice(stage.net.nodes[node].memory.slice(span.clone()));
    }
    bytes
}

/// Checks everything that has completed since the last time.
pub(crate) fn completions(run: &mut Run<'_>) {
    for node in 0..run.stage.net.nodes.len() {
        while let Some(completion) = run.stage.net.nodes[node].completions.pop_front() {
            if run.plan.is_hostile {
                once(run, &completion);
            } else if completion.wr_id & RECEIVE == 0 {
                sent(run, &completion);
            } else {
                received(run, node, &completion);
            }
        }
    }
}

/// The only claims that hold under attack: a request that completes was posted, and has not completed before.
fn once(run: &mut Run<'_>, completion: &Completion) {
    let (index, number) = split(completion.wr_id);
    if completion.wr_id & RECEIVE == 0 {
        let flow = &mut run.stage.flows[index];
        assert!(number < flow.posted && flow.completed <= number, "{completion:?} twice");
        flow.completed = number + 1;
        flow.broken |= completion.status != CompletionStatus::Success;
    } else {
        let queue = &mut run.stage.queues[index];
        assert!(number < queue.posted && queue.list[number].filled.is_none(), "{completion:?} twice");
        queue.list[number].filled = Some(Vec::new());
    }
}

/// Memory was watched all the time; it remains to check that nothing goes on for ever.
pub(crate) fn after_an_attack(run: &mut Run<'_>) -> Outcome {
    let is_waiting = run.stage.flows.iter().any(|flow| {
        let qp = run.stage.net.nodes[flow.node].rnic.query_qp(flow.qpn);
        qp.is_some_and(|qp| qp.send_queue_len > 0)
    });
    if !is_waiting {
        // Congestion control may still raise its rates.
        run.stage.net.run();
        assert_eq!(run.stage.net.next_time(), None, "something goes on with nothing to do");
    }
    outcome_of(run, 0)
}

fn sent(run: &mut Run<'_>, completion: &Completion) {
    let (flow_index, index) = split(completion.wr_id);
    let is_success = completion.status == CompletionStatus::Success;
    let flow = &run.stage.flows[flow_index];
    assert_eq!(completion.qpn, flow.qpn);
    assert!(index >= flow.completed && index < flow.posted, "{completion:?} after {} others", flow.completed);
    let request = &flow.requests[index];
    if is_success {
        assert!(request.flags.signaled, "nobody asked to see {completion:?}");
        assert!(!flow.broken, "{completion:?} after an error");
    } else if flow.broken {
        assert_eq!(completion.status, CompletionStatus::Flushed, "{completion:?}");
    } else {
        assert_eq!(completion.status, CompletionStatus::RetryExceeded, "{completion:?}");
        assert!(is_harsh(run.plan), "gave up: {completion:?}");
    }
    // Requests in between completed silently, or else would have been flushed visibly.
    for silent in flow.completed..index {
        assert!(!flow.broken && !flow.requests[silent].flags.signaled, "request {silent} never completed");
    }
    if is_success {
        assert_eq!(completion.byte_len as usize, request.data.len(), "{completion:?}");
        let name = match request.operation {
            Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => CompletionOp::Send,
            Operation::Write(_) | Operation::WriteImm(..) => CompletionOp::Write,
            Operation::Read(_) => CompletionOp::Read,
            Operation::CompareSwap { .. } => CompletionOp::CompareSwap,
            Operation::FetchAdd { .. } => CompletionOp::FetchAdd,
            Operation::LocalInvalidate(_) => CompletionOp::LocalInvalidate,
            Operation::BindWindow(_) => CompletionOp::BindWindow,
        };
        assert_eq!(completion.operation, name);
    }
    let last = if is_success { index + 1 } else { index };
    for done in flow.completed..last {
        outcome(&run.stage, flow, done);
    }
    let flow = &mut run.stage.flows[flow_index];
    flow.completed = index + 1;
    if !flow.broken {
        flow.succeeded = last;
    }
    flow.broken |= !is_success;
}

/// Checks what a completed request must have brought to this side by now.
fn outcome(stage: &Stage, flow: &Flow, index: usize) {
    let request = &flow.requests[index];
    match &request.effect {
        Effect::Read => {
            assert!(
                gather(stage, flow.node, &request.spans) == request.data,
                "READ {index} brought wrong bytes"
            );
        }
        Effect::OwnWord { before } => {
            assert_eq!(word(stage, flow, index), *before, "atomic {index} returned a wrong value");
        }
        Effect::Deliver | Effect::Write { .. } | Effect::SharedWord { .. } | Effect::Local => {}
    }
}

fn word(stage: &Stage, flow: &Flow, index: usize) -> u64 {
    stage.net.nodes[flow.node].memory.word(flow.requests[index].spans[0].start)
}

fn received(run: &mut Run<'_>, node: usize, completion: &Completion) {
    let (queue_index, index) = split(completion.wr_id);
    let queue = &run.stage.queues[queue_index];
    assert_eq!(queue.node, node);
    assert!(index < queue.posted && queue.list[index].filled.is_none(), "{completion:?} twice");
    if queue.srq.is_none() {
        assert_eq!((completion.qpn, index), (queue.qpn, queue.completed), "receives complete in their order");
    }
    let ends = &run.stage.ends;
    let (connection, side) = (0..2 * ends.len())
        .map(|n| (n / 2, n % 2))
        .find(|&(c, side)| ends[c][side].node == node && ends[c][side].qpn == completion.qpn)
        .expect("a queue pair of ours");
    let flow_index = 2 * connection + 1 - side;
    let service = run.plan.connections[connection].service;
    if completion.status != CompletionStatus::Success {
        assert_eq!(completion.status, CompletionStatus::Flushed, "{completion:?}");
        let is_broken = run.stage.flows[2 * connection + side].broken;
        assert!(is_broken, "{completion:?} on a queue pair that works");
        run.stage.queues[queue_index].completed += 1;
        run.stage.queues[queue_index].list[index].filled = Some(Vec::new());
        return;
    }
    let all = gather(&run.stage, node, &queue.list[index].spans);
    let skip = if service == Service::Ud { GRH_LEN } else { 0 };
    let is_write = completion.operation == CompletionOp::ReceiveWriteImm;
    let length = completion.byte_len as usize;
    let message = if is_write { &[][..] } else { &all[skip..length.max(skip)] };
    let number = match completion.flags.with_immediate {
        true => completion.immediate as usize,
        false => message.first_chunk::<4>().map_or(usize::MAX, |head| u32::from_le_bytes(*head) as usize),
    };
    let flow = &run.stage.flows[flow_index];
    assert!(number < flow.posted, "{completion:?} is request {number} of {} posted", flow.posted);
    let request = &flow.requests[number];
    match service {
        Service::Rc => {
            let mut consuming =
                (flow.next_arrival..flow.posted).filter(|n| flow.requests[*n].consumes_receive());
            assert_eq!(consuming.next(), Some(number), "messages arrive in order, each once");
        }
        Service::Uc => assert!(number >= flow.next_arrival, "request {number} arrived again, or late"),
        Service::Ud | Service::Raw | Service::XrcInitiator | Service::XrcTarget => {}
    }
    match request.operation {
        Operation::Send => assert!(!completion.flags.with_immediate && !completion.flags.with_invalidate),
        Operation::SendImm(imm) | Operation::WriteImm(_, imm) => assert_eq!(completion.immediate, imm),
        Operation::SendInvalidate(key) => {
            assert!(completion.flags.with_invalidate && completion.immediate == key.0, "{completion:?}");
        }
        other => panic!("{other:?} completed a receive"),
    }
    assert_eq!(is_write, matches!(request.operation, Operation::WriteImm(..)));
    assert_eq!(completion.flags.solicited, request.flags.solicited, "{completion:?}");
    assert_eq!(length, request.data.len() + skip, "{completion:?}");
    if let Effect::Write { target } = request.effect {
        let there = run.stage.net.nodes[node].memory.slice(target..target + length as u64);
        assert!(there == request.data, "WRITE {number} was announced before it was whole");
    } else {
        assert!(message == request.data, "message {number} arrived damaged");
    }
    let filled = all[..if is_write { 0 } else { length }].to_vec();
    let flow = &mut run.stage.flows[flow_index];
    flow.arrivals[number] += 1;
    flow.next_arrival = number + 1;
    let queue = &mut run.stage.queues[queue_index];
    queue.completed += 1;
    queue.list[index].filled = Some(filled);
}

/// Whether the faults are so bad that giving up is no wonder.
fn is_harsh(plan: &Plan) -> bool {
    let faults = &plan.faults;
    faults.blackout.is_some() || faults.loss + faults.corrupt + faults.reorder + faults.duplicate > 0.009
}

/// Checks that no more is in flight than flow control allows.
pub(crate) fn in_flight(run: &Run<'_>) {
    for (index, connection) in
        run.plan.connections.iter().enumerate().filter(|(_, c)| c.service == Service::Rc)
    {
        for (side, end) in run.stage.ends[index].iter().enumerate() {
            let qp = run.stage.net.nodes[end.node].rnic.query_qp(end.qpn).expect("a queue pair");
            let cap = match connection.recovery[side] {
                Recovery::Irn => run.plan.transport.irn.cap,
                // A READ takes as many numbers as its answer has packets.
                Recovery::GoBackN => {
                    run.plan.transport.go_back_n_window + connection.mtu.packets(run.plan.length_max as u32)
                }
            };
            assert!(qp.in_flight <= cap, "{} packets in flight, {cap} allowed", qp.in_flight);
        }
    }
}

/// The content that memory must have, and the ranges where it may have another.
struct Expected {
    bytes: Vec<u8>,
    /// Ranges that may have another content, and that content.
    either: Vec<(Range<u64>, Vec<u8>)>,
    /// Ranges of unknown content.
    any: Vec<Range<u64>>,
}

impl Expected {
    fn put(&mut self, at: u64, data: &[u8]) {
        let at = (at - BASE) as usize;
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn fill(&mut self, spans: &Spans, data: &[u8]) {
        let mut at = 0;
        for span in spans {
            let take = ((span.end - span.start) as usize).min(data.len() - at);
            self.put(span.start, &data[at..at + take]);
            at += take;
        }
    }

    fn check(&self, node: usize, actual: &[u8]) {
        const CHUNK: usize = 256;
        let chunks = self.bytes.chunks(CHUNK).zip(actual.chunks(CHUNK)).enumerate();
        for (chunk, (expected, found)) in chunks.filter(|(_, (expected, found))| expected != found) {
            for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
                let addr = BASE + (CHUNK * chunk + at) as u64;
                assert!(
                    expected == found || self.permits(addr, *found),
                    "node {node} has {found:#x} at {addr:#x}, not {expected:#x}"
                );
            }
        }
    }

    fn permits(&self, addr: u64, found: u8) -> bool {
        let is_alternative = |(range, data): &(Range<u64>, Vec<u8>)| {
            range.contains(&addr) && data[(addr - range.start) as usize] == found
        };
        self.any.iter().any(|range| range.contains(&addr)) || self.either.iter().any(is_alternative)
    }
}

/// Checks everything at the end.
pub(crate) fn at_rest(run: &Run<'_>) -> Outcome {
    let stage = &run.stage;
    let mut lost = 0;
    for (index, flow) in stage.flows.iter().enumerate() {
        let service = run.plan.connections[flow.connection].service;
        let total = flow.requests.len();
        let rest = &flow.requests[flow.completed..];
        let is_done = flow.posted == total && rest.iter().all(|r| !r.flags.signaled);
        assert!(is_done, "flow {index}: {} of {} posted, {} completed", flow.posted, total, flow.completed);
        let qp = stage.net.nodes[flow.node].rnic.query_qp(flow.qpn).expect("a queue pair");
        assert_eq!(qp.send_queue_len, 0, "flow {index} still has requests");
        if flow.broken {
            continue;
        }
        for done in flow.completed..total {
            outcome(stage, flow, done);
        }
        let missing = |n: &usize| flow.requests[*n].consumes_receive() && flow.arrivals[*n] == 0;
        let missing = (0..total).filter(missing).count() as u64;
        let is_faultless = stage.net.duplicated == 0;
        match service {
            Service::Rc => assert_eq!(missing, 0, "flow {index} lost messages"),
            Service::Uc => lost += missing,
            Service::Raw | Service::XrcInitiator | Service::XrcTarget => unreachable!("no plan has them"),
            Service::Ud => {
                lost += missing;
                assert!(!is_faultless || flow.arrivals.iter().all(|n| *n <= 1), "a datagram doubled itself");
            }
        }
    }
    memory(run);
    words(run);
    counters(run);
    outcome_of(run, lost)
}

fn outcome_of(run: &Run<'_>, lost: u64) -> Outcome {
    let stage = &run.stage;
    Outcome {
        hash: stage.net.hash,
        connections: stage.ends.len() as u64,
        requests: stage.flows.iter().map(|f| f.requests.len() as u64).sum(),
        packets: stage.net.packets,
        retransmitted: stage.net.nodes.iter().map(|n| n.rnic.counters().value(Counter::Retransmitted)).sum(),
        broken: stage.flows.iter().filter(|f| f.broken).count() as u64,
        lost,
    }
}

fn memory(run: &Run<'_>) {
    let stage = &run.stage;
    let expected = |bytes: &Vec<u8>| Expected { bytes: bytes.clone(), either: Vec::new(), any: Vec::new() };
    let mut all: Vec<Expected> = run.before.iter().map(expected).collect();
    for flow in &stage.flows {
        let is_reliable = run.plan.connections[flow.connection].service == Service::Rc;
        for (index, request) in flow.requests.iter().enumerate() {
            let is_sure = is_reliable && !flow.broken;
            let local: Vec<u8> = gather(stage, flow.node, &request.spans);
            match request.effect {
                Effect::Write { target } if is_sure => all[flow.peer_node].put(target, &request.data),
                Effect::Write { target } => {
                    let range = target..target + request.data.len() as u64;
                    all[flow.peer_node].either.push((range, request.data.clone()));
                }
                // Their values were checked when they completed.
                Effect::Read | Effect::OwnWord { .. } | Effect::SharedWord { .. }
                    if is_sure || index < flow.succeeded =>
                {
                    all[flow.node].fill(&request.spans, &local);
                }
                Effect::Read | Effect::OwnWord { .. } | Effect::SharedWord { .. } => {
                    all[flow.node].any.extend(request.spans.iter().cloned());
                }
                Effect::Deliver | Effect::Local => {}
            }
        }
        all[flow.peer_node].any.push(flow.own_word..flow.own_word + 8);
    }
    for (node, (word, _)) in stage.shared_words.iter().enumerate() {
        all[node].any.push(*word..*word + 8);
    }
    let all_reliable = run.plan.connections.iter().all(|c| c.service == Service::Rc);
    let some_broke = stage.flows.iter().any(|f| f.broken);
    for queue in &stage.queues {
        let is_exact = !some_broke && (queue.is_exact || all_reliable);
        for receive in &queue.list {
            if !is_exact {
                all[queue.node].any.extend(receive.spans.iter().cloned());
            } else if let Some(filled) = &receive.filled {
                all[queue.node].fill(&receive.spans, filled);
            }
        }
    }
    for (node, expected) in all.iter().enumerate() {
        expected.check(node, &stage.net.nodes[node].memory.bytes);
    }
}

/// Atomics: executed once each, in order.
fn words(run: &Run<'_>) {
    let stage = &run.stage;
    for flow in &stage.flows {
        let value = stage.net.nodes[flow.peer_node].memory.word(flow.own_word);
        let last = flow.own_values.last().expect("it begins with one");
        assert!(
            value == *last || flow.broken && flow.own_values.contains(&value),
            "a word that is {value:#x}, not {last:#x}"
        );
    }
    for (node, (word_addr, initial)) in stage.shared_words.iter().enumerate() {
        let (mut sure, mut possible) = (0u64, 0u64);
        let mut steps = Vec::new();
        for flow in stage.flows.iter().filter(|f| f.peer_node == node) {
            for (index, request) in flow.requests.iter().enumerate() {
                let Effect::SharedWord { add } = request.effect else { continue };
                possible += add;
                if !flow.broken || index < flow.succeeded {
                    sure += add;
                    steps.push((word(stage, flow, index), add));
                }
            }
        }
        let value = stage.net.nodes[node].memory.word(*word_addr);
        let risen = value.wrapping_sub(*initial);
        assert!((sure..=possible).contains(&risen), "rose by {risen}, not by {sure} to {possible}");
        if sure == possible {
            // Each addition found what the one before it left.
            steps.sort_unstable();
            let mut at = *initial;
            for (before, add) in steps {
                assert_eq!(before, at, "an addition saw a value that never was");
                at += add;
            }
        }
    }
}

fn counters(run: &Run<'_>) {
    let nodes = &run.stage.net.nodes;
    let sum = |counter| nodes.iter().map(|n| n.rnic.counters().value(counter)).sum::<u64>();
    assert_eq!(sum(Counter::PacketsSent), run.stage.net.packets);
    let delivered = sum(Counter::PacketsReceived) + nodes.iter().map(|n| n.rejected).sum::<u64>();
    assert!(delivered <= run.stage.net.packets + run.stage.net.duplicated);
    let never = [
        Counter::DroppedUnknownQp,
        Counter::DroppedWrongSource,
        Counter::DroppedWrongService,
        Counter::DroppedNotNegotiated,
        Counter::DroppedMalformed,
        Counter::DroppedWrongKey,
        Counter::RefusedAccess,
        Counter::RefusedRequest,
    ];
    for counter in never {
        assert_eq!(sum(counter), 0, "{counter:?}");
    }
}
