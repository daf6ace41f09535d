//! A core: a program, a pipeline, and what stands between them.
//!
//! The [`Pipeline`] decides what happens in a cycle; the [`World`] is everything that it decides about.

mod advance;
mod banks;
mod branch;
mod interlock;
mod issue;
mod memo;
mod outcome;
mod pipeline;
mod record;
mod stalls;
mod world;

use highwire_riscv::{Hart, Retired, Trap};

use crate::config::CoreConfig;
use crate::port::Port;
use banks::Boards;
use memo::Memo;
use pipeline::Pipeline;
pub(crate) use pipeline::{Slot, Turn};
pub use stalls::{Stall, StallRun, Stalls};
use world::Side;
pub(crate) use world::{Ask, LOADS, STORE, STORES, Since, World, fetched};

/// An instruction that committed in some cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The cycle of its write-back.
    pub cycle: u64,
    /// What it did.
    pub retired: Retired,
}

/// What happened at write-back in a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing left the pipeline.
    Bubble,
    /// An instruction committed.
    Commit(Commit),
    /// A trap was taken.
    Trap {
        /// The cycle.
        cycle: u64,
        /// The value of `mepc`.
        pc: u64,
        /// The trap.
        trap: Trap,
    },
}

/// A core: a hart and its pipeline.
#[derive(Clone)]
pub struct Core {
    /// The architectural state: ahead of write-back by the instructions in the pipeline.
    pub hart: Hart,
    cycle: u64,
    /// The pipeline's state, while the memo does not hold it.
    pipeline: Pipeline,
    memo: Memo,
    /// Cycles that the pipeline has worked out outside the memo.
    worked_out: u64,
    side: Side,
}

impl Core {
    /// A core that is about to fetch the first instruction of `hart`.
    pub fn new(hart: Hart, config: &CoreConfig) -> Core {
        let pipeline = Pipeline::new(hart.pc);
        let mut side = Side::new(config.memory_latency_cycles);
        side.stalls = config.tells_stalls.then(|| Box::new(Stalls::new()));
        // A cycle that is repeated from memory does not say why it went so.
        let memo = Memo::new(config.remembers_cycles && !config.tells_stalls);
        Core { hart, cycle: 0, pipeline, memo, worked_out: 0, side }
    }

    /// The same core with a bank of registers for each context, before it has begun.
    pub fn with_banks(mut self) -> Core {
        self.pipeline.boards = Some(Boards::default());
        self.side.banks = Some(Box::default());
        self
    }

    /// How many cycles have passed.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// How many instructions have executed, or trapped, since the core was made.
    pub fn executed(&self) -> u64 {
        self.side.records.end
    }

    /// How many of the cycles were worked out, and not repeated from memory.
    pub fn worked_out(&self) -> u64 {
        self.worked_out + self.memo.worked_out
    }

    /// The cycles by what happened in them, on a core that tells ([`CoreConfig::tells_stalls`]).
    pub fn stalls(&self) -> Option<&Stalls> {
        self.side.stalls.as_deref()
    }

    /// Records so many runs of stalls, from cycle `from` on, on a core that tells.
    pub fn record_stalls(&mut self, from: u64, runs_max: usize) {
        if let Some(stalls) = &mut self.side.stalls {
            stalls.record_runs(from, runs_max);
        }
    }

    /// A device writes to the line of `address`, so the data cache loses it. Returns whether the line was
    /// dirty, or `None` if it was not cached.
    pub(crate) fn take_line(&mut self, address: u64) -> Option<bool> {
        self.side.take_line(address)
    }

    /// A device reads the line of `address`: the data cache keeps it, but must ask before it writes to it.
    /// Returns whether the line was dirty, or `None` if it was not cached.
    pub(crate) fn share_line(&mut self, address: u64) -> Option<bool> {
        self.side.share_line(address)
    }

    /// Whether nothing is on its way anywhere in the core: while decode waits, one cycle is like the next.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.memo.pipeline().unwrap_or(&self.pipeline).is_at_rest()
    }

    /// Lets the program go on at `pc`, for a caller that changes it from outside. Instructions that have executed and not
    /// committed lose their effect on the network, but not on registers and memory.
    pub fn restart_at(&mut self, pc: u64) {
        self.hart.pc = pc;
        let since = self.side.since(self.cycle);
        if let Some(pipeline) = self.memo.leave(&since) {
            self.pipeline = pipeline;
        }
        self.side.records.clear();
        self.pipeline.restart_at(pc);
    }

    /// Runs until an instruction commits or a trap is taken, for at most `cycles` cycles.
    pub fn run_to_event<B: Port>(&mut self, bus: &mut B, cycles: u64) -> Event {
        for _ in 0..cycles {
            let turn = self.advance(bus);
            if turn != Turn::BUBBLE {
                return self.event(turn);
            }
        }
        Event::Bubble
    }

    /// Runs for at most `cycles` cycles, while `goes_on`, called with the bus after each cycle, returns true.
    pub fn run_while<B: Port>(&mut self, bus: &mut B, cycles: u64, goes_on: impl Fn(&B) -> bool) {
        if cycles > 0 {
            let mut left = cycles;
            self.run(bus, |_, bus, _| {
                left -= 1;
                left > 0 && goes_on(bus)
            });
        }
    }

    /// One cycle.
    #[inline(always)]
    pub fn tick<B: Port>(&mut self, bus: &mut B) -> Event {
        let turn = self.advance(bus);
        self.event(turn)
    }

    /// Passes over whole turns of a loop that changes nothing.
    pub(crate) fn pass(&mut self, cycles: u64, instructions: u64) {
        self.cycle += cycles;
        self.hart.csrs.minstret = self.hart.csrs.minstret.wrapping_add(instructions);
    }

    /// What happened at write-back in the cycle before, in full: the instruction's record is still kept.
    #[inline(always)]
    pub(crate) fn event(&self, turn: Turn) -> Event {
        let record = self.side.records.last();
        let cycle = self.cycle - 1;
        match (turn, record.trap) {
            (Turn::BUBBLE, _) => Event::Bubble,
            (Turn::TRAP, Some(trap)) => Event::Trap { cycle, pc: record.pc, trap },
            _ => match record.retired() {
                Some(retired) => Event::Commit(Commit { cycle, retired }),
                None => Event::Bubble,
            },
        }
    }

    /// One cycle, and what happened at write-back in it.
    #[inline(always)]
    pub(crate) fn advance<B: Port>(&mut self, bus: &mut B) -> Turn {
        let mut last = Turn::BUBBLE;
        self.run(bus, |_, _, turn| {
            last = turn;
            false
        });
        last
    }

    /// Runs cycle by cycle until `goes_on` returns false. It is called after each cycle with the program, the
    /// bus and what happened in the cycle.
    #[inline(always)]
    pub(crate) fn run<B: Port>(&mut self, bus: &mut B, mut goes_on: impl FnMut(&Hart, &mut B, Turn) -> bool) {
        let Core { hart, cycle, pipeline, memo, side, worked_out } = self;
        let mut world = World { hart, side, bus, cycle: *cycle };
        loop {
            world.hear_scheduler();
            let turn = if memo.is_used() {
                memo.advance(&mut world)
            } else {
                *worked_out += 1;
                work_out(pipeline, memo, &mut world)
            };
            world.side.records.first += u64::from(turn != Turn::BUBBLE);
            world.cycle += 1;
            if !goes_on(world.hart, world.bus, turn) {
                break;
            }
        }
        *cycle = world.cycle;
    }
}

/// A cycle without the memo, and perhaps the last before it.
#[inline(never)]
fn work_out<B: Port>(pipeline: &mut Pipeline, memo: &mut Memo, world: &mut World<'_, B>) -> Turn {
    let turn = pipeline.advance(world);
    if memo.is_on && !pipeline.frontend.is_clearing() {
        memo.stand(pipeline.clone(), turn, world);
    }
    turn
}
