//! Decoding: from bits to an operation and its operands.

use crate::compressed;
use crate::instruction::{IllegalInstruction, Instruction, is_compressed};
use crate::op::Op;
use crate::shape::Mode;

impl Instruction {
    /// Decodes the instruction at the start of `word`; a compressed one uses the low half only.
    pub fn decode(word: u32) -> Result<Instruction, IllegalInstruction> {
        if is_compressed(word as u16) {
            return compressed::expand(word as u16);
        }
        let illegal = IllegalInstruction { bits: word };
        let row = Op::candidates(word).find(|row| word & row.mask == row.bits).ok_or(illegal)?;
        let operands = row.shape.operands();
        let register = |used: bool, low: u32| if used { (word >> low) as u8 & 31 } else { 0 };
        let keep = operands.keeps_unused;
        let mode = match operands.mode {
            Mode::None => 0,
            Mode::Rounding => (word >> 12) as u8 & 7,
            Mode::Ordering => (word >> 25) as u8 & 3,
        };
        // RISC-V Unpriv §20.2: the static rounding modes 5 and 6 are reserved.
        if operands.mode == Mode::Rounding && matches!(mode, 5 | 6) {
            return Err(illegal);
        }
        Ok(Instruction {
            op: row.op,
            rd: register(keep || operands.rd.is_some(), 7),
            rs1: register(keep || operands.rs1.is_some(), 15),
            rs2: register(operands.rs2.is_some(), 20),
            rs3: register(operands.rs3.is_some(), 27),
            mode,
            length: 4,
            immediate: operands.immediate.map_or(0, |immediate| immediate.gather(word)),
            bits: word,
        })
    }
}
