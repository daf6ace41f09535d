//! A core's end of the network: the queues behind x30 and x31, and the thread scheduler (nanoPU §3.2).
//!
//! Each thread is a context with a priority and a receive queue of its own. The scheduler runs the most urgent context that has
//! something to do, and among equals the one whose message has waited longest; where that is not the current one it raises
//! an interrupt, and software switches.

mod bank;
mod late;
mod mistake;
mod registers;
mod schedule;
mod words;
mod writing;

use std::collections::VecDeque;

use bank::Bank;
use late::Late;
pub use mistake::{Mistake, Misuse, Occurrence};
use writing::Writing;

use crate::packet::MESSAGE_BYTES_MAX;
use crate::timeline::{Stage, Timeline};

/// How many threads a core has room for.
pub const CONTEXTS_MAX: usize = 4;
/// The bit of [`crate::port::csr::THREAD_COMMAND`] by which a thread says that it has nothing to do.
pub(crate) const NOTHING_TO_DO: u64 = 2;

/// A thread's queue and state.
#[derive(Clone, Debug)]
struct Context {
    id: u16,
    priority: u8,
    /// The priority with which the thread was made known; a finished message restores it.
    base_priority: u8,
    words: VecDeque<u64>,
    /// When each message's first word came.
    arrivals: VecDeque<u64>,
    /// It has a message that it has not declared done.
    is_active: bool,
    writing: Writing,
    bank: Bank,
}

/// A demand of a core to the NIC.
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
    /// The context that the scheduler asks for, by interrupt, and its priority.
    target: Option<(u16, u8)>,
    /// Decisions and the cycles in which they become visible.
    decisions: VecDeque<(u64, u16, u8)>,
    /// Whether every event makes the scheduler decide anew, as on the prototype. Otherwise a message for the running context leaves
    /// an earlier decision as it is, and a switch begins the count of idle cycles again.
    decides_anew: bool,
    /// The context whose turn it is when nobody has anything to do, by its place.
    turn: usize,
    /// `MESSAGES_READY` as a register: one cycle behind the queue.
    ready_register: u64,
    ready_next: u64,
    /// Whether another [`Interface::tick`] would change nothing.
    is_settled: bool,
    /// Whether the program changes nothing by saying again that it has nothing to do.
    is_idle: bool,
    /// Reads of x30 can wait for a word.
    can_block: bool,
    /// The program has asked that reads wait.
    blocks: bool,
    /// The current context waits in a read.
    is_waiting: bool,
    has_banks: bool,
    has_timers: bool,
    /// Whether a context that took too long stays demoted. If so, it is demoted only while another waits.
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
    /// The pc of the instruction that acts, if one does.
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
            decisions: VecDeque::new(),
            decides_anew: false,
            turn: 0,
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

    /// From now on the target is computed anew at every event, the running context included, as on the prototype: a message for the
    /// running context withdraws a target that nobody has obeyed yet.
    pub fn decide_anew(&mut self) {
        self.decides_anew = true;
    }

    /// The NIC takes messages of at most so many bytes; a longer one is a mistake of the program.
    pub(crate) fn limit_messages(&mut self, bytes_max: usize) {
        self.message_bytes_max = bytes_max;
    }

    /// From now on the program may ask that reads of x30 wait for a word, which the prototype's do not.
    pub fn allow_blocking(&mut self) {
        self.can_block = true;
    }

    /// Names the instruction that acts next, for reports of its mistakes.
    pub fn by(&mut self, pc: u64) {
        self.pc = Some(pc);
    }

    /// The occurrence of a mistake of the acting instruction in `cycle`.
    fn occurrence(&self, cycle: u64, detail: u64) -> Occurrence {
        Occurrence { cycle, pc: self.pc, context: self.current, detail }
    }

    /// Whether the program has a demand to the NIC.
    #[inline]
    pub fn has_demands(&self) -> bool {
        !self.demands.is_empty()
    }

    /// The program's next demand to the NIC.
    pub fn poll_demand(&mut self) -> Option<Demand> {
        self.demands.pop_front()
    }

    /// Whether the scheduler's interrupt is raised.
    pub fn wants_switch(&self) -> bool {
        self.target.is_some_and(|(context, _)| context != self.current)
    }

    /// The program's mistakes so far.
    pub fn misuse(&self) -> Misuse {
        self.misuse
    }

    /// Notes that the interface was acted upon.
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
        // Until the interface is acted upon, further cycles leave it as it is.
        self.is_settled = self.ready_register == self.ready_next
            && self.ready_next == self.queued_words(self.current) as u64
            && self.decisions.is_empty()
            && !self.has_timers;
    }

    fn tick_busily(&mut self, cycle: u64) {
        self.ready_register = self.ready_next;
        self.ready_next = self.queued_words(self.current) as u64;
        while let Some(&(due, context, priority)) = self.decisions.front()
            && cycle >= due
        {
            self.decisions.pop_front();
            self.target = (context != self.current).then_some((context, priority));
            if self.target.is_some() {
                self.timeline.mark(cycle, Stage::SwitchWanted, context.into());
            }
        }
        if self.has_timers {
            self.watch_time(cycle);
        }
    }

    /// Whether no word is there, and neither words nor timers will change anything before words arrive or the
    /// program acts.
    pub fn is_quiet(&self) -> bool {
        self.decisions.is_empty()
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
}

#[cfg(test)]
mod tests;
