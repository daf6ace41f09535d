//! The pipeline: decode, execute, memory, write-back, and what moves between them in one cycle.
//!
//! Decode is the only stage that stalls. Instructions execute architecturally when they leave it on the right path; the records
//! of those that have not committed are kept, so that a replay finds them again instead of executing twice.

mod advance;
mod branch;
mod interlock;
mod issue;
mod network;

use highwire_riscv::{Class, Hart, Instruction, MemoryAccess, RegisterWrite, Retired, Trap};

use crate::config::CoreConfig;
use crate::dcache::{Access, DataCache};
use crate::decode::{NO_NEEDS, Needs};
use crate::float_unit::FloatUnit;
use crate::frontend::{Frontend, Request};
use crate::latency::FloatLatency;
use crate::port::{Port, SWITCH_THREAD, TX_REGISTER};

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
    /// An instruction did.
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

/// What an instruction did when it executed.
#[derive(Clone, Copy, Debug)]
struct Record {
    pc: u64,
    /// Where the program goes on.
    next: u64,
    needs: Needs,
    /// Nothing if the trap came before it was known.
    instruction: Option<Instruction>,
    /// The trap that was taken instead.
    trap: Option<Trap>,
    /// The value of the register that it writes.
    value: u64,
    memory: Option<MemoryAccess>,
    /// The counter when it executed.
    counted: u64,
    unit_cycles: u64,
    float: FloatLatency,
    /// What an access to a CSR of the network brings along.
    csr_operand: u64,
}

const NO_RECORD: Record = Record {
    pc: 0,
    next: 0,
    needs: NO_NEEDS,
    instruction: None,
    trap: None,
    value: 0,
    memory: None,
    counted: 0,
    unit_cycles: 0,
    float: FloatLatency::None,
    csr_operand: 0,
};

impl Record {
    /// The access that the data cache sees.
    fn access(&self) -> Option<Access> {
        let MemoryAccess { address, bytes, .. } = self.memory?;
        Some(Access { address, bytes, class: self.needs.class })
    }

    fn retired(&self) -> Option<Retired> {
        let instruction = self.instruction?;
        let write = instruction.destination();
        let write = write.map(|register| RegisterWrite { register, value: self.value });
        Some(Retired { pc: self.pc, instruction, write, memory: self.memory, cycle: self.counted })
    }
}

/// Records that are kept: those of the stages, of what was sent back from there, and the last that committed.
const RECORDS: usize = 8;

/// The serial number of an instruction on a wrong path.
const WRONG_PATH: u64 = u64::MAX;

/// An instruction in a stage.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// There is one.
    is_live: bool,
    /// It must be fetched again, and only passes through.
    replays: bool,
    /// What comes behind it is fetched again.
    turns: bool,
    entry: u8,
    history: u8,
    pc: u64,
    /// The number of its record, counted from reset, or [`WRONG_PATH`].
    serial: u64,
    needs: Needs,
}

const BUBBLE: Slot = Slot {
    is_live: false,
    replays: false,
    turns: false,
    entry: 0,
    history: 0,
    pc: 0,
    serial: WRONG_PATH,
    needs: NO_NEEDS,
};

impl Slot {
    /// It is there, and more than passes through.
    fn works(&self) -> bool {
        self.is_live && !self.replays
    }
}

/// A multiplication or division under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Long {
    /// The first cycle in which the result can be written.
    ready: u64,
    /// The register that it is for, as a set.
    register: u64,
    value: u64,
    /// Whose it is.
    serial: u64,
    pc: u64,
}

/// What happened at write-back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Bubble,
    Commit,
    Trap,
}

/// A core: a hart and its pipeline.
#[derive(Clone)]
pub struct Core {
    /// The architectural state, ahead of write-back by what is in the pipeline.
    pub hart: Hart,
    cycle: u64,
    frontend: Frontend,
    /// The stages behind decode, as a ring: moving on is counting on.
    stages: [Slot; 4],
    /// Which of them is execute; memory and write-back come before it.
    execute: usize,
    /// What has executed and not committed, by serial number.
    records: [Record; RECORDS],
    /// The serial number of the first record, which commits next.
    first_serial: u64,
    /// The serial number behind the last record.
    end_serial: u64,
    /// The serial number of the next instruction that leaves decode on the right path.
    next_serial: u64,
    /// How far the program has moved its cycle counter.
    counter_offset: u64,
    memory_cycles: u64,
    data_cache: DataCache,
    /// An access was refused, and decode holds back others until the line is there.
    blocked: bool,
    fence: bool,
    /// Registers that the multiplier and divider will write.
    busy: u64,
    /// What the multiplier and divider does.
    long: Option<Long>,
    floats: FloatUnit,
}

impl Core {
    /// A core that is about to fetch the first instruction of `hart`.
    pub fn new(hart: Hart, config: &CoreConfig) -> Core {
        let frontend = Frontend::new(hart.pc);
        Core {
            hart,
            cycle: 0,
            frontend,
            stages: [BUBBLE; 4],
            execute: 0,
            records: [NO_RECORD; RECORDS],
            first_serial: 0,
            end_serial: 0,
            next_serial: 0,
            counter_offset: 0,
            memory_cycles: config.memory_latency_cycles,
            data_cache: DataCache::new(),
            blocked: false,
            fence: false,
            busy: 0,
            long: None,
            floats: FloatUnit::default(),
        }
    }

    /// How many cycles have passed.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// How many instructions have executed, or trapped, since the core was made.
    pub fn executed(&self) -> u64 {
        self.end_serial
    }

    /// A device writes to the line of `address`: the data cache loses it. Whether it was dirty; nothing if it was not there.
    pub(crate) fn take_line(&mut self, address: u64) -> Option<bool> {
        self.data_cache.take_line(address)
    }

    /// A device reads the line of `address`: the data cache keeps it, and must ask before it writes to it. Whether it was dirty;
    /// nothing if it was not there.
    pub(crate) fn share_line(&mut self, address: u64) -> Option<bool> {
        self.data_cache.share_line(address)
    }

    /// Lets the program go on at `pc`, for whoever changes it from outside. What has executed and not committed is lost to
    /// the network, but not to registers and memory.
    pub fn restart_at(&mut self, pc: u64) {
        self.hart.pc = pc;
        self.stages = [BUBBLE; 4];
        (self.first_serial, self.next_serial) = (self.end_serial, self.end_serial);
        (self.long, self.busy) = (None, 0);
        self.floats = FloatUnit::default();
        self.frontend.restart_at(pc);
    }

    /// Runs until an instruction commits or a trap is taken, for at most `cycles` cycles.
    pub fn run_to_event<B: Port>(&mut self, bus: &mut B, cycles: u64) -> Event {
        for _ in 0..cycles {
            let turn = self.advance(bus);
            if turn != Turn::Bubble {
                return self.event(turn);
            }
        }
        Event::Bubble
    }

    /// One cycle.
    #[inline]
    pub fn tick<B: Port>(&mut self, bus: &mut B) -> Event {
        let turn = self.advance(bus);
        self.event(turn)
    }

    /// What happened at write-back in the cycle before, at length. The record is still there.
    #[inline]
    fn event(&self, turn: Turn) -> Event {
        let record = self.record(self.first_serial.wrapping_sub(1));
        let cycle = self.cycle - 1;
        match (turn, record.trap) {
            (Turn::Bubble, _) => Event::Bubble,
            (Turn::Trap, Some(trap)) => Event::Trap { cycle, pc: record.pc, trap },
            _ => match record.retired() {
                Some(retired) => Event::Commit(Commit { cycle, retired }),
                None => Event::Bubble,
            },
        }
    }

    fn advance<B: Port>(&mut self, bus: &mut B) -> Turn {
        let cycle = self.cycle;
        if B::IS_NETWORK {
            self.hart.csrs.set_pending(SWITCH_THREAD, bus.wants_switch());
        }
        if self.data_cache.is_probed(cycle) {
            let memory_cycles = self.memory_cycles;
            let line_cycles = |address| bus.line_cycles(address, memory_cycles);
            self.frontend.expect_line(cycle, self.data_cache.incoming_line(), line_cycles);
        }
        self.frontend.deliver(bus);

        // Write-back speaks first: what it replays or redirects overrules everything behind it.
        let (turn, redirect_back) = self.retire(cycle, bus);
        let arriving = self.arriving(cycle);
        let goes_on = if redirect_back.is_none() { self.redirect_of_memory() } else { None };
        let redirect_memory = goes_on.filter(|&next| self.is_followed_wrongly(next));
        let redirect = redirect_back.or(redirect_memory);
        let (update, resolved) = match redirect_back {
            None => self.train(redirect_memory.is_some()),
            Some(_) => (None, None),
        };
        let killed = redirect.is_some();

        let stalls = self.stalls(cycle, arriving) || (B::IS_NETWORK && self.waits_for_word(cycle, bus));
        let issues = !stalls && !killed && self.frontend.fetched().is_whole();
        if !(issues && self.issue(bus)) {
            self.stages[(self.execute + 1) % 4].is_live = false;
        }

        let flushes_cache = turn == Turn::Commit && {
            let needs = &self.write_back().needs;
            needs.class == Class::Fence && needs.flushes()
        };
        self.move_stages(cycle, redirect_back.is_some(), killed, bus);
        if flushes_cache {
            self.data_cache.flush();
        }
        let request = Request { redirect, update, takes: !stalls, flushes_cache };
        if self.frontend.tick(cycle, &request) {
            self.data_cache.ask(cycle);
        }
        if let Some(resolution) = resolved {
            self.frontend.predictor.resolve(resolution);
        }
        self.floats.tick(cycle);
        if let Some(result) = arriving
            && self.long == Some(result)
        {
            if B::IS_NETWORK && result.register == 1 << TX_REGISTER {
                bus.by(result.pc);
                bus.put_word(cycle, result.value);
            }
            self.long = None;
            self.busy &= !result.register;
        }
        self.cycle += 1;
        turn
    }

    /// Write-back: an instruction commits, traps, or is sent back; then fetch goes on elsewhere.
    fn retire<B: Port>(&mut self, cycle: u64, bus: &mut B) -> (Turn, Option<u64>) {
        let slot = self.write_back();
        if !slot.is_live {
            return (Turn::Bubble, None);
        }
        let Slot { serial, needs, pc, replays, turns, .. } = *slot;
        debug_assert!(serial != WRONG_PATH, "a wrong path ends in the memory stage");
        let is_access = needs.is_access() && self.record(serial).memory.is_some();
        if replays || (is_access && self.data_cache.refuses()) {
            self.next_serial = serial;
            return (Turn::Bubble, Some(pc));
        }
        debug_assert_eq!(serial, self.first_serial, "instructions commit in order");
        self.first_serial += 1;
        if B::IS_NETWORK {
            self.meet_network(cycle, serial, bus);
        }
        if needs.is_long() {
            self.busy |= needs.writes;
        }
        let record = self.record(serial);
        let (next, float) = (record.next, record.float);
        let turn = if record.trap.is_some() { Turn::Trap } else { Turn::Commit };
        if needs.is_float() {
            self.floats.commit(float, needs.float_register());
        }
        if turns {
            self.next_serial = self.first_serial;
        }
        (turn, turns.then_some(next))
    }

    /// The result that the multiplier or divider writes in this cycle, unless write-back needs the register file's port.
    fn arriving(&self, cycle: u64) -> Option<Long> {
        let long = self.long.filter(|long| long.ready <= cycle)?;
        let slot = self.write_back();
        let takes_port = slot.works() && slot.needs.writes_x() != 0;
        (!takes_port).then_some(long)
    }

    fn memory(&self) -> &Slot {
        &self.stages[(self.execute + 3) % 4]
    }

    fn write_back(&self) -> &Slot {
        &self.stages[(self.execute + 2) % 4]
    }

    fn record(&self, serial: u64) -> &Record {
        &self.records[serial as usize % RECORDS]
    }
}
