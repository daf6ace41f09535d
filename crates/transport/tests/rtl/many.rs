//! The blocks with a memory of states, on their own state: packets and events of many queue pairs, at most one a cycle.

use std::collections::VecDeque;

use highwire_stdx::Rng;

use crate::bench::{Bench, Block, ports};
use crate::blocks::usual;
use crate::compare::{Run, cycles};
use crate::flow::Flow;
use crate::ports::{answer, class_bits, expired};

const QUEUE_PAIRS: usize = 64;

ports!(ReceiverIn {
    open_valid: u64,
    open_qp: u64,
    open_psn: u64,
    in_valid: u64,
    in_qp: u64,
    in_psn: u64,
    in_ends: u64,
    in_completes: u64,
});

ports!(ReceiverOut {
    open_ready: u64,
    in_ready: u64,
    out_valid: u64,
    out_qp: u64,
    out_kind: u64,
    out_place: u64,
    out_run: u64,
    out_messages: u64,
    out_completions: u64,
    out_expected: u64,
    out_msn: u64,
});

ports!(SenderIn {
    open_valid: u64,
    open_qp: u64,
    open_psn: u64,
    ack_valid: u64,
    ack_qp: u64,
    ack_nack: u64,
    ack_cumulative: u64,
    ack_sack: u64,
    ack_run: u64,
    timer_valid: u64,
    timer_qp: u64,
    link_valid: u64,
    link_qp: u64,
    link_has_new: u64,
});

ports!(SenderOut {
    open_ready: u64,
    ack_ready: u64,
    timer_ready: u64,
    link_ready: u64,
    out_valid: u64,
    out_event: u64,
    out_qp: u64,
    out_acked: u64,
    out_arrived: u64,
    out_loss: u64,
    out_recovered: u64,
    out_sends: u64,
    out_again: u64,
    out_psn: u64,
    out_expired: u64,
    out_timer: u64,
});

/// What comes out is known `LATENCY` cycles before; a queue pair is busy for so many cycles after its last event.
const LATENCY: usize = 4;
pub(crate) const RECEIVER_BUSY: usize = 3;
const SENDER_BUSY: usize = 4;

/// The events on their way, the latest first.
pub(crate) struct Pipe<O> {
    busy: usize,
    events: VecDeque<Option<(usize, O)>>,
}

impl<O: Clone> Pipe<O> {
    pub(crate) fn new(busy: usize) -> Self {
        Pipe { busy, events: VecDeque::from(vec![None; LATENCY]) }
    }

    pub(crate) fn is_free(&self, qp: usize) -> bool {
        self.events.iter().take(self.busy).flatten().all(|&(busy, _)| busy != qp)
    }

    /// What comes out in this cycle.
    pub(crate) fn due(&self) -> Option<O> {
        self.events[LATENCY - 1].as_ref().map(|(_, outputs)| outputs.clone())
    }

    pub(crate) fn advance(&mut self, event: Option<(usize, O)>) {
        self.events.push_front(event);
        self.events.truncate(LATENCY);
    }

    fn is_idle(&self, qp: usize) -> bool {
        self.events.iter().flatten().all(|&(busy, _)| busy != qp)
    }
}

/// Both are built with the faults that a test switches on, all of them off.
const FAULTS: Option<&str> = Some("MUTANTS");

pub(crate) fn receiver() -> Block {
    let parameters = vec![("WINDOW", usual().window.into()), ("QUEUE_PAIRS", QUEUE_PAIRS as u64)];
    Block { top: "irn_receiver", parameters, mutant: FAULTS }
}

fn sender() -> Block {
    let cap = ("CAP", usual().config.cap.into());
    let parameters = vec![("WINDOW", usual().window.into()), cap, ("QUEUE_PAIRS", QUEUE_PAIRS as u64)];
    Block { top: "irn_sender", parameters, mutant: FAULTS }
}

/// The flows of one run: which of them act changes from time to time, so that queue pairs wait for themselves and for others.
struct Flows {
    rng: Rng,
    flows: Vec<Flow>,
    active: u64,
    opened: u64,
}

impl Flows {
    fn new(seed: u64) -> Flows {
        Flows { rng: Rng::new(seed), flows: Vec::new(), active: 1, opened: seed << 32 }
    }

    /// The queue pair that is opened now, with its first PSN: at first each in turn, later one now and then, all if idle.
    fn open<O: Clone>(&mut self, pipe: &Pipe<O>) -> Option<(usize, u64)> {
        let qp = match self.flows.len() {
            opened if opened < QUEUE_PAIRS => opened,
            _ if self.rng.chance(0.002) => self.rng.below(QUEUE_PAIRS as u64) as usize,
            _ => return None,
        };
        if pipe.due().is_some() || !pipe.is_idle(qp) {
            return None;
        }
        self.opened += 1;
        let flow = Flow::new(self.opened, usual().config, usual().window);
        let psn = flow.initial().value().into();
        match self.flows.get_mut(qp) {
            Some(old) => *old = flow,
            None => self.flows.push(flow),
        }
        Some((qp, psn))
    }

    fn pick(&mut self) -> usize {
        if self.rng.chance(0.01) {
            self.active = *self.rng.pick(&[1, 2, 5, QUEUE_PAIRS as u64]);
        }
        self.rng.below(self.active.min(self.flows.len() as u64)) as usize
    }
}

fn receive(seed: u64) -> Run<ReceiverIn, ReceiverOut> {
    let mut flows = Flows::new(seed);
    let mut pipe: Pipe<ReceiverOut> = Pipe::new(RECEIVER_BUSY);
    let mut run = Run::new();
    for _ in 0..cycles() {
        let mut inputs = ReceiverIn::default();
        let mut outputs = pipe.due().unwrap_or_default();
        let opened = flows.open(&pipe);
        if let Some((qp, psn)) = opened {
            (inputs.open_valid, inputs.open_qp, inputs.open_psn) = (1, qp as u64, psn);
        }
        outputs.open_ready = 1 - outputs.out_valid;
        let mut event = None;
        if !flows.flows.is_empty() && opened.is_none() && flows.rng.chance(0.95) {
            let qp = flows.pick();
            inputs.in_qp = qp as u64;
            let flow = &mut flows.flows[qp];
            // The other half of the connection takes its steps between those of the block.
            flow.link();
            flow.ack();
            if flow.is_late() {
                flow.timer();
            }
            if !pipe.is_free(qp) {
                (inputs.in_valid, inputs.in_psn) = (1, flows.rng.next_u64() & 0xFF_FFFF);
            } else if let Some(step) = flow.data() {
                (inputs.in_valid, inputs.in_psn) = (1, step.psn.value().into());
                (inputs.in_ends, inputs.in_completes) = class_bits(step.class);
                let [out_kind, out_place, out_run, _, out_messages, out_completions] = answer(step.arrival);
                let due = ReceiverOut {
                    out_valid: 1,
                    out_qp: qp as u64,
                    out_kind,
                    out_place,
                    out_run,
                    out_messages,
                    out_completions,
                    out_expected: step.after.state.next_expected.value().into(),
                    out_msn: step.after.state.msn.into(),
                    ..ReceiverOut::default()
                };
                event = Some((qp, due));
            }
        }
        outputs.in_ready = pipe.is_free(inputs.in_qp as usize).into();
        pipe.advance(event);
        run.push(inputs, outputs);
    }
    run
}

fn send(seed: u64) -> Run<SenderIn, SenderOut> {
    let mut flows = Flows::new(seed);
    let mut pipe: Pipe<SenderOut> = Pipe::new(SENDER_BUSY);
    let mut run = Run::new();
    for _ in 0..cycles() {
        let mut inputs = SenderIn::default();
        let mut outputs = pipe.due().unwrap_or_default();
        let opened = flows.open(&pipe);
        if let Some((qp, psn)) = opened {
            (inputs.open_valid, inputs.open_qp, inputs.open_psn) = (1, qp as u64, psn);
        }
        outputs.open_ready = 1 - outputs.out_valid;
        let mut event = None;
        if !flows.flows.is_empty() && opened.is_none() {
            event = offer(&mut flows, &pipe, &mut inputs);
        }
        let qp = match (inputs.ack_valid, inputs.timer_valid) {
            (1, _) => inputs.ack_qp,
            (_, 1) => inputs.timer_qp,
            _ => inputs.link_qp,
        };
        let is_free = u64::from(pipe.is_free(qp as usize));
        outputs.ack_ready = is_free;
        outputs.timer_ready = is_free & (1 - inputs.ack_valid);
        outputs.link_ready = outputs.timer_ready & (1 - inputs.timer_valid);
        pipe.advance(event);
        run.push(inputs, outputs);
    }
    run
}

/// Offers up to three events at once; the block takes the first, if its queue pair is free.
fn offer(flows: &mut Flows, pipe: &Pipe<SenderOut>, inputs: &mut SenderIn) -> Option<(usize, SenderOut)> {
    let mut event = None;
    let mut is_taken = false;
    if flows.rng.chance(0.4) {
        let qp = flows.pick();
        let flow = &mut flows.flows[qp];
        flow.data();
        if !pipe.is_free(qp) {
            (inputs.ack_valid, inputs.ack_qp, is_taken) = (1, qp as u64, true);
        } else if let Some(step) = flow.ack() {
            let (sack, run) = step.ack.sack.unwrap_or_default();
            (inputs.ack_valid, inputs.ack_qp, is_taken) = (1, qp as u64, true);
            inputs.ack_nack = step.ack.sack.is_some().into();
            inputs.ack_cumulative = step.ack.cumulative.value().into();
            (inputs.ack_sack, inputs.ack_run) = (sack.value().into(), run.into());
            let due = SenderOut {
                out_event: 0,
                out_acked: step.outcome.newly_acked.into(),
                out_arrived: step.outcome.newly_arrived.into(),
                out_loss: step.outcome.loss_detected.into(),
                out_recovered: step.outcome.recovered.into(),
                out_timer: step.timer as u64,
                ..SenderOut::default()
            };
            event = Some((qp, due));
        }
    }
    let qp = flows.pick();
    let is_late = flows.flows[qp].is_late();
    if is_late && is_taken {
        (inputs.timer_valid, inputs.timer_qp) = (1, qp as u64);
    } else if is_late && !pipe.is_free(qp) {
        (inputs.timer_valid, inputs.timer_qp, is_taken) = (1, qp as u64, true);
    } else if is_late && let Some(step) = flows.flows[qp].timer() {
        (inputs.timer_valid, inputs.timer_qp, is_taken) = (1, qp as u64, true);
        let due = SenderOut {
            out_event: 1,
            out_expired: expired(step.outcome),
            out_timer: step.timer as u64,
            ..SenderOut::default()
        };
        event = Some((qp, due));
    }
    if flows.rng.chance(0.9) {
        let qp = flows.pick();
        (inputs.link_valid, inputs.link_qp) = (1, qp as u64);
        if !is_taken && pipe.is_free(qp) {
            let step = flows.flows[qp].link();
            inputs.link_has_new = step.has_new.into();
            let (psn, again) = step.sent.map_or((0, false), |(psn, again)| (psn.value(), again));
            let due = SenderOut {
                out_event: 2,
                out_sends: step.sent.is_some().into(),
                out_again: again.into(),
                out_psn: psn.into(),
                out_timer: step.timer as u64,
                ..SenderOut::default()
            };
            event = Some((qp, due));
        }
    }
    event.map(|(qp, due)| (qp, SenderOut { out_valid: 1, out_qp: qp as u64, ..due }))
}

#[test]
fn receivers_of_many_queue_pairs_keep_their_state() {
    let Some(bench) = Bench::build::<ReceiverIn, ReceiverOut>(&receiver()) else { return };
    for seed in 0..4 {
        let run = receive(seed);
        run.check(&bench, &format!("irn_receiver: {QUEUE_PAIRS} queue pairs, seed {seed}"));
        assert!(run.count(|out| out.in_ready == 0) > 0, "no packet had to wait");
        assert!(run.count(|out| out.out_kind == 1) > 0, "no packet was early");
    }
}

#[test]
fn senders_of_many_queue_pairs_keep_their_state() {
    let Some(bench) = Bench::build::<SenderIn, SenderOut>(&sender()) else { return };
    for seed in 0..4 {
        let run = send(seed);
        run.check(&bench, &format!("irn_sender: {QUEUE_PAIRS} queue pairs, seed {seed}"));
        assert!(run.count(|out| out.out_again == 1) > 0, "no packet was resent");
        assert!(run.count(|out| out.out_expired == 2) > 0, "no timer ran out");
        assert!(run.count(|out| out.out_recovered == 1) > 0, "no repair ended");
    }
}

#[test]
fn queue_pairs_that_overtake_their_own_state_are_found() {
    for mutant in ["MUTANT_NO_INTERLOCK", "MUTANT_NO_FORWARDING"] {
        let Some(bench) = Bench::build::<ReceiverIn, ReceiverOut>(&receiver()) else { return };
        let difference = receive(1).difference(&bench.with_fault(mutant), mutant).expect("a difference");
        println!("{difference}");
    }
    let Some(bench) = Bench::build::<SenderIn, SenderOut>(&sender()) else { return };
    let bench = bench.with_fault("MUTANT_NO_SENDER_INTERLOCK");
    let difference = send(1).difference(&bench, "a mutant").expect("a difference");
    assert!(difference.contains("_ready"), "{difference}");
}

/// How many cycles an event takes if events are always offered: of one queue pair, and of many in turn.
#[test]
fn one_queue_pair_takes_an_event_every_few_cycles_and_many_take_one_in_each() {
    let Some(bench) = Bench::build::<SenderIn, SenderOut>(&sender()) else { return };
    for (queue_pairs, cycles_per_event) in [(1, SENDER_BUSY + 1), (QUEUE_PAIRS, 1)] {
        let (mut pipe, mut run, mut events) = (Pipe::new(SENDER_BUSY), Run::new(), 0);
        let mut next = vec![0; queue_pairs];
        for qp in 0..queue_pairs {
            let inputs = SenderIn { open_valid: 1, open_qp: qp as u64, ..SenderIn::default() };
            let ready = SenderOut {
                open_ready: 1,
                ack_ready: 1,
                timer_ready: 1,
                link_ready: 1,
                ..SenderOut::default()
            };
            run.push(inputs, ready);
        }
        let saturated = 5_000;
        for _ in 0..saturated {
            let qp = events % queue_pairs;
            let mut outputs: SenderOut = pipe.due().unwrap_or_default();
            let is_free = pipe.is_free(qp);
            outputs.open_ready = 1 - outputs.out_valid;
            (outputs.ack_ready, outputs.timer_ready) = (is_free.into(), is_free.into());
            outputs.link_ready = is_free.into();
            let inputs =
                SenderIn { link_valid: 1, link_qp: qp as u64, link_has_new: 1, ..SenderIn::default() };
            // Nothing is acknowledged: so many packets leave, and then none.
            let cap = u64::from(usual().config.cap);
            let event = is_free.then(|| {
                let sends = u64::from(next[qp] < cap);
                let due = SenderOut {
                    out_valid: 1,
                    out_event: 2,
                    out_qp: qp as u64,
                    out_sends: sends,
                    out_psn: if sends == 1 { next[qp] } else { 0 },
                    out_timer: if next[qp] == 0 { 2 } else { 0 },
                    ..SenderOut::default()
                };
                next[qp] += sends;
                (qp, due)
            });
            events += usize::from(is_free);
            pipe.advance(event);
            run.push(inputs, outputs);
        }
        run.check(&bench, &format!("irn_sender: {queue_pairs} queue pairs in turn"));
        println!(
            "rate: irn_sender: {queue_pairs} queue pairs in turn: {events} events in {saturated} cycles"
        );
        assert_eq!(events, saturated / cycles_per_event);
    }
}
