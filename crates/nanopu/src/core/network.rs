//! What an instruction does to the network when it commits.

use highwire_riscv::{Bank, Class, Instruction, Op};

use super::{Core, Outcome, Record};
use crate::port::{Port, TX_REGISTER, csr};

impl Core {
    /// The CSRs act, and a write to x31 leaves.
    pub(super) fn meet_network<B: Port>(&mut self, cycle: u64, record: &mut Record, bus: &mut B) {
        let Outcome::Retired(retired) = &mut record.outcome else { return };
        let number = retired.instruction.immediate as u16;
        if record.needs.class == Class::Csr && csr::is_network(number) {
            let Instruction { op, rs1, .. } = retired.instruction;
            let before = bus.read_network(cycle, number);
            let operand = record.csr_operand;
            let after = match op {
                Op::Csrrw | Op::Csrrwi => Some(operand),
                _ if rs1 == 0 => None,
                Op::Csrrs | Op::Csrrsi => Some(before | operand),
                _ => Some(before & !operand),
            };
            // Until now nothing can have used the register: what depends on it waits for write-back.
            if let Some(write) = &mut retired.write {
                write.value = before;
                self.hart.x[usize::from(write.register.number)] = before;
            }
            if let Some(value) = after {
                bus.write_network(cycle, number, value);
            }
        }
        if let Some(write) = retired.write
            && write.register.bank == Bank::X
            && write.register.number == TX_REGISTER
            && !record.needs.is_long()
        {
            bus.put_word(cycle, write.value);
        }
    }
}
