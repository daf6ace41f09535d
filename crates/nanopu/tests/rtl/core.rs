//! `core_interface` against [`Interface`].

use std::collections::VecDeque;

use highwire_nanopu::{CONTEXTS_MAX, Demand, Interface, Mistake, csr};
use highwire_stdx::Rng;

use crate::bench::{Bench, Block, ports};
use crate::compare::{Run, cycles};

/// Stages behind decode in which an instruction can be killed.
const STAGES: usize = 3;
/// Room for messages of one thread, and for words behind x31.
const MESSAGES: usize = 16;
const TRANSMIT_WORDS: usize = 64;
const RECEIVE_WORDS: usize = 1024;

ports!(Inputs {
    csr_number: u64,
    csr_write: u64,
    csr_value: u64,
    put: u64,
    put_word: u64,
    take: u64,
    kill: u64,
    deliver: u64,
    deliver_first: u64,
    deliver_context: u64,
    deliver_word: u64,
    sent_take: u64,
});

ports!(Outputs {
    csr_read: u64,
    take_valid: u64,
    take_word: u64,
    wants_switch: u64,
    deliver_unknown: u64,
    sent_valid: u64,
    sent_context: u64,
    sent_word: u64,
    inserted: u64,
    insert_refused: u64,
    finished: u64,
    demand_context: u64,
});

/// The actions on a core's interface in a cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Action {
    /// A CSR is read, and perhaps written.
    pub(crate) csr: Option<(u16, Option<u64>)>,
    pub(crate) put: Option<u64>,
    pub(crate) take: bool,
    /// How many stages behind decode are killed.
    pub(crate) kills: usize,
    /// Context, word, and whether it begins a message.
    pub(crate) deliver: Option<(u16, u64, bool)>,
    pub(crate) sent_take: bool,
}

/// The model, driven like the block.
struct Model {
    interface: Interface,
    cycle: u64,
    /// The words that the instructions in the stages behind decode have read, the youngest first.
    reads: VecDeque<Option<(u16, u64)>>,
}

impl Model {
    fn new(keeps_demotions: bool) -> Model {
        let mut interface = Interface::default();
        if keeps_demotions {
            interface.keep_demotions();
        }
        Model { interface, cycle: 0, reads: VecDeque::new() }
    }

    fn step(&mut self, action: &Action) -> (Inputs, Outputs) {
        let (mut inputs, mut outputs) = (Inputs::default(), Outputs::default());
        let (interface, cycle) = (&mut self.interface, self.cycle);
        let misuse = interface.misuse();
        outputs.wants_switch = interface.wants_switch().into();
        if let Some((context, word)) = interface.peek_sent() {
            (outputs.sent_valid, outputs.sent_context, outputs.sent_word) = (1, context.into(), word);
        }
        if action.sent_take {
            inputs.sent_take = 1;
            interface.take_sent();
        }
        if let Some((number, value)) = action.csr {
            (inputs.csr_number, outputs.csr_read) = (number.into(), interface.read(number));
            if let Some(value) = value {
                (inputs.csr_write, inputs.csr_value) = (1, value);
                interface.write(cycle, number, value);
            }
        }
        if let Some(word) = action.put {
            (inputs.put, inputs.put_word) = (1, word);
            interface.put_word(cycle, word);
        }
        inputs.kill = (1 << action.kills) - 1;
        for read in self.reads.iter_mut().take(action.kills) {
            if let Some((context, word)) = read.take() {
                interface.give_back(context, word);
            }
        }
        let mut read = None;
        if action.take {
            inputs.take = 1;
            let context = interface.read(csr::CURRENT_CONTEXT) as u16;
            let is_there = interface.peek_word().is_some();
            let word = interface.take_word(cycle);
            if is_there {
                (outputs.take_valid, outputs.take_word) = (1, word);
                read = Some((context, word));
            }
        }
        self.reads.push_front(read);
        self.reads.truncate(STAGES);
        if let Some((context, word, is_first)) = action.deliver {
            (inputs.deliver, inputs.deliver_first) = (1, is_first.into());
            (inputs.deliver_context, inputs.deliver_word) = (context.into(), word);
            interface.deliver(cycle, context, word, is_first);
        }
        while let Some(demand) = interface.poll_demand() {
            let (port, context) = match demand {
                Demand::Insert { context } => (&mut outputs.inserted, context),
                Demand::Done { context } => (&mut outputs.finished, context),
            };
            (*port, outputs.demand_context) = (1, context.into());
        }
        let now = interface.misuse();
        outputs.deliver_unknown =
            now.count(Mistake::WordForUnknownContext) - misuse.count(Mistake::WordForUnknownContext);
        outputs.insert_refused = now.count(Mistake::RefusedContext) - misuse.count(Mistake::RefusedContext);
        interface.tick(cycle);
        self.cycle += 1;
        (inputs, outputs)
    }
}

pub(crate) fn block(keeps_demotions: bool) -> Block {
    Block {
        top: "core_interface",
        parameters: vec![
            ("CONTEXTS", CONTEXTS_MAX as u64),
            ("MESSAGES", MESSAGES as u64),
            ("RECEIVE_WORDS", RECEIVE_WORDS as u64),
            ("TRANSMIT_WORDS", TRANSMIT_WORDS as u64),
            ("KEEPS_DEMOTIONS", keeps_demotions.into()),
            ("STAGES", STAGES as u64),
        ],
        mutant: None,
    }
}

/// A program that does anything at any time, and a NIC that keeps to its bounds.
struct Chaos {
    rng: Rng,
    current: u16,
    /// Known threads, with their messages that are not done.
    threads: Vec<(u16, usize)>,
    /// Words behind x31.
    sent: usize,
    /// The message that the NIC brings: its context, and words that are missing.
    delivery: Option<(u16, usize)>,
    /// The rates of all actions, for some time.
    arrivals: f64,
    takes: f64,
    writes: f64,
}

/// Contexts that the program and the NIC use; one more than there is room for, and one that the program never makes known.
const CONTEXTS: u64 = CONTEXTS_MAX as u64 + 2;

impl Chaos {
    fn new(seed: u64) -> Chaos {
        let (arrivals, takes, writes) = (0.0, 0.0, 0.0);
        let (threads, rng) = (Vec::new(), Rng::new(seed));
        Chaos { rng, current: 0, threads, sent: 0, delivery: None, arrivals, takes, writes }
    }

    fn action(&mut self, model: &Model, cycle: usize) -> Action {
        if cycle.is_multiple_of(400) {
            let mut share = || self.rng.unit() * self.rng.unit();
            (self.arrivals, self.takes, self.writes) = (share(), share() * 2.0, share());
        }
        let mut action = Action::default();
        if self.sent > 0 && self.rng.chance(0.4) {
            (action.sent_take, self.sent) = (true, self.sent - 1);
        }
        if self.sent + 1 < TRANSMIT_WORDS && self.rng.chance(0.3) {
            (action.put, self.sent) = (Some(self.rng.next_u64()), self.sent + 1);
        }
        let number = [
            csr::MESSAGES_READY,
            csr::CURRENT_CONTEXT,
            csr::NIC_COMMAND,
            csr::CURRENT_PRIORITY,
            csr::THREAD_COMMAND,
            csr::NIC_READY,
            csr::TARGET_CONTEXT,
            csr::TARGET_PRIORITY,
            csr::MESSAGE_CYCLES,
            csr::IDLE_CYCLES,
        ][self.rng.below(10) as usize];
        let value = self.rng.chance(self.writes).then(|| self.value(model, number));
        action.csr = Some((number, value));
        action.kills = if self.rng.chance(0.1) { self.rng.between(1, STAGES as u64) as usize } else { 0 };
        action.take = action.kills == 0 && self.rng.chance(self.takes);
        action.deliver = self.deliver(model);
        action
    }

    /// A value for the program to write to a CSR.
    fn value(&mut self, model: &Model, number: u16) -> u64 {
        match number {
            csr::CURRENT_CONTEXT => {
                let target = model.interface.read(csr::TARGET_CONTEXT);
                let context = if self.rng.chance(0.6) { target } else { self.rng.below(CONTEXTS) };
                self.current = context as u16;
                // No more than the register holds is looked at.
                context | (self.rng.next_u64() & !0xffff)
            }
            csr::CURRENT_PRIORITY => self.rng.below(3),
            csr::NIC_COMMAND => {
                let value = self.rng.below(8);
                let is_new = self.threads.iter().all(|&(id, _)| id != self.current);
                if value & 1 != 0 && is_new && self.threads.len() < CONTEXTS_MAX {
                    self.threads.push((self.current, 0));
                }
                value
            }
            csr::THREAD_COMMAND => {
                let value = self.rng.below(4);
                if value & 1 != 0
                    && let Some((_, messages)) = self.threads.iter_mut().find(|(id, _)| *id == self.current)
                {
                    *messages = messages.saturating_sub(1);
                }
                value
            }
            _ => self.rng.below(150),
        }
    }

    fn deliver(&mut self, model: &Model) -> Option<(u16, u64, bool)> {
        let word = self.rng.next_u64();
        if let Some((context, words)) = &mut self.delivery {
            let context = *context;
            if self.rng.chance(0.1) {
                return None;
            }
            *words -= 1;
            if *words == 0 {
                self.delivery = None;
            }
            return Some((context, word, false));
        }
        let context = self.rng.below(CONTEXTS) as u16;
        let room = RECEIVE_WORDS - STAGES - model.interface.queued_words(context);
        let known = self.threads.iter_mut().find(|(id, _)| *id == context);
        if !self.rng.chance(self.arrivals)
            || known.as_ref().is_some_and(|(_, messages)| *messages == MESSAGES)
        {
            return None;
        }
        let words = self.rng.below(12) as usize;
        if words + 1 > room {
            return None;
        }
        if let Some((_, messages)) = known {
            *messages += 1;
        }
        self.delivery = (words > 0).then_some((context, words));
        Some((context, word, true))
    }
}

/// Where demotions last, a thread is demoted once; so there are many short runs.
fn plan(keeps_demotions: bool) -> (u64, usize) {
    if keeps_demotions { (40, cycles() / 5) } else { (8, cycles()) }
}

fn random(seed: u64, keeps_demotions: bool) -> Run<Inputs, Outputs> {
    let mut chaos = Chaos::new(seed);
    let mut model = Model::new(keeps_demotions);
    let mut run = Run::new();
    for cycle in 0..plan(keeps_demotions).1 {
        let action = chaos.action(&model, cycle);
        let (inputs, outputs) = model.step(&action);
        run.push(inputs, outputs);
    }
    run
}

#[test]
fn queues_and_scheduler_do_what_the_model_does() {
    for keeps_demotions in [false, true] {
        let Some(bench) = Bench::build::<Inputs, Outputs>(&block(keeps_demotions)) else { return };
        let rule = if keeps_demotions { "demotions last" } else { "demotions end" };
        for seed in 0..plan(keeps_demotions).0 {
            random(seed, keeps_demotions).check(&bench, &format!("core_interface: {rule}, seed {seed}"));
        }
    }
}

#[test]
fn the_input_has_everything_in_it() {
    let run = random(0, false);
    assert!(run.count(|outputs| outputs.wants_switch != 0) > 50);
    assert!(run.count(|outputs| outputs.take_valid != 0) > 500);
    assert!(run.count(|outputs| outputs.finished != 0) > 100);
    assert!(run.count(|outputs| outputs.deliver_unknown != 0) > 10);
    assert!(run.count(|outputs| outputs.insert_refused != 0) > 0);
    assert!(run.count(|outputs| outputs.sent_valid != 0) > 500);
}

/// Whether a fault that is built in shows in a port whose name begins so.
fn is_found(mutant: &'static str, port: &str) {
    let block = Block { mutant: Some(mutant), ..block(true) };
    let Some(bench) = Bench::build::<Inputs, Outputs>(&block) else { return };
    let differences: Vec<_> =
        (0..plan(true).0).filter_map(|seed| random(seed, true).difference(&bench, mutant)).collect();
    assert!(differences.iter().any(|text| text.contains(port)), "{mutant}: {differences:?}");
}

#[test]
fn a_kill_in_write_back_that_is_forgotten_is_found() {
    is_found("MUTANT_FORGOTTEN_KILL", "port take_word");
}

#[test]
fn messages_served_in_the_wrong_order_are_found() {
    is_found("MUTANT_NEWEST_FIRST", "port csr_read");
}

#[test]
fn a_message_that_is_never_demoted_is_found() {
    is_found("MUTANT_NO_DEMOTION", "port wants_switch");
}
