//! The effects of executed instructions, kept until they commit: the program's side of the pipeline.

use highwire_riscv::csr::number::{CYCLE, MCYCLE};
use highwire_riscv::{
    AccessKind, Class, Hart, Instruction, MemoryAccess, Next, Op, Privilege, RegisterWrite, Retired, Trap,
};

use super::outcome::{TrapStage, packed as outcome};
use super::world::Answer;
use crate::decode::{Decoder, Flags, NO_FLAGS, Needs};
use crate::latency::{FloatLatency, float_latency, integer_unit_cycles};
use crate::port::{Port, RX_REGISTER, csr};

/// Cycles from decode to write-back, where counters are read.
const WRITE_BACK_CYCLES: u64 = 3;

/// What an instruction did when it executed. Written for every instruction, so it holds nothing that follows from the rest.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
pub(super) struct Record {
    pub(super) pc: u64,
    /// Where the program goes on.
    next: u64,
    /// For an instruction that trapped, only whether it is an access.
    flags: Flags,
    /// `None` if the trap came before the instruction was known.
    instruction: Option<Instruction>,
    /// The trap that was taken instead.
    pub(super) trap: Option<Trap>,
    /// The value of the register that it writes.
    value: u64,
    /// The address that it accesses, if it is an access.
    address: u64,
    /// The operand of a store, an atomic operation or a CSR access.
    operand: u64,
    /// Whether it accesses a device.
    is_device: bool,
    /// The cycle counter when it executed.
    counted: u64,
    /// Cycles of its multiplication or division.
    unit_cycles: u64,
    /// Its latency in the floating-point unit.
    float: FloatLatency,
    /// A branch to the next instruction is taken.
    goes_to_next: bool,
}

const NO_RECORD: Record = Record {
    pc: 0,
    next: 0,
    flags: NO_FLAGS,
    instruction: None,
    trap: None,
    value: 0,
    address: 0,
    operand: 0,
    is_device: false,
    counted: 0,
    unit_cycles: 0,
    float: FloatLatency::None,
    goes_to_next: false,
};

impl Record {
    pub(super) fn retired(&self) -> Option<Retired> {
        let instruction = self.instruction?;
        let write = instruction.destination();
        let write = write.map(|register| RegisterWrite { register, value: self.value });
        Some(Retired { pc: self.pc, instruction, write, memory: self.memory(), cycle: self.counted })
    }

    /// The memory that it touched.
    fn memory(&self) -> Option<MemoryAccess> {
        let instruction = self.instruction.filter(|_| self.flags.is_access())?;
        let kind = match instruction.class() {
            Class::Load => AccessKind::Load,
            Class::Store => AccessKind::Store,
            _ => AccessKind::Atomic,
        };
        let bytes = instruction.op.access_bytes()?;
        let operand = if kind == AccessKind::Load { 0 } else { self.operand };
        Some(MemoryAccess { kind, address: self.address, bytes, operand })
    }
}

impl Record {
    /// Whether its register is written after it has committed: the value comes from the multiplier, the
    /// divider or a device.
    fn is_late(&self) -> bool {
        self.flags.is_long() || (self.flags.is_access() && self.is_device)
    }

    #[inline(always)]
    fn outcome(&self) -> Answer {
        let mut packed = u64::from(self.instruction.as_ref().map_or(0, |instruction| instruction.bits));
        if self.flags.is_long() {
            packed |= self.unit_cycles << outcome::UNIT;
        }
        if self.flags.is_access() {
            let is_device = self.is_device && self.trap.is_none();
            packed |= outcome::ACCESS | if is_device { outcome::DEVICE } else { 0 };
            packed |= match self.instruction.map(|instruction| instruction.op) {
                Some(Op::LrW | Op::LrD) => outcome::RESERVES,
                Some(Op::ScW | Op::ScD) if self.value != 0 => outcome::FAILS,
                _ => 0,
            };
        }
        if self.flags.branches_to_next() && self.goes_to_next {
            packed |= outcome::TO_NEXT;
        }
        if let Some(trap) = &self.trap {
            packed |= TrapStage::of(trap).packed();
        }
        if self.flags.is_float() {
            packed |= match self.float {
                FloatLatency::None => 0,
                FloatLatency::Pipe(cycles) => outcome::PIPE | cycles << outcome::FLOAT,
                FloatLatency::Unit(cycles) => outcome::UNIT_OF_ITS_OWN | cycles << outcome::FLOAT,
            };
        }
        [self.next, packed]
    }
}

/// Records that are kept: for the instructions in the stages, those that were sent back from there, and the
/// last that committed.
const RECORDS: usize = 8;

/// The instructions that have executed and not committed.
#[derive(Clone)]
pub(crate) struct Records {
    /// Indexed by serial number.
    records: [Record; RECORDS],
    /// The serial number of the first record: its instruction commits next.
    pub(super) first: u64,
    /// The serial number behind the last record.
    pub(super) end: u64,
    /// How far the program has moved its cycle counter.
    counter_offset: u64,
}

impl Records {
    pub(super) fn new() -> Records {
        Records { records: [NO_RECORD; RECORDS], first: 0, end: 0, counter_offset: 0 }
    }

    /// Takes out the instructions that have executed and not committed, and puts `others` in their place.
    pub(super) fn exchange(&mut self, others: &[Record]) -> Vec<Record> {
        let left = (self.first..self.end).map(|serial| self.records[serial as usize % RECORDS]).collect();
        self.first = self.end;
        for record in others {
            self.records[self.end as usize % RECORDS] = *record;
            self.end += 1;
        }
        left
    }

    /// Forgets the instructions that have executed and not committed.
    pub(super) fn clear(&mut self) {
        self.first = self.end;
    }

    /// The record behind `a` others.
    #[inline(always)]
    fn behind(&mut self, a: u8) -> &mut Record {
        &mut self.records[self.first.wrapping_add(a.into()) as usize % RECORDS]
    }

    /// The record of the instruction that committed or trapped last.
    #[inline(always)]
    pub(super) fn last(&self) -> &Record {
        &self.records[self.first.wrapping_sub(1) as usize % RECORDS]
    }

    /// The value of the record behind `a` others, and its instruction's pc.
    pub(super) fn value(&mut self, a: u8) -> (u64, u64) {
        let record = self.behind(a);
        (if record.trap.is_some() { 0 } else { record.value }, record.pc)
    }

    #[inline(always)]
    pub(super) fn address(&mut self, a: u8) -> u64 {
        let record = self.behind(a);
        if record.flags.is_access() { record.address } else { 0 }
    }

    /// The cycle counter in this cycle.
    pub(super) fn counter(&self, cycle: u64) -> u64 {
        cycle.wrapping_add(self.counter_offset)
    }

    /// What the cycle counter will show to an instruction that leaves decode now.
    fn counter_at_write_back(&self, cycle: u64) -> u64 {
        cycle.wrapping_add(WRITE_BACK_CYCLES).wrapping_add(self.counter_offset)
    }

    /// An instruction leaves decode again, if it is the one at `pc`. A replayed read of the cycle counter finds a later cycle. Nothing can have used the
    /// earlier value: it is only there at write-back, which the instruction has not reached.
    pub(super) fn again(&mut self, hart: &mut Hart, cycle: u64, a: u8, pc: u64) -> Answer {
        let counter = self.counter_at_write_back(cycle);
        let record = self.behind(a);
        if record.pc != pc {
            return [0, outcome::ASTRAY];
        }
        if record.flags.is_csr()
            && let Some(instruction) = &record.instruction
            && matches!(instruction.immediate as u16, MCYCLE | CYCLE)
            && let Some(register) = instruction.destination()
        {
            record.value = counter;
            hart.x[usize::from(register.number)] = counter;
        }
        record.outcome()
    }

    /// Executes the program's next instruction, if it is the one at `pc`, and records it. Executes nothing if
    /// the hart waits.
    #[inline(always)]
    pub(super) fn execute<B: Port>(
        &mut self,
        hart: &mut Hart,
        decoder: &Decoder,
        bus: &mut B,
        cycle: u64,
        pc: u64,
    ) -> Answer {
        if hart.pc != pc {
            return [0, outcome::ASTRAY];
        }
        let counted = self.counter_at_write_back(cycle);
        hart.csrs.mcycle = counted;
        let Some((&instruction, mark)) = hart.ready() else {
            return self.execute_carefully(hart, decoder, bus, cycle);
        };
        // An instruction that this function has not seen before has no flags yet.
        let flags = Flags(mark);
        if !flags.is_usual(B::IS_NETWORK) {
            if flags.reads_counter() && hart.privilege == Privilege::Machine {
                return self.read_counter(hart, &instruction, flags);
            }
            return self.execute_carefully(hart, decoder, bus, cycle);
        }
        let record = &mut self.records[self.end as usize % RECORDS];
        self.end += 1;
        record.pc = pc;
        record.instruction = Some(instruction);
        record.flags = flags;
        record.counted = counted;
        record.trap = None;
        let mut packed = u64::from(instruction.bits);
        if !flags.only_computes() {
            if B::IS_NETWORK && flags.reads_network() {
                bus.by(pc);
                // Both operands of one instruction are the same word.
                hart.x[usize::from(RX_REGISTER)] = bus.take_word(cycle);
            }
            if flags.is_access() {
                let base = hart.x[usize::from(instruction.rs1 & 31)];
                record.address = base.wrapping_add_signed(instruction.immediate.into());
                record.operand = hart.x[usize::from(instruction.rs2 & 31)];
                record.is_device = bus.is_device(record.address);
                packed |= outcome::ACCESS | if record.is_device { outcome::DEVICE } else { 0 };
            }
            if B::IS_NETWORK && flags.is_csr() {
                record.operand = csr_operand(hart, &instruction);
                // The value comes at write-back.
                hart.perform_foreign(&instruction);
                (record.next, record.value) = (hart.pc, 0);
                return [record.next, packed];
            }
        }
        let performed = hart.perform(&instruction, bus);
        record.next = hart.pc;
        record.value = hart.x[usize::from(instruction.rd & 31)];
        if let Err(trap) = performed {
            (record.trap, record.flags, record.value) = (Some(trap), flags.access_alone(), 0);
            return record.outcome();
        }
        [record.next, packed]
    }

    /// Reads the cycle counter in machine mode: the value is the counter's at write-back.
    fn read_counter(&mut self, hart: &mut Hart, instruction: &Instruction, flags: Flags) -> Answer {
        let (pc, counted) = (hart.pc, hart.csrs.mcycle);
        hart.perform_foreign(instruction);
        if instruction.rd != 0 {
            hart.x[usize::from(instruction.rd & 31)] = counted;
        }
        let record = &mut self.records[self.end as usize % RECORDS];
        self.end += 1;
        (record.pc, record.next, record.flags, record.counted) = (pc, hart.pc, flags, counted);
        (record.instruction, record.trap) = (Some(*instruction), None);
        record.value = hart.x[usize::from(instruction.rd & 31)];
        [record.next, instruction.bits.into()]
    }

    /// Like [`Records::execute`], for any instruction and any outcome.
    #[inline(never)]
    fn execute_carefully<B: Port>(
        &mut self,
        hart: &mut Hart,
        decoder: &Decoder,
        bus: &mut B,
        cycle: u64,
    ) -> Answer {
        let counted = hart.csrs.mcycle;
        let pc = hart.pc;
        let next = hart.next(bus);
        let instruction = match next {
            Next::Instruction(instruction) => instruction,
            Next::Waiting => return [0, outcome::WAITS],
            Next::Trap(trap) => {
                hart.take(trap);
                let record = &mut self.records[self.end as usize % RECORDS];
                *record = Record { pc, next: hart.pc, counted, trap: Some(trap), ..NO_RECORD };
                self.end += 1;
                return record.outcome();
            }
        };
        let needs = decoder.needs(pc, &instruction);
        hart.mark(pc, needs.flags.0);
        if needs.flags.reads_counter() && hart.privilege == Privilege::Machine {
            return self.read_counter(hart, &instruction, needs.flags);
        }
        if B::IS_NETWORK && needs.reads_network() {
            bus.by(pc);
            // Both operands of one instruction are the same word.
            hart.x[usize::from(RX_REGISTER)] = bus.take_word(cycle);
        }
        let record = &mut self.records[self.end as usize % RECORDS];
        *record = Record { pc, instruction: Some(instruction), flags: needs.flags, counted, ..NO_RECORD };
        if !needs.is_plain() {
            let operands = [instruction.rs1, instruction.rs2].map(|number| usize::from(number & 31));
            let [a, b] = operands.map(|number| hart.x[number]);
            let [fa, fb] = operands.map(|number| hart.f[number]);
            record.operand = csr_operand(hart, &instruction);
            if let Some(access) = hart.access(&instruction) {
                (record.address, record.operand) = (access.address, access.operand);
                record.is_device = bus.is_device(access.address);
            }
            if needs.is_long() {
                record.unit_cycles = integer_unit_cycles(instruction.op, a, b);
            }
            if needs.is_float() {
                record.float = float_latency(&needs, &instruction, fa, fb);
            }
        }
        if needs.branches_to_next() {
            record.goes_to_next = is_taken(hart, &instruction);
        }
        record.trap = hart.perform(&instruction, bus).err();
        record.next = hart.pc;
        self.end += 1;
        record.value = match record.trap {
            None => written(hart, &needs),
            Some(_) => {
                // An instruction that traps uses no unit, but its access may reach the cache before the trap
                // is found.
                record.flags = needs.flags.access_alone();
                0
            }
        };
        if needs.class == Class::Csr && instruction.immediate as u16 == MCYCLE && record.trap.is_none() {
            // If the program has not written it, `mcycle` has counted only the instruction itself.
            let moved = hart.csrs.mcycle.wrapping_sub(counted);
            self.counter_offset = self.counter_offset.wrapping_add(if moved == 1 { 0 } else { moved });
        }
        record.outcome()
    }

    /// The first instruction commits: a CSR of the network acts, and a write to x31 leaves.
    pub(super) fn act<B: Port>(&mut self, hart: &mut Hart, bus: &mut B, cycle: u64) {
        meet_network(self.behind(0), hart, bus, cycle);
    }
}

fn meet_network<B: Port>(record: &mut Record, hart: &mut Hart, bus: &mut B, cycle: u64) {
    if record.flags.is_csr()
        && let Some(Instruction { op, rd, rs1, immediate, .. }) = record.instruction
        && csr::is_network(immediate as u16)
    {
        let number = immediate as u16;
        let before = bus.read_network(cycle, number);
        let operand = record.operand;
        let after = match op {
            Op::Csrrw | Op::Csrrwi => Some(operand),
            _ if rs1 == 0 => None,
            Op::Csrrs | Op::Csrrsi => Some(before | operand),
            _ => Some(before & !operand),
        };
        // No instruction can have used the register yet: dependent instructions wait for write-back.
        if rd != 0 {
            record.value = before;
            hart.x[usize::from(rd & 31)] = before;
        }
        if let Some(value) = after {
            bus.by(record.pc);
            bus.write_network(cycle, number, value);
        }
    }
    if record.flags.sends() {
        if record.is_late() {
            bus.promise_word();
        } else {
            bus.by(record.pc);
            bus.put_word(cycle, record.value);
        }
    }
}

/// Whether a branch is taken, wherever it goes.
fn is_taken(hart: &Hart, branch: &Instruction) -> bool {
    let [a, b] = [branch.rs1, branch.rs2].map(|number| hart.x[usize::from(number & 31)]);
    match branch.op {
        Op::Beq => a == b,
        Op::Bne => a != b,
        Op::Blt => (a as i64) < b as i64,
        Op::Bge => a as i64 >= b as i64,
        Op::Bltu => a < b,
        _ => a >= b,
    }
}

/// The operand of a CSR access.
#[inline(always)]
fn csr_operand(hart: &Hart, instruction: &Instruction) -> u64 {
    match instruction.op {
        Op::Csrrw | Op::Csrrs | Op::Csrrc => hart.x[usize::from(instruction.rs1 & 31)],
        _ => u64::from(instruction.rs1),
    }
}

/// The value of the register that has just been written.
#[inline(always)]
fn written(hart: &Hart, needs: &Needs) -> u64 {
    let number = needs.writes.trailing_zeros() as usize;
    match number {
        0..32 => hart.x[number],
        32..64 => hart.f[number - 32],
        _ => 0,
    }
}
