//! An instruction leaves decode, and executes if it is the right one.

use highwire_riscv::csr::number::{CYCLE, MCYCLE};
use highwire_riscv::{Class, Hart, Next, Op};

use super::{Core, RECORDS, Record, Slot, WRONG_PATH};
use crate::decode::{NO_NEEDS, Needs};
use crate::latency::{FloatLatency, float_latency, integer_unit_cycles};
use crate::port::{Port, RX_REGISTER};

/// From decode to write-back, where counters are read.
const WRITE_BACK_CYCLES: u64 = 3;

impl Core {
    /// The instruction at the head of the buffer leaves decode, for the stage behind execute; false if it does not.
    pub(super) fn issue<B: Port>(&mut self, bus: &mut B) -> bool {
        let fetched = self.frontend.fetched();
        let mut slot = Slot {
            is_live: true,
            replays: fetched.replays(),
            turns: false,
            entry: fetched.entry,
            history: fetched.history,
            pc: fetched.pc,
            serial: WRONG_PATH,
            needs: fetched.needs,
        };
        let known = fetched.is_known().then_some((fetched.bits, fetched.needs));
        let is_new = self.next_serial == self.end_serial;
        let expected = if is_new { self.hart.pc } else { self.record(self.next_serial).pc };
        if slot.pc == expected && !self.is_behind_turn() {
            if !is_new {
                self.read_counter_again();
            } else if self.execute_next(bus, known) {
                self.end_serial += 1;
            } else {
                return false;
            }
            self.bind(&mut slot);
        }
        self.stages[(self.execute + 1) % 4] = slot;
        true
    }

    /// The instruction in `slot` is the program's next.
    fn bind(&mut self, slot: &mut Slot) {
        let record = self.record(self.next_serial);
        slot.needs = record.needs;
        slot.turns = record.needs.flushes() || record.trap.is_some();
        slot.serial = self.next_serial;
        if !slot.replays {
            self.next_serial += 1;
            self.fence |= slot.needs.class == Class::Fence || slot.needs.acquires();
        }
    }

    /// What the cycle counter will show to an instruction that leaves decode now.
    fn counter_at_write_back(&self) -> u64 {
        self.cycle.wrapping_add(WRITE_BACK_CYCLES).wrapping_add(self.counter_offset)
    }

    /// A replayed read of the cycle counter finds a later cycle. Nothing can have used the earlier value: it is only
    /// there at write-back, which the instruction has not reached.
    fn read_counter_again(&mut self) {
        let cycle = self.counter_at_write_back();
        let record = &mut self.records[self.next_serial as usize % RECORDS];
        let Some(instruction) = &record.instruction else { return };
        let reads_cycles = matches!(instruction.immediate as u16, MCYCLE | CYCLE);
        if record.needs.class == Class::Csr
            && reads_cycles
            && record.trap.is_none()
            && let Some(register) = instruction.destination()
        {
            record.value = cycle;
            self.hart.x[usize::from(register.number)] = cycle;
        }
    }

    /// Behind an instruction that will redirect from write-back, everything is fetched again.
    fn is_behind_turn(&self) -> bool {
        let turns = |slot: &Slot| slot.works() && (slot.serial == WRONG_PATH || slot.turns);
        turns(&self.stages[self.execute]) || turns(self.memory())
    }

    /// Executes the program's next instruction and takes its record; false if the hart waits. `known` are the fetched bits
    /// and what they need.
    fn execute_next<B: Port>(&mut self, bus: &mut B, known: Option<(u32, Needs)>) -> bool {
        let counted = self.counter_at_write_back();
        self.hart.csrs.mcycle = counted;
        let pc = self.hart.pc;
        let next = self.hart.next(bus);
        let place = self.end_serial as usize % RECORDS;
        let instruction = match next {
            Next::Instruction(instruction) => instruction,
            Next::Waiting => return false,
            Next::Trap(trap) => {
                self.hart.take(trap);
                let record = &mut self.records[place];
                *record = Record { pc, next: self.hart.pc, counted, trap: Some(trap), ..super::NO_RECORD };
                return true;
            }
        };
        // Where a program writes its own code, fetch and the hart may differ until a fence.
        let needs = match known {
            Some((bits, needs)) if bits == instruction.bits => needs,
            _ => Needs::of(&instruction),
        };
        if B::IS_NETWORK && needs.reads_network() {
            bus.by(pc);
            // Both operands of one instruction are the same word.
            self.hart.x[usize::from(RX_REGISTER)] = bus.take_word(self.cycle);
        }
        let operands = [instruction.rs1, instruction.rs2].map(usize::from);
        let [a, b] = operands.map(|number| self.hart.x[number & 31]);
        let [fa, fb] = operands.map(|number| self.hart.f[number & 31]);
        let memory = if needs.is_access() { self.hart.access(&instruction) } else { None };
        let trap = self.hart.perform(&instruction, bus).err();
        // A trap asks nothing of the units.
        let needs = if trap.is_some() { NO_NEEDS } else { needs };
        if needs.class == Class::Csr && instruction.immediate as u16 == MCYCLE {
            // Untouched, it has counted the instruction itself.
            let moved = self.hart.csrs.mcycle.wrapping_sub(counted);
            self.counter_offset = self.counter_offset.wrapping_add(if moved == 1 { 0 } else { moved });
        }
        let record = &mut self.records[place];
        record.pc = pc;
        record.next = self.hart.pc;
        record.needs = needs;
        record.instruction = Some(instruction);
        record.trap = trap;
        record.value = written(&self.hart, &needs);
        record.memory = memory.filter(|_| trap.is_none());
        record.counted = counted;
        record.unit_cycles = if needs.is_long() { integer_unit_cycles(instruction.op, a, b) } else { 0 };
        record.float =
            if needs.is_float() { float_latency(&needs, &instruction, fa, fb) } else { FloatLatency::None };
        record.csr_operand = match instruction.op {
            Op::Csrrw | Op::Csrrs | Op::Csrrc => a,
            _ => u64::from(instruction.rs1),
        };
        true
    }
}

/// The value of the register that has just been written.
fn written(hart: &Hart, needs: &Needs) -> u64 {
    let number = needs.writes.trailing_zeros() as usize;
    match number {
        0..32 => hart.x[number],
        32..64 => hart.f[number - 32],
        _ => 0,
    }
}
