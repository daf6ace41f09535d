//! System instructions and CSR accesses (RISC-V Unpriv §6, Priv §3.3).

use super::illegal;
use crate::bus::Bus;
use crate::csr::{Privilege, number, status};
use crate::hart::Hart;
use crate::instruction::Instruction;
use crate::op::Op;
use crate::trap::{Exception, Trap};

impl Hart {
    pub(super) fn execute_system(&mut self, i: &Instruction) -> Result<(), Trap> {
        let in_user = self.privilege == Privilege::User;
        match i.op {
            Op::Ecall if in_user => return Err(Trap::new(Exception::UserEnvironmentCall, 0)),
            Op::Ecall => return Err(Trap::new(Exception::MachineEnvironmentCall, 0)),
            // As on Rocket; the specification allows the address too (RISC-V Priv §3.1.16).
            Op::Ebreak => return Err(Trap::new(Exception::Breakpoint, 0)),
            Op::Mret if !in_user => {
                (self.pc, self.privilege) = self.csrs.leave();
                self.unreturned = None;
                return Ok(());
            }
            Op::Wfi if !in_user || self.csrs.mstatus & status::TW == 0 => {
                self.waiting = self.csrs.mip & self.csrs.mie == 0;
            }
            _ => return Err(illegal(i)),
        }
        self.pc = self.pc.wrapping_add(i.length.into());
        Ok(())
    }

    pub(super) fn execute_csr<B: Bus>(&mut self, i: &Instruction, bus: &mut B) -> Result<(), Trap> {
        let csr = i.immediate as u16;
        let is_immediate = matches!(i.op, Op::Csrrwi | Op::Csrrsi | Op::Csrrci);
        let operand = if is_immediate { i.rs1.into() } else { self.x[usize::from(i.rs1)] };
        let is_swap = matches!(i.op, Op::Csrrw | Op::Csrrwi);
        // RISC-V Unpriv §6.1: the field decides, not the value: x0 and the immediate 0 do not write.
        let writes = is_swap || i.rs1 != 0;
        if !self.csrs.is_accessible(csr, self.privilege, writes) {
            return Err(illegal(i));
        }
        let reads = !is_swap || i.rd != 0;
        let old = if reads { self.read_csr(csr, bus).ok_or_else(|| illegal(i))? } else { 0 };
        if writes {
            let new = match i.op {
                Op::Csrrs | Op::Csrrsi => old | operand,
                Op::Csrrc | Op::Csrrci => old & !operand,
                _ => operand,
            };
            if !self.csrs.write(csr, new) && !bus.write_csr(csr, new) {
                return Err(illegal(i));
            }
        }
        self.x[usize::from(i.rd)] = old;
        Ok(())
    }

    fn read_csr<B: Bus>(&self, csr: u16, bus: &mut B) -> Option<u64> {
        match csr {
            // The platform has the clock.
            number::TIME => bus.read_csr(csr),
            _ => self.csrs.read(csr).or_else(|| bus.read_csr(csr)),
        }
    }
}
