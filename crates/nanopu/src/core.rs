//! The pipeline: decode, execute, memory, write-back, and what moves between them in one cycle.
//!
//! Decode is the only stage that stalls. Instructions execute architecturally when they leave it on the right path; the records
//! of those that have not committed are kept, so that a replay finds them again instead of executing twice.

mod advance;
mod branch;
mod interlock;
mod issue;
mod network;

use std::collections::VecDeque;

use highwire_riscv::{Hart, Instruction, Op, Retired, Trap};

use crate::config::CoreConfig;
use crate::dcache::{Access, DataCache};
use crate::decode::Needs;
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
    instruction: Option<Instruction>,
    outcome: Outcome,
    access: Option<Access>,
    unit_cycles: u64,
    float: FloatLatency,
    /// What an access to a CSR of the network brings along.
    csr_operand: u64,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Retired(Retired),
    Trapped(Trap),
}

/// An instruction in a stage.
#[derive(Clone, Copy, Debug)]
struct Slot {
    pc: u64,
    /// Its record, counted from reset; nothing for an instruction on a wrong path.
    serial: Option<u64>,
    needs: Needs,
    /// It must be fetched again, and only passes through.
    replays: bool,
    entry: u8,
    history: u8,
}

/// A multiplication or division under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Long {
    /// The first cycle in which the result can be written.
    ready: u64,
    register: Option<u8>,
    value: u64,
    /// Whose it is.
    serial: u64,
}

/// How many decoded instructions are remembered.
const DECODED: usize = 2048;

/// An address, the bits that were there, and what they need if they are an instruction.
type Decoded = (u64, u32, Option<Needs>);

/// A core: a hart and its pipeline.
#[derive(Clone)]
pub struct Core {
    /// The architectural state, ahead of write-back by what is in the pipeline.
    pub hart: Hart,
    cycle: u64,
    frontend: Frontend,
    execute: Option<Slot>,
    memory: Option<Slot>,
    write_back: Option<Slot>,
    records: VecDeque<Record>,
    /// The serial number of the first record.
    first_serial: u64,
    /// The serial number of the next instruction that leaves decode on the right path.
    next_serial: u64,
    /// How far the program has moved its cycle counter.
    counter_offset: u64,
    data_cache: DataCache,
    /// An access was refused, and decode holds back others until the line is there.
    blocked: bool,
    fence: bool,
    /// Registers that the multiplier and divider will write.
    busy: u32,
    /// What the multiplier and divider does.
    long: Option<Long>,
    floats: FloatUnit,
    /// What decode found out before, by address.
    decoded: Box<[Option<Decoded>; DECODED]>,
}

impl Core {
    /// A core that is about to fetch the first instruction of `hart`.
    pub fn new(hart: Hart, config: &CoreConfig) -> Core {
        let frontend = Frontend::new(hart.pc, config);
        Core {
            hart,
            cycle: 0,
            frontend,
            execute: None,
            memory: None,
            write_back: None,
            records: VecDeque::new(),
            first_serial: 0,
            next_serial: 0,
            counter_offset: 0,
            data_cache: DataCache::new(config),
            blocked: false,
            fence: false,
            busy: 0,
            long: None,
            floats: FloatUnit::default(),
            decoded: Box::new([None; DECODED]),
        }
    }

    /// How many cycles have passed.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Runs until an instruction commits or a trap is taken, for at most `cycles` cycles.
    pub fn run_to_event<B: Port>(&mut self, bus: &mut B, cycles: u64) -> Event {
        for _ in 0..cycles {
            match self.tick(bus) {
                Event::Bubble => {}
                event => return event,
            }
        }
        Event::Bubble
    }

    /// One cycle.
    pub fn tick<B: Port>(&mut self, bus: &mut B) -> Event {
        let cycle = self.cycle;
        if B::IS_NETWORK {
            self.hart.csrs.set_pending(SWITCH_THREAD, bus.wants_switch());
        }
        if self.data_cache.is_probed(cycle) {
            self.frontend.expect_line(cycle, self.data_cache.incoming_line());
        }
        let fetched = self.frontend.deliver(bus);

        // Write-back speaks first: what it replays or redirects overrules everything behind it.
        let (event, redirect_back) = self.retire(cycle, bus);
        let arriving = self.arriving(cycle);
        let memory_wrong = redirect_back.is_none() && self.is_followed_wrongly(fetched);
        let redirect = redirect_back.or_else(|| self.redirect_of_memory().filter(|_| memory_wrong));
        let (update, resolved) = self.train(redirect_back.is_some(), memory_wrong);
        let killed = redirect.is_some();

        let stalls = self.stalls(cycle, fetched, arriving);
        let issued = fetched
            .filter(|head| !stalls && !killed && !head.is_half)
            .and_then(|fetched| self.issue(fetched, bus));

        self.move_stages(cycle, redirect_back.is_some(), killed, issued);
        let flushes_cache =
            matches!(event, Event::Commit(commit) if commit.retired.instruction.op == Op::FenceI);
        if flushes_cache {
            self.data_cache.flush();
        }
        let request = Request { redirect, update, takes: !stalls, flushes_cache };
        if self.frontend.tick(cycle, request) {
            self.data_cache.ask(cycle);
        }
        if let Some(resolution) = resolved {
            self.frontend.predictor.resolve(resolution);
        }
        self.floats.tick(cycle);
        if let Some(result) = arriving
            && self.long == Some(result)
        {
            if B::IS_NETWORK && result.register == Some(TX_REGISTER) {
                bus.put_word(cycle, result.value);
            }
            self.long = None;
            self.busy &= !result.register.map_or(0, |register| 1 << register);
        }
        self.cycle += 1;
        event
    }

    /// Write-back: an instruction commits, traps, or is sent back; then fetch goes on elsewhere.
    fn retire<B: Port>(&mut self, cycle: u64, bus: &mut B) -> (Event, Option<u64>) {
        let Some(slot) = self.write_back else {
            return (Event::Bubble, None);
        };
        let serial = slot.serial.expect("a wrong path ends in the memory stage");
        if slot.replays
            || (slot.needs.is_access() && self.record(serial).access.is_some() && self.data_cache.refuses())
        {
            self.next_serial = serial;
            return (Event::Bubble, Some(slot.pc));
        }
        debug_assert_eq!(serial, self.first_serial, "instructions commit in order");
        let mut record = self.records.pop_front().expect("what commits has executed");
        self.first_serial += 1;
        if B::IS_NETWORK {
            self.meet_network(cycle, &mut record, bus);
        }
        if slot.needs.is_long()
            && let Some(register) = slot.needs.writes_x
        {
            self.busy |= 1 << register;
        }
        self.floats.commit(record.float, slot.needs.writes_f);
        let is_turn = matches!(record.outcome, Outcome::Trapped(_)) || slot.needs.flushes;
        if is_turn {
            self.next_serial = self.first_serial;
        }
        let event = match record.outcome {
            Outcome::Retired(retired) => Event::Commit(Commit { cycle, retired }),
            Outcome::Trapped(trap) => Event::Trap { cycle, pc: record.pc, trap },
        };
        (event, is_turn.then_some(record.next))
    }

    /// The result that the multiplier or divider writes in this cycle, unless write-back needs the register file's port.
    fn arriving(&self, cycle: u64) -> Option<Long> {
        let takes_port =
            self.write_back.as_ref().is_some_and(|slot| !slot.replays && slot.needs.writes_x.is_some());
        self.long.filter(|long| long.ready <= cycle && !takes_port)
    }

    fn record(&self, serial: u64) -> &Record {
        &self.records[(serial - self.first_serial) as usize]
    }
}
