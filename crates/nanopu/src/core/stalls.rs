//! Why no instruction left the pipeline in a cycle.
//!
//! A cycle without a commit is a bubble at write-back. Decode makes bubbles, because it holds an instruction back or has none, and so
//! does a redirect, which empties the stages in front of it. The reason is noted where the bubble arises and travels with it.
//!
//! Invariant: commits, traps and stalls together are the cycles that the core has run.

use super::pipeline::{Pipeline, Turn};
use super::world::World;
use crate::port::Port;

/// Why no instruction left the pipeline in a cycle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Stall {
    /// A line of instructions is on its way.
    CodeLine,
    /// A line of data is on its way, or another is written back to make room for it.
    DataLine,
    /// A store that has not reached the data cache's array is in the way of an access.
    Store,
    /// A device has not answered, or its word takes the register file's port.
    Device,
    /// The instruction before has a result that is not there yet, such as a load's word.
    Operand,
    /// The multiplier or divider is busy, or has not delivered.
    Unit,
    /// The floating-point unit is busy, or has not delivered.
    FloatUnit,
    /// A branch or jump went elsewhere than fetch had guessed.
    Misprediction,
    /// Everything behind an instruction is fetched again, because it changes what that means: a CSR, `fence.i`, a return from a trap.
    Flush,
    /// Fetch goes on in a handler.
    Trap,
    /// A fence waits for the accesses before it, or an access for the fence.
    Fence,
    /// A hint to pause.
    Pause,
    /// The hart sleeps until an interrupt.
    Sleep,
    /// A read of x30 waits for a word.
    Word,
    /// The scheduler changes the bank of registers.
    ThreadSwitch,
    /// Fetch has not kept up for another reason, such as a jump whose target it learns too late, or reset.
    Fetch,
}

impl Stall {
    /// All of them.
    pub const ALL: [Stall; 16] = [
        Stall::CodeLine,
        Stall::DataLine,
        Stall::Store,
        Stall::Device,
        Stall::Operand,
        Stall::Unit,
        Stall::FloatUnit,
        Stall::Misprediction,
        Stall::Flush,
        Stall::Trap,
        Stall::Fence,
        Stall::Pause,
        Stall::Sleep,
        Stall::Word,
        Stall::ThreadSwitch,
        Stall::Fetch,
    ];

    /// A short name, for tables and charts.
    pub fn name(self) -> &'static str {
        match self {
            Stall::CodeLine => "instruction-line",
            Stall::DataLine => "data-line",
            Stall::Store => "store",
            Stall::Device => "device",
            Stall::Operand => "operand",
            Stall::Unit => "multiplier",
            Stall::FloatUnit => "float",
            Stall::Misprediction => "misprediction",
            Stall::Flush => "flush",
            Stall::Trap => "trap",
            Stall::Fence => "fence",
            Stall::Pause => "pause",
            Stall::Sleep => "sleep",
            Stall::Word => "x30",
            Stall::ThreadSwitch => "thread-switch",
            Stall::Fetch => "fetch",
        }
    }
}

/// Cycles in a row without a commit for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StallRun {
    /// The first of them.
    pub from: u64,
    /// How many.
    pub cycles: u64,
    /// Why.
    pub stall: Stall,
}

/// A core's cycles by what happened in them.
#[derive(Clone, Debug)]
pub struct Stalls {
    commits: u64,
    traps: u64,
    counts: [u64; Stall::ALL.len()],
    /// Of what stands in each of the pipeline's stages: why it is a bubble, or why it will leave as one.
    stages: [Stall; 4],
    /// Why fetch began anew. It has no more to deliver than that until an instruction has left decode.
    refetch: Stall,
    runs: Vec<StallRun>,
    /// From which cycle on runs are recorded, and how many.
    runs_from: u64,
    runs_max: usize,
}

/// What decode did in a cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    pub(super) turn: Turn,
    /// Write-back redirects.
    pub(super) overruled: bool,
    /// Any stage does.
    pub(super) killed: bool,
    /// Fetch was turned to another bank's thread.
    pub(super) turned: bool,
    /// Decode held its instruction back.
    pub(super) stall: Option<Stall>,
    /// An instruction left decode.
    pub(super) issues: bool,
}

impl Stalls {
    pub(super) fn new() -> Stalls {
        Stalls {
            commits: 0,
            traps: 0,
            counts: [0; Stall::ALL.len()],
            stages: [Stall::Fetch; 4],
            refetch: Stall::Fetch,
            runs: Vec::new(),
            runs_from: 0,
            runs_max: 0,
        }
    }

    /// Cycles in which an instruction committed.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Cycles in which a trap was taken.
    pub fn traps(&self) -> u64 {
        self.traps
    }

    /// Cycles without either for this reason.
    pub fn cycles(&self, stall: Stall) -> u64 {
        self.counts[stall as usize]
    }

    /// All cycles.
    pub fn all_cycles(&self) -> u64 {
        self.commits + self.traps + self.counts.iter().sum::<u64>()
    }

    /// The runs of stalls, in order, as far as they were recorded.
    pub fn runs(&self) -> &[StallRun] {
        &self.runs
    }

    /// Records so many runs, from a cycle on.
    pub(super) fn record_runs(&mut self, from: u64, runs_max: usize) {
        (self.runs_from, self.runs_max) = (from, runs_max);
    }

    /// The instruction in this stage will leave as a bubble.
    pub(super) fn tell(&mut self, stage: usize, stall: Stall) {
        self.stages[stage % 4] = stall;
    }

    fn count(&mut self, cycle: u64, stall: Stall) {
        self.counts[stall as usize] += 1;
        if cycle < self.runs_from {
            return;
        }
        match self.runs.last_mut() {
            Some(run) if run.stall == stall && run.from + run.cycles == cycle => run.cycles += 1,
            _ => {
                if self.runs.len() < self.runs_max {
                    self.runs.push(StallRun { from: cycle, cycles: 1, stall });
                }
            }
        }
    }
}

impl Pipeline {
    /// Accounts for a cycle, before its stages move.
    #[cold]
    pub(super) fn account<B: Port>(&self, decoded: Decoded, world: &mut World<'_, B>) {
        let Decoded { turn, overruled, killed, turned, stall, issues } = decoded;
        let Some(stalls) = &mut world.side.stalls else { return };
        let [new, execute, memory, back] = [1, 0, 3, 2].map(|stage| (self.execute + stage) % 4);
        let leaves = &self.stages[back];
        let bubble = match leaves.is_live && !leaves.replays {
            true => self.data_cache.why_refused(),
            false => stalls.stages[back],
        };
        let redirect = match turn {
            _ if !overruled => Stall::Misprediction,
            Turn::COMMIT => Stall::Flush,
            Turn::TRAP => Stall::Trap,
            _ => bubble,
        };
        match turn {
            Turn::COMMIT => stalls.commits += 1,
            Turn::TRAP => stalls.traps += 1,
            _ => stalls.count(world.cycle, bubble),
        }
        let fetched = self.frontend.fetched();
        stalls.stages[new] = match stall {
            // An instruction on a wrong path ends as a bubble.
            _ if issues => {
                if fetched.replays() {
                    Stall::Fetch
                } else {
                    Stall::Misprediction
                }
            }
            _ if killed => redirect,
            Some(stall) => stall,
            None if fetched.is_whole() => Stall::Sleep,
            None if self.frontend.lacks_line() => Stall::CodeLine,
            None => stalls.refetch,
        };
        if issues {
            stalls.refetch = Stall::Fetch;
        }
        if killed {
            stalls.refetch = redirect;
            if self.stages[execute].is_live {
                stalls.stages[execute] = redirect;
            }
            if overruled && self.stages[memory].is_live {
                stalls.stages[memory] = redirect;
            }
        }
        if turned {
            stalls.refetch = Stall::ThreadSwitch;
        }
    }
}
