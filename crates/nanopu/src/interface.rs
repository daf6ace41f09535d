//! A core's end of the network: the queues behind x30 and x31, and the thread scheduler (nanoPU §3.2).
//!
//! Each thread is a context with a priority and a receive queue of its own. The scheduler runs the most urgent context that has
//! something to do, and among equals the one whose message has waited longest; where that is not the current one it raises
//! an interrupt, and software switches.

mod late;
mod mistake;
mod schedule;
mod writing;

use std::collections::VecDeque;

use late::Late;
pub use mistake::{Mistake, Misuse, Occurrence};
use writing::Writing;

use crate::packet::MESSAGE_BYTES_MAX;
use crate::port::csr;
use crate::timeline::{Stage, Timeline};

/// How many threads a core has room for.
pub const CONTEXTS_MAX: usize = 4;
/// Words that the queue behind x31 holds in hardware (`rtl/transmit_queue.sv`). Here it has no end, but more are noted.
const TRANSMIT_WORDS: usize = 512;
/// Messages of the longest kind that a context's receive queue holds in hardware: 1,024 words (`rtl/receive_queue.sv`). Here it has no
/// end, but more are noted.
const RECEIVE_MESSAGES: usize = 4;
/// The bit of [`csr::THREAD_COMMAND`] that says so.
pub(crate) const NOTHING_TO_DO: u64 = 2;

/// A thread's queue and state.
#[derive(Clone, Debug)]
struct Context {
    id: u16,
    priority: u8,
    /// What it was given when it was made known; a finished message gives it back.
    base_priority: u8,
    words: VecDeque<u64>,
    /// When each message's first word came.
    arrivals: VecDeque<u64>,
    /// It has a message that it has not declared done.
    is_active: bool,
    writing: Writing,
    bank: Bank,
}

/// What a context's bank of registers holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Bank {
    /// Nothing: a handler switches to this thread.
    #[default]
    Unused,
    /// A thread that begins at this address.
    Begins(u64),
    /// A thread.
    Runs,
}

/// What a core asks of the NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// A context is ready for messages.
    Insert {
        /// The context.
        context: u16,
    },
    /// A message of this context is done.
    Done {
        /// The context.
        context: u16,
    },
}

/// The interface of one core.
#[derive(Clone, Debug)]
pub struct Interface {
    contexts: Vec<Context>,
    current: u16,
    current_priority: u8,
    /// What the scheduler wants, and the interrupt that says so.
    target: Option<(u16, u8)>,
    /// A decision that becomes visible in some cycle.
    decision: Option<(u64, u16, u8)>,
    /// `MESSAGES_READY` as a register: one cycle behind the queue.
    ready_register: u64,
    ready_next: u64,
    /// Another [`Interface::tick`] changes nothing.
    is_settled: bool,
    /// Nor does the program if it says again that it has nothing to do.
    is_idle: bool,
    /// Reads of x30 can wait for a word.
    can_block: bool,
    /// The program has asked for that.
    blocks: bool,
    /// The current context waits so.
    is_waiting: bool,
    has_banks: bool,
    has_timers: bool,
    /// Whether a context that took too long stays demoted, and is only if another waits.
    keeps_demotions: bool,
    message_cycles: u64,
    idle_cycles: u64,
    /// When the current context's message began to run.
    began: Option<u64>,
    idle_since: Option<u64>,
    outbox: VecDeque<(u16, u64)>,
    /// A word for the outbox that is on its way.
    late: Option<Late>,
    demands: VecDeque<Demand>,
    misuse: Misuse,
    /// The most that the NIC sends and receives in one message.
    message_bytes_max: usize,
    /// The instruction that acts, if one does.
    pc: Option<u64>,
    pub(crate) timeline: Timeline,
}

impl Default for Interface {
    fn default() -> Interface {
        Interface {
            contexts: Vec::new(),
            current: 0,
            current_priority: 0,
            target: None,
            decision: None,
            ready_register: 0,
            ready_next: 0,
            is_settled: false,
            is_idle: false,
            can_block: false,
            blocks: false,
            is_waiting: false,
            has_banks: false,
            has_timers: false,
            keeps_demotions: false,
            message_cycles: 3000,
            idle_cycles: 3000,
            began: None,
            idle_since: None,
            outbox: VecDeque::new(),
            late: None,
            demands: VecDeque::new(),
            misuse: Misuse::default(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            pc: None,
            timeline: Timeline::default(),
        }
    }
}

impl Interface {
    /// From now on a context that takes too long while another of its priority waits is demoted for good, as on the prototype; otherwise
    /// it gets its priority back when the message is done.
    pub fn keep_demotions(&mut self) {
        self.keeps_demotions = true;
    }

    /// The NIC takes messages of so many bytes; those beyond are the program's mistake.
    pub(crate) fn limit_messages(&mut self, bytes_max: usize) {
        self.message_bytes_max = bytes_max;
    }

    /// From now on the program may ask that reads of x30 wait for a word, which the prototype's do not.
    pub fn allow_blocking(&mut self) {
        self.can_block = true;
    }

    /// From now on each context may have a bank of registers, so that the core switches threads by itself. The prototype has none.
    pub fn give_banks(&mut self) {
        self.has_banks = true;
    }

    /// Whether there are such banks.
    pub fn has_banks(&self) -> bool {
        self.has_banks
    }

    /// The bank of the thread that the scheduler asks for, and where it begins if it has not run. Nothing if one of the two threads
    /// has no bank; a context that nobody has made known keeps nothing, and needs none.
    pub fn wanted_bank(&self) -> Option<(usize, Option<u64>)> {
        let (target, _) = self.target.filter(|&(target, _)| target != self.current)?;
        let current = self.contexts.iter().find(|entry| entry.id == self.current);
        let is_kept = current.is_none_or(|entry| entry.bank == Bank::Runs);
        let bank = self.contexts.iter().position(|entry| entry.id == target).filter(|_| is_kept)?;
        match self.contexts[bank].bank {
            Bank::Unused => None,
            Bank::Begins(pc) => Some((bank, Some(pc))),
            Bank::Runs => Some((bank, None)),
        }
    }

    /// The core runs the thread of `bank` from `cycle` on.
    pub fn enter_bank(&mut self, cycle: u64, bank: usize) {
        self.unsettle();
        let Some(entry) = self.contexts.get_mut(bank) else { return };
        entry.bank = Bank::Runs;
        let (context, priority) = (entry.id, entry.priority);
        self.switch_to(cycle, context);
        self.current_priority = priority;
        // The wish that led here may be out of date.
        self.decide(cycle);
    }

    /// Whether a read of x30 has to wait. A context that nobody has made known has no queue to wait for.
    #[inline]
    pub fn lacks_word(&self) -> bool {
        self.blocks && self.contexts.iter().any(|entry| entry.id == self.current && entry.words.is_empty())
    }

    /// The program's next instruction is a read of x30 that has to wait: without a message in hand the thread is idle, as if it said so.
    pub fn wait_for_word(&mut self, cycle: u64) {
        self.unsettle();
        if !self.is_waiting {
            self.is_waiting = true;
            self.timeline.mark(cycle, Stage::ReadWaits, self.current.into());
        }
        if self.idle_since.is_none() {
            self.on_idle(cycle);
        }
    }

    /// Names the instruction that acts next, for reports of what it does wrong.
    pub fn by(&mut self, pc: u64) {
        self.pc = Some(pc);
    }

    /// A word of a message has come for `context`; `is_first` if it begins one.
    pub fn deliver(&mut self, cycle: u64, context: u16, word: u64, is_first: bool) {
        self.unsettle();
        let Some(entry) = self.contexts.iter_mut().find(|entry| entry.id == context) else {
            let nowhere = Occurrence { cycle, pc: None, context, detail: word };
            self.misuse.note(Mistake::WordForUnknownContext, nowhere);
            return;
        };
        if entry.words.len() >= RECEIVE_MESSAGES * self.message_bytes_max / 8 {
            let detail = entry.words.len() as u64;
            self.misuse.note(Mistake::ReceiveOverrun, Occurrence { cycle, pc: None, context, detail });
        }
        entry.words.push_back(word);
        self.timeline.mark(cycle, Stage::WordDelivered, word);
        if is_first {
            entry.arrivals.push_back(cycle);
            entry.is_active = true;
            self.decide_after_arrival(cycle);
        }
    }

    /// A read of x30; zero if there is nothing.
    pub fn take_word(&mut self, cycle: u64) -> u64 {
        self.unsettle();
        self.is_waiting = false;
        let running = self.running();
        let mistake = if running.is_some() { Mistake::EmptyRead } else { Mistake::ReadWithoutContext };
        let word = running.and_then(|context| context.words.pop_front());
        if word.is_none() {
            self.misuse.note(mistake, self.occurrence(cycle, 0));
        }
        self.timeline.mark(cycle, Stage::WordRead, word.unwrap_or(0));
        word.unwrap_or(0)
    }

    /// What the instruction that acts does in `cycle`.
    fn occurrence(&self, cycle: u64, detail: u64) -> Occurrence {
        Occurrence { cycle, pc: self.pc, context: self.current, detail }
    }

    /// Takes back that `context` read `word` from x30: the instruction was killed. The last read comes back first.
    ///
    /// The pipeline of this crate has no need of it, because its instructions on wrong paths do not execute; hardware has.
    pub fn give_back(&mut self, context: u16, word: u64) {
        self.unsettle();
        if let Some(entry) = self.contexts.iter_mut().find(|entry| entry.id == context) {
            entry.words.push_front(word);
        }
    }

    /// The word that a read of x30 would take. It stays.
    pub fn peek_word(&self) -> Option<u64> {
        let running = self.contexts.iter().find(|entry| entry.id == self.current)?;
        running.words.front().copied()
    }

    /// A write to x31 whose word is there.
    pub fn put_word(&mut self, cycle: u64, word: u64) {
        let broken = self.late.take();
        self.break_promise(broken);
        self.timeline.mark(cycle, Stage::WordWritten, word);
        let here = self.occurrence(cycle, word);
        if self.outbox.len() >= TRANSMIT_WORDS {
            let detail = self.outbox.len() as u64;
            self.misuse.note(Mistake::TransmitOverrun, Occurrence { detail, ..here });
        }
        let current = self.current;
        if let Some(entry) = self.contexts.iter_mut().find(|entry| entry.id == current) {
            entry.writing.write(word, self.message_bytes_max, here, &mut self.misuse);
        }
        self.outbox.push_back((self.current, word));
    }

    /// Whether the program has sent words that are still here.
    #[inline]
    pub fn has_sent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The oldest word that the program has sent and that is still here, and its context.
    pub fn peek_sent(&self) -> Option<(u16, u64)> {
        self.outbox.front().copied()
    }

    /// The oldest word of each context, its place in the queue, its context, and itself; the oldest of all first.
    pub fn sent_heads(&self) -> impl Iterator<Item = (usize, u16, u64)> + '_ {
        let mut seen = [None; CONTEXTS_MAX + 1];
        self.outbox.iter().enumerate().filter_map(move |(place, &(context, word))| {
            // A core without contexts may write as well, once more than it has contexts.
            let slot = seen.iter_mut().find(|slot| slot.is_none_or(|seen| seen == context))?;
            let is_head = slot.replace(context).is_none();
            is_head.then_some((place, context, word))
        })
    }

    /// Takes the word at this place of the queue.
    pub fn take_sent_at(&mut self, place: usize) -> Option<(u16, u64)> {
        self.outbox.remove(place)
    }

    /// Takes that word.
    pub fn take_sent(&mut self) -> Option<(u16, u64)> {
        self.outbox.pop_front()
    }

    /// Whether the program asks the NIC for anything.
    #[inline]
    pub fn has_demands(&self) -> bool {
        !self.demands.is_empty()
    }

    /// What the program asks of the NIC.
    pub fn poll_demand(&mut self) -> Option<Demand> {
        self.demands.pop_front()
    }

    /// Reads a CSR.
    pub fn read(&self, number: u16) -> u64 {
        match number {
            csr::MESSAGES_READY => self.ready_register,
            csr::CURRENT_CONTEXT => self.current.into(),
            csr::CURRENT_PRIORITY => self.current_priority.into(),
            csr::NIC_READY => {
                1 | u64::from(self.can_block) << 1
                    | u64::from(self.has_banks) << 2
                    | u64::from(self.blocks) << 3
            }
            csr::TARGET_CONTEXT => self.target.map_or(self.current, |(context, _)| context).into(),
            csr::TARGET_PRIORITY => {
                self.target.map_or(self.current_priority, |(_, priority)| priority).into()
            }
            csr::MESSAGE_CYCLES => self.message_cycles,
            csr::IDLE_CYCLES => self.idle_cycles,
            _ => 0,
        }
    }

    /// Writes a CSR.
    pub fn write(&mut self, cycle: u64, number: u16, value: u64) {
        if self.is_idle && (number, value) == (csr::THREAD_COMMAND, NOTHING_TO_DO) {
            return;
        }
        self.unsettle();
        match number {
            csr::CURRENT_CONTEXT => self.switch_to(cycle, value as u16),
            csr::CURRENT_PRIORITY => self.current_priority = value as u8,
            csr::NIC_COMMAND => {
                if value & 1 != 0 {
                    self.insert(cycle);
                }
                self.has_timers |= value & 4 != 0;
                self.blocks |= value & 8 != 0 && self.can_block;
            }
            csr::THREAD_COMMAND => {
                if value & 1 != 0 {
                    self.finish_message(cycle);
                }
                if value & NOTHING_TO_DO != 0 {
                    self.on_idle(cycle);
                    self.is_idle = value == NOTHING_TO_DO && self.rests();
                }
            }
            csr::MESSAGE_CYCLES => self.message_cycles = value,
            csr::IDLE_CYCLES => self.idle_cycles = value,
            csr::THREAD_ENTRY => {
                if let Some(entry) = self.running().filter(|entry| entry.bank != Bank::Runs) {
                    entry.bank = Bank::Begins(value);
                }
            }
            _ => {}
        }
    }

    /// Whether the scheduler's interrupt is raised.
    pub fn wants_switch(&self) -> bool {
        self.target.is_some_and(|(context, _)| context != self.current)
    }

    /// What the program did wrong so far.
    pub fn misuse(&self) -> Misuse {
        self.misuse
    }

    /// Words that wait in the receive queue of `context`.
    pub fn queued_words(&self, context: u16) -> usize {
        self.contexts.iter().find(|entry| entry.id == context).map_or(0, |entry| entry.words.len())
    }

    /// Something was done to it.
    #[inline(always)]
    fn unsettle(&mut self) {
        (self.is_settled, self.is_idle) = (false, false);
    }

    /// The end of a cycle: registers take over, timers run.
    #[inline]
    pub fn tick(&mut self, cycle: u64) {
        if self.is_settled {
            return;
        }
        self.tick_busily(cycle);
        // Until something is done to it, every further cycle leaves it as it is.
        self.is_settled = self.ready_register == self.ready_next
            && self.ready_next == self.queued_words(self.current) as u64
            && self.decision.is_none()
            && !self.has_timers;
    }

    fn tick_busily(&mut self, cycle: u64) {
        self.ready_register = self.ready_next;
        self.ready_next = self.queued_words(self.current) as u64;
        if let Some((due, context, priority)) = self.decision
            && cycle >= due
        {
            self.decision = None;
            self.target = (context != self.current).then_some((context, priority));
            if self.target.is_some() {
                self.timeline.mark(cycle, Stage::SwitchWanted, context.into());
            }
        }
        if self.has_timers {
            self.watch_time(cycle);
        }
    }

    /// Whether nothing is there and nothing will change before words arrive or the program acts, timers included.
    pub fn is_quiet(&self) -> bool {
        self.decision.is_none()
            && self.outbox.is_empty()
            && self.late.is_none()
            && self.demands.is_empty()
            && self.ready_register == 0
            && self.ready_next == 0
            && !self.wants_switch()
            && !self.has_timers
    }

    fn running(&mut self) -> Option<&mut Context> {
        let current = self.current;
        self.contexts.iter_mut().find(|entry| entry.id == current)
    }

    fn insert(&mut self, cycle: u64) {
        let (id, priority) = (self.current, self.current_priority);
        if self.contexts.iter().any(|entry| entry.id == id) {
            return;
        }
        if self.contexts.len() == CONTEXTS_MAX {
            self.misuse.note(Mistake::RefusedContext, self.occurrence(cycle, 0));
            return;
        }
        self.contexts.push(Context {
            id,
            priority,
            base_priority: priority,
            words: VecDeque::new(),
            arrivals: VecDeque::new(),
            is_active: false,
            writing: Writing::default(),
            bank: Bank::Unused,
        });
        self.demands.push_back(Demand::Insert { context: id });
    }

    fn switch_to(&mut self, cycle: u64, context: u16) {
        self.current = context;
        self.timeline.mark(cycle, Stage::Switched, context.into());
        self.target = self.target.filter(|&(target, _)| target != context);
        self.began = self.running().is_some_and(|entry| entry.is_active).then_some(cycle);
        self.idle_since = None;
        self.is_waiting = false;
    }

    fn finish_message(&mut self, cycle: u64) {
        self.finish_writing();
        let Some(entry) = self.running() else { return };
        entry.arrivals.pop_front();
        entry.is_active = !entry.arrivals.is_empty();
        entry.priority = entry.base_priority;
        let (context, is_active, priority) = (entry.id, entry.is_active, entry.priority);
        self.current_priority = priority;
        self.began = is_active.then_some(cycle);
        self.timeline.mark(cycle, Stage::Done, context.into());
        self.demands.push_back(Demand::Done { context });
        self.decide(cycle);
    }
}

#[cfg(test)]
mod tests;
