//! A decoded instruction, and its encoding.

use crate::op::{Class, Op};
use crate::register::{Bank, Register};
use crate::shape::Mode;

/// An instruction with its operands taken apart, ready to execute.
///
/// A compressed instruction looks like the instruction for which it stands, except for its `length` and
/// `bits`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Instruction {
    /// The operation.
    pub op: Op,
    /// Destination register, 0 if there is none.
    pub rd: u8,
    /// First source register; for `csrrwi` and its kin the immediate.
    pub rs1: u8,
    /// Second source register.
    pub rs2: u8,
    /// Third source register, of fused multiplications.
    pub rs3: u8,
    /// Rounding mode of a floating-point operation, or acquire (2) and release (1) of an atomic one.
    pub mode: u8,
    /// Bytes of the encoding, 2 or 4.
    pub length: u8,
    /// The immediate, sign-extended; for a CSR access the number of the register.
    pub immediate: i32,
    /// The encoding: 16 or 32 bits.
    pub bits: u32,
}

/// Bits that are no instruction of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IllegalInstruction {
    /// The 16 or 32 bits.
    pub bits: u32,
}

impl std::fmt::Display for IllegalInstruction {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:#x} is not an instruction of RV64IMAFDC", self.bits)
    }
}

impl std::error::Error for IllegalInstruction {}

/// Whether an instruction that starts with these 16 bits is two bytes long.
pub const fn is_compressed(low: u16) -> bool {
    low & 3 != 3
}

impl Instruction {
    /// The 32-bit encoding of the operands, or nothing if an immediate does not fit its field. Operands that
    /// the operation does not have are ignored.
    pub fn encode(&self) -> Option<u32> {
        let row = self.op.row();
        let operands = row.shape.operands();
        let immediate = operands.immediate.map_or(Some(0), |immediate| immediate.scatter(self.immediate))?;
        let mode = match operands.mode {
            Mode::None => 0,
            Mode::Rounding => u32::from(self.mode) << 12,
            Mode::Ordering => u32::from(self.mode) << 25,
        };
        let keep = operands.keeps_unused;
        let fields = [
            (keep || operands.rd.is_some(), self.rd, 7),
            (keep || operands.rs1.is_some(), self.rs1, 15),
            (operands.rs2.is_some(), self.rs2, 20),
            (operands.rs3.is_some(), self.rs3, 27),
        ];
        let used = fields.into_iter().filter(|&(is_used, ..)| is_used);
        let registers = used.fold(0, |word, (_, number, low)| word | (u32::from(number & 31) << low));
        let variable = immediate | mode | registers;
        (variable & row.mask == 0).then_some(row.bits | variable)
    }

    /// The part of a pipeline that works on it.
    pub fn class(&self) -> Class {
        self.op.class()
    }

    /// The register it writes, unless that is x0.
    pub fn destination(&self) -> Option<Register> {
        let register = Register { bank: self.op.row().shape.operands().rd?, number: self.rd };
        (register != Register::x(0)).then_some(register)
    }

    /// The registers it reads, in operand order; x0 is not listed.
    pub fn sources(&self) -> impl Iterator<Item = Register> {
        let operands = self.op.row().shape.operands();
        let fields = [(operands.rs1, self.rs1), (operands.rs2, self.rs2), (operands.rs3, self.rs3)];
        let named = fields.into_iter().filter_map(|(bank, number)| Some(Register { bank: bank?, number }));
        named.filter(|&register| register != Register::x(0))
    }

    /// Whether it works on the floating-point registers or flags, which `mstatus.FS` can switch off.
    pub fn is_float(&self) -> bool {
        let operands = self.op.row().shape.operands();
        [operands.rd, operands.rs1, operands.rs2].contains(&Some(Bank::F))
    }
}
