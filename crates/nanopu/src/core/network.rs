//! What an instruction does to the network when it commits.

use highwire_riscv::{Class, Instruction, Op};

use super::{Core, RECORDS};
use crate::port::{Port, TX_REGISTER, csr};

impl Core {
    /// Passes over whole turns of a loop that changes nothing.
    pub(crate) fn pass(&mut self, cycles: u64, instructions: u64) {
        self.cycle += cycles;
        self.hart.csrs.minstret = self.hart.csrs.minstret.wrapping_add(instructions);
    }

    /// Whether decode holds back a read of x30 until there is a word. An interrupt takes its place, and it comes again afterwards.
    ///
    /// A read that is replayed has its word. One on a wrong path waits like any other, until what comes before it redirects; so the
    /// thread is idle only when nothing is left before it.
    #[inline]
    pub(super) fn waits_for_word<B: Port>(&self, cycle: u64, bus: &mut B) -> bool {
        let fetched = self.frontend.fetched();
        if !fetched.needs.reads_network() || !fetched.is_known() || !bus.lacks_word() {
            return false;
        }
        let waits = self.next_serial == self.end_serial && !self.hart.is_interrupted();
        if waits && fetched.pc == self.hart.pc && self.is_drained() {
            bus.wait_for_word(cycle);
        }
        waits
    }

    /// Whether no instruction is behind decode.
    fn is_drained(&self) -> bool {
        ![self.execute, self.execute + 3, self.execute + 2].iter().any(|slot| self.stages[slot % 4].is_live)
    }

    /// Whether nothing is on its way anywhere in the core: while decode waits, one cycle is like the next.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_drained()
            && self.long.is_none()
            && self.floats.is_at_rest()
            && self.data_cache.is_at_rest()
            && !self.frontend.is_refilling()
    }

    /// The CSRs act, and a write to x31 leaves, when the instruction of this number commits.
    pub(super) fn meet_network<B: Port>(&mut self, cycle: u64, serial: u64, bus: &mut B) {
        let record = &mut self.records[serial as usize % RECORDS];
        if record.needs.class == Class::Csr
            && let Some(Instruction { op, rs1, immediate, .. }) = record.instruction
            && csr::is_network(immediate as u16)
        {
            let number = immediate as u16;
            let before = bus.read_network(cycle, number);
            let operand = record.csr_operand;
            let after = match op {
                Op::Csrrw | Op::Csrrwi => Some(operand),
                _ if rs1 == 0 => None,
                Op::Csrrs | Op::Csrrsi => Some(before | operand),
                _ => Some(before & !operand),
            };
            // Until now nothing can have used the register: what depends on it waits for write-back.
            if record.needs.writes != 0 {
                record.value = before;
                self.hart.x[record.needs.writes.trailing_zeros() as usize] = before;
            }
            if let Some(value) = after {
                bus.by(record.pc);
                bus.write_network(cycle, number, value);
            }
        }
        if record.needs.writes == 1 << TX_REGISTER && !record.needs.is_long() {
            bus.by(record.pc);
            bus.put_word(cycle, record.value);
        }
    }
}
