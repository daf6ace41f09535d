//! An instruction leaves decode, and executes if it is the right one.

use highwire_riscv::csr::number::{CYCLE, MCYCLE};
use highwire_riscv::{Class, Instruction, Op, Step};

use super::{Core, Outcome, Record, Slot};
use crate::dcache::Access;
use crate::decode::Needs;
use crate::frontend::Fetched;
use crate::latency::{FloatLatency, float_unit, integer_unit_cycles};
use crate::port::{Port, RX_REGISTER};

/// From decode to write-back, where counters are read.
const WRITE_BACK_CYCLES: u64 = 3;

impl Core {
    /// An instruction leaves decode.
    pub(super) fn issue<B: Port>(&mut self, fetched: Fetched, bus: &mut B) -> Option<Slot> {
        let known = self.needs(&fetched);
        let offset = (self.next_serial - self.first_serial) as usize;
        let expected = self.records.get(offset).map_or(self.hart.pc, |record| record.pc);
        let mut slot = Slot {
            pc: fetched.pc,
            serial: None,
            needs: known.unwrap_or_else(|| Needs::of(&NOTHING)),
            replays: fetched.replays,
            entry: fetched.entry,
            history: fetched.history,
        };
        if fetched.pc != expected || self.is_behind_turn() {
            return Some(slot);
        }
        if offset == self.records.len() {
            let record = self.step(bus, known)?;
            self.records.push_back(record);
        } else {
            self.read_counter_again(offset);
        }
        let record = &self.records[offset];
        slot.needs = record.needs;
        slot.serial = Some(self.next_serial);
        if !fetched.replays {
            self.next_serial += 1;
            if let Class::Fence = slot.needs.class {
                self.fence = true;
            }
            let acquires = record.instruction.is_some_and(|instruction| instruction.mode & 2 != 0);
            self.fence |= slot.needs.class == Class::Atomic && acquires;
        }
        Some(slot)
    }

    /// What the cycle counter will show to an instruction that leaves decode now.
    fn counter_at_write_back(&self) -> u64 {
        self.cycle.wrapping_add(WRITE_BACK_CYCLES).wrapping_add(self.counter_offset)
    }

    /// A replayed read of the cycle counter finds a later cycle. Nothing can have used the earlier value: it is only
    /// there at write-back, which the instruction has not reached.
    fn read_counter_again(&mut self, offset: usize) {
        let cycle = self.counter_at_write_back();
        let record = &mut self.records[offset];
        let Outcome::Retired(retired) = &mut record.outcome else { return };
        let reads_cycles = matches!(retired.instruction.immediate as u16, MCYCLE | CYCLE);
        if record.needs.class == Class::Csr
            && reads_cycles
            && let Some(write) = &mut retired.write
        {
            write.value = cycle;
            self.hart.x[usize::from(write.register.number)] = cycle;
        }
    }

    /// Behind an instruction that will redirect from write-back, everything is fetched again.
    pub(super) fn is_behind_turn(&self) -> bool {
        let ahead = [&self.execute, &self.memory];
        ahead.into_iter().flatten().filter(|slot| !slot.replays).any(|slot| match slot.serial {
            Some(serial) => slot.needs.flushes || matches!(self.record(serial).outcome, Outcome::Trapped(_)),
            None => true,
        })
    }

    /// Executes one instruction architecturally.
    pub(super) fn step<B: Port>(&mut self, bus: &mut B, known: Option<Needs>) -> Option<Record> {
        let counted = self.counter_at_write_back();
        self.hart.csrs.mcycle = counted;
        let instruction = self.hart.peek(bus);
        let takes_word =
            B::IS_NETWORK && instruction.is_some() && known.is_some_and(|needs| needs.reads_network);
        if takes_word {
            // Both operands of one instruction are the same word.
            self.hart.x[usize::from(RX_REGISTER)] = bus.take_word(self.cycle);
        }
        let operands = instruction.map_or([0; 4], |i| {
            [
                self.hart.x[usize::from(i.rs1)],
                self.hart.x[usize::from(i.rs2)],
                self.hart.f[usize::from(i.rs1)],
                self.hart.f[usize::from(i.rs2)],
            ]
        });
        let pc = self.hart.pc;
        let outcome = match self.hart.step(bus) {
            Step::Retired(retired) => Outcome::Retired(retired),
            Step::Trapped { trap, .. } => Outcome::Trapped(trap),
            Step::Waiting => return None,
        };
        // A trap asks nothing of the units.
        let sets_counter =
            instruction.is_some_and(|i| i.class() == Class::Csr && i.immediate as u16 == MCYCLE);
        if sets_counter {
            // Untouched, it has counted the instruction itself.
            let moved = self.hart.csrs.mcycle.wrapping_sub(counted);
            self.counter_offset = self.counter_offset.wrapping_add(if moved == 1 { 0 } else { moved });
        }
        let executed = known.filter(|_| matches!(outcome, Outcome::Retired(_)));
        let needs = executed.unwrap_or_else(|| Needs::of(&NOTHING));
        let [a, b, fa, fb] = operands;
        let access = match outcome {
            Outcome::Retired(retired) => retired.memory.map(|memory| Access {
                address: memory.address,
                bytes: memory.bytes,
                class: needs.class,
            }),
            Outcome::Trapped(_) => None,
        };
        let unit_cycles =
            instruction.filter(|_| needs.is_long()).map_or(0, |i| integer_unit_cycles(i.op, a, b));
        let float =
            instruction.filter(|_| needs.is_float).map_or(FloatLatency::None, |i| float_unit(&i, fa, fb));
        let csr_operand = match instruction {
            Some(i) if matches!(i.op, Op::Csrrw | Op::Csrrs | Op::Csrrc) => a,
            Some(i) => u64::from(i.rs1),
            None => 0,
        };
        Some(Record {
            pc,
            next: self.hart.pc,
            needs,
            instruction,
            outcome,
            access,
            unit_cycles,
            float,
            csr_operand,
        })
    }
}

/// Stands for bits that are no instruction.
const NOTHING: Instruction =
    Instruction { op: Op::Addi, rd: 0, rs1: 0, rs2: 0, rs3: 0, mode: 0, length: 4, immediate: 0, bits: 0 };
