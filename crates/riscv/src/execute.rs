//! The effect of each instruction: one arm per instruction.
//!
//! Base integer, multiplication and memory stand here, where the hot loop finds them; atomics, system and floating-point
//! instructions are one call away. An instruction either does all of its work or traps and changes nothing.

mod atomic;
mod float;
mod integer;
mod system;

use integer::{divide, divide_unsigned, multiply_high, remainder, remainder_unsigned};

use crate::bus::Bus;
use crate::hart::Hart;
use crate::instruction::Instruction;
use crate::op::Op;
use crate::trap::{Exception, Trap};

impl Hart {
    /// Executes `i`, which lies at `pc`.
    #[inline(always)]
    pub(crate) fn execute<B: Bus>(&mut self, i: &Instruction, bus: &mut B) -> Result<(), Trap> {
        use Op::*;
        let a = self.x[usize::from(i.rs1 & 31)];
        let b = self.x[usize::from(i.rs2 & 31)];
        let imm = i.immediate as i64 as u64;
        let pc = self.pc;
        let after = pc.wrapping_add(i.length.into());
        let mut next = after;
        let mut go_if = |taken: bool| {
            if taken {
                next = pc.wrapping_add(imm);
            }
            0
        };
        let value = match i.op {
            Lui => imm,
            Auipc => pc.wrapping_add(imm),
            Jal => {
                next = pc.wrapping_add(imm);
                after
            }
            Jalr => {
                next = a.wrapping_add(imm) & !1;
                after
            }
            Beq => go_if(a == b),
            Bne => go_if(a != b),
            Blt => go_if((a as i64) < b as i64),
            Bge => go_if(a as i64 >= b as i64),
            Bltu => go_if(a < b),
            Bgeu => go_if(a >= b),
            Lb => load(bus, a.wrapping_add(imm), 1)? as i8 as u64,
            Lh => load(bus, a.wrapping_add(imm), 2)? as i16 as u64,
            Lw => load(bus, a.wrapping_add(imm), 4)? as i32 as u64,
            Ld => load(bus, a.wrapping_add(imm), 8)?,
            Lbu => load(bus, a.wrapping_add(imm), 1)?,
            Lhu => load(bus, a.wrapping_add(imm), 2)?,
            Lwu => load(bus, a.wrapping_add(imm), 4)?,
            Sb => store(bus, a.wrapping_add(imm), 1, b)?,
            Sh => store(bus, a.wrapping_add(imm), 2, b)?,
            Sw => store(bus, a.wrapping_add(imm), 4, b)?,
            Sd => store(bus, a.wrapping_add(imm), 8, b)?,
            Addi => a.wrapping_add(imm),
            Slti => u64::from((a as i64) < imm as i64),
            Sltiu => u64::from(a < imm),
            Xori => a ^ imm,
            Ori => a | imm,
            Andi => a & imm,
            Slli => a << (imm & 63),
            Srli => a >> (imm & 63),
            Srai => (a as i64 >> (imm & 63)) as u64,
            Add => a.wrapping_add(b),
            Sub => a.wrapping_sub(b),
            Sll => a << (b & 63),
            Slt => u64::from((a as i64) < b as i64),
            Sltu => u64::from(a < b),
            Xor => a ^ b,
            Srl => a >> (b & 63),
            Sra => (a as i64 >> (b & 63)) as u64,
            Or => a | b,
            And => a & b,
            Addiw => word(a.wrapping_add(imm)),
            Slliw => word(a << (imm & 31)),
            Srliw => word((a as u32 >> (imm & 31)).into()),
            Sraiw => (a as i32 >> (imm & 31)) as u64,
            Addw => word(a.wrapping_add(b)),
            Subw => word(a.wrapping_sub(b)),
            Sllw => word(a << (b & 31)),
            Srlw => word((a as u32 >> (b & 31)).into()),
            Sraw => (a as i32 >> (b & 31)) as u64,
            Mul => a.wrapping_mul(b),
            Mulh => multiply_high((a as i64).into(), (b as i64).into()),
            Mulhsu => multiply_high((a as i64).into(), b.into()),
            Mulhu => ((u128::from(a) * u128::from(b)) >> 64) as u64,
            Div => divide(a as i64, b as i64),
            Divu => divide_unsigned(a, b),
            Rem => remainder(a as i64, b as i64),
            Remu => remainder_unsigned(a, b),
            Mulw => word(a.wrapping_mul(b)),
            Divw => word(divide((a as i32).into(), (b as i32).into())),
            Divuw => word(divide_unsigned((a as u32).into(), (b as u32).into())),
            Remw => word(remainder((a as i32).into(), (b as i32).into())),
            Remuw => word(remainder_unsigned((a as u32).into(), (b as u32).into())),
            _ => return self.execute_rest(i, bus),
        };
        self.x[usize::from(i.rd & 31)] = value;
        self.x[0] = 0;
        self.pc = next;
        Ok(())
    }

    /// The instructions that are rare, or long anyhow.
    #[inline(never)]
    fn execute_rest<B: Bus>(&mut self, i: &Instruction, bus: &mut B) -> Result<(), Trap> {
        use Op::*;
        match i.op {
            // Other harts see the stores of one hart in order: there is nothing to wait for.
            Fence => {}
            FenceI => self.fetched.flush(),
            Ecall | Ebreak | Mret | Wfi => return self.execute_system(i),
            Csrrw | Csrrs | Csrrc | Csrrwi | Csrrsi | Csrrci => self.execute_csr(i, bus)?,
            _ if i.op.class() == crate::op::Class::Atomic => self.execute_atomic(i, bus)?,
            _ => self.execute_float(i, bus)?,
        }
        self.x[0] = 0;
        self.pc = self.pc.wrapping_add(i.length.into());
        Ok(())
    }
}

/// The low 32 bits, sign-extended.
#[inline(always)]
fn word(value: u64) -> u64 {
    value as i32 as u64
}

#[inline(always)]
fn load<B: Bus>(bus: &mut B, address: u64, bytes: u8) -> Result<u64, Trap> {
    if !address.is_multiple_of(bytes.into()) {
        let is_device = bus.is_device(address);
        return Err(misaligned(is_device, [Exception::LoadMisaligned, Exception::LoadAccessFault], address));
    }
    bus.load(address, bytes).map_err(|_| Trap::new(Exception::LoadAccessFault, address))
}

#[inline(always)]
fn store<B: Bus>(bus: &mut B, address: u64, bytes: u8, value: u64) -> Result<u64, Trap> {
    if !address.is_multiple_of(bytes.into()) {
        let is_device = bus.is_device(address);
        return Err(misaligned(
            is_device,
            [Exception::StoreMisaligned, Exception::StoreAccessFault],
            address,
        ));
    }
    bus.store(address, bytes, value).map_err(|_| Trap::new(Exception::StoreAccessFault, address))?;
    Ok(0)
}

/// A device whose registers have effects needs aligned accesses: Rocket raises an access fault for others.
#[cold]
fn misaligned(is_device: bool, [at_memory, at_device]: [Exception; 2], address: u64) -> Trap {
    Trap::new(if is_device { at_device } else { at_memory }, address)
}

fn illegal(i: &Instruction) -> Trap {
    Trap::new(Exception::IllegalInstruction, i.bits.into())
}
