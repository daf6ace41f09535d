//! The compressed instructions (RISC-V Unpriv §26): each is one row that names the instruction for which it
//! stands.

use crate::instruction::{IllegalInstruction, Instruction};
use crate::op::Op;
use crate::shape::{Immediate, at};

/// The source of a register number.
#[derive(Clone, Copy)]
enum Field {
    /// It is implied.
    Fixed(u8),
    /// Five bits, at this position.
    Full(u8),
    /// Three bits that name x8 to x15 or f8 to f15, at this position.
    Prime(u8),
}

use Field::{Fixed, Full, Prime};

impl Field {
    fn gather(self, word: u32) -> u8 {
        match self {
            Fixed(number) => number,
            Full(low) => (word >> low) as u8 & 31,
            Prime(low) => 8 + ((word >> low) as u8 & 7),
        }
    }
}

struct Row {
    #[cfg_attr(not(test), expect(dead_code, reason = "the name of the row, for people and tests"))]
    name: &'static str,
    bits: u16,
    mask: u16,
    /// Words of this row in which all of these bits are zero are reserved.
    nonzero: u16,
    op: Op,
    rd: Field,
    rs1: Field,
    rs2: Field,
    immediate: &'static Immediate,
}

const ZERO: Field = Fixed(0);
const RA: Field = Fixed(1);
const SP: Field = Fixed(2);

static NO: Immediate = Immediate::unsigned(&[]);
static SIX: Immediate = Immediate::signed(6, &[at(2, 0, 5), at(12, 5, 1)]);
static AMOUNT: Immediate = Immediate::unsigned(&[at(2, 0, 5), at(12, 5, 1)]);
static UPPER: Immediate = Immediate::signed(18, &[at(2, 12, 5), at(12, 17, 1)]);
static SP_WIDE: Immediate = Immediate::unsigned(&[at(11, 4, 2), at(7, 6, 4), at(6, 2, 1), at(5, 3, 1)]);
static SP_STEP: Immediate =
    Immediate::signed(10, &[at(6, 4, 1), at(2, 5, 1), at(5, 6, 1), at(3, 7, 2), at(12, 9, 1)]);
static WORD: Immediate = Immediate::unsigned(&[at(6, 2, 1), at(10, 3, 3), at(5, 6, 1)]);
static DOUBLE: Immediate = Immediate::unsigned(&[at(10, 3, 3), at(5, 6, 2)]);
static WORD_SP: Immediate = Immediate::unsigned(&[at(4, 2, 3), at(12, 5, 1), at(2, 6, 2)]);
static DOUBLE_SP: Immediate = Immediate::unsigned(&[at(5, 3, 2), at(12, 5, 1), at(2, 6, 3)]);
static STORE_WORD_SP: Immediate = Immediate::unsigned(&[at(9, 2, 4), at(7, 6, 2)]);
static STORE_DOUBLE_SP: Immediate = Immediate::unsigned(&[at(10, 3, 3), at(7, 6, 3)]);
static BRANCH: Immediate =
    Immediate::signed(9, &[at(3, 1, 2), at(10, 3, 2), at(2, 5, 1), at(5, 6, 2), at(12, 8, 1)]);
static JUMP: Immediate = Immediate::signed(
    12,
    &[
        at(3, 1, 3),
        at(11, 4, 1),
        at(2, 5, 1),
        at(7, 6, 1),
        at(6, 7, 1),
        at(9, 8, 2),
        at(8, 10, 1),
        at(12, 11, 1),
    ],
);

macro_rules! rows {
    ($($name:literal $bits:literal $mask:literal $nonzero:literal $op:ident $rd:expr, $rs1:expr, $rs2:expr, $immediate:ident;)*) => {
        // In order: a row that is a special case of another stands before it.
        static ROWS: &[Row] = &[
            $(Row {
                name: $name, bits: $bits, mask: $mask, nonzero: $nonzero, op: Op::$op,
                rd: $rd, rs1: $rs1, rs2: $rs2, immediate: &$immediate,
            },)*
        ];
    };
}

rows! {
    "c.addi4spn" 0x0000 0xe003 0x1fe0 Addi  Prime(2), SP, ZERO, SP_WIDE;
    "c.fld"      0x2000 0xe003 0 Fld   Prime(2), Prime(7), ZERO, DOUBLE;
    "c.lw"       0x4000 0xe003 0 Lw    Prime(2), Prime(7), ZERO, WORD;
    "c.ld"       0x6000 0xe003 0 Ld    Prime(2), Prime(7), ZERO, DOUBLE;
    "c.fsd"      0xa000 0xe003 0 Fsd   ZERO, Prime(7), Prime(2), DOUBLE;
    "c.sw"       0xc000 0xe003 0 Sw    ZERO, Prime(7), Prime(2), WORD;
    "c.sd"       0xe000 0xe003 0 Sd    ZERO, Prime(7), Prime(2), DOUBLE;
    "c.addi"     0x0001 0xe003 0 Addi  Full(7), Full(7), ZERO, SIX;
    "c.addiw"    0x2001 0xe003 0x0f80 Addiw Full(7), Full(7), ZERO, SIX;
    "c.li"       0x4001 0xe003 0 Addi  Full(7), ZERO, ZERO, SIX;
    "c.addi16sp" 0x6101 0xef83 0x107c Addi  SP, SP, ZERO, SP_STEP;
    "c.lui"      0x6001 0xe003 0x107c Lui   Full(7), ZERO, ZERO, UPPER;
    "c.srli"     0x8001 0xec03 0 Srli  Prime(7), Prime(7), ZERO, AMOUNT;
    "c.srai"     0x8401 0xec03 0 Srai  Prime(7), Prime(7), ZERO, AMOUNT;
    "c.andi"     0x8801 0xec03 0 Andi  Prime(7), Prime(7), ZERO, SIX;
    "c.sub"      0x8c01 0xfc63 0 Sub   Prime(7), Prime(7), Prime(2), NO;
    "c.xor"      0x8c21 0xfc63 0 Xor   Prime(7), Prime(7), Prime(2), NO;
    "c.or"       0x8c41 0xfc63 0 Or    Prime(7), Prime(7), Prime(2), NO;
    "c.and"      0x8c61 0xfc63 0 And   Prime(7), Prime(7), Prime(2), NO;
    "c.subw"     0x9c01 0xfc63 0 Subw  Prime(7), Prime(7), Prime(2), NO;
    "c.addw"     0x9c21 0xfc63 0 Addw  Prime(7), Prime(7), Prime(2), NO;
    "c.j"        0xa001 0xe003 0 Jal   ZERO, ZERO, ZERO, JUMP;
    "c.beqz"     0xc001 0xe003 0 Beq   ZERO, Prime(7), ZERO, BRANCH;
    "c.bnez"     0xe001 0xe003 0 Bne   ZERO, Prime(7), ZERO, BRANCH;
    "c.slli"     0x0002 0xe003 0 Slli  Full(7), Full(7), ZERO, AMOUNT;
    "c.fldsp"    0x2002 0xe003 0 Fld   Full(7), SP, ZERO, DOUBLE_SP;
    "c.lwsp"     0x4002 0xe003 0x0f80 Lw    Full(7), SP, ZERO, WORD_SP;
    "c.ldsp"     0x6002 0xe003 0x0f80 Ld    Full(7), SP, ZERO, DOUBLE_SP;
    "c.jr"       0x8002 0xf07f 0x0f80 Jalr  ZERO, Full(7), ZERO, NO;
    "c.mv"       0x8002 0xf003 0x007c Add   Full(7), ZERO, Full(2), NO;
    "c.ebreak"   0x9002 0xffff 0 Ebreak ZERO, ZERO, ZERO, NO;
    "c.jalr"     0x9002 0xf07f 0x0f80 Jalr  RA, Full(7), ZERO, NO;
    "c.add"      0x9002 0xf003 0x007c Add   Full(7), Full(7), Full(2), NO;
    "c.fsdsp"    0xa002 0xe003 0 Fsd   ZERO, SP, Full(2), STORE_DOUBLE_SP;
    "c.swsp"     0xc002 0xe003 0 Sw    ZERO, SP, Full(2), STORE_WORD_SP;
    "c.sdsp"     0xe002 0xe003 0 Sd    ZERO, SP, Full(2), STORE_DOUBLE_SP;
}

impl Row {
    fn matches(&self, word: u16) -> bool {
        word & self.mask == self.bits && (self.nonzero == 0 || word & self.nonzero != 0)
    }
}

/// The instruction that `word` stands for.
pub(crate) fn expand(word: u16) -> Result<Instruction, IllegalInstruction> {
    let bits = u32::from(word);
    let row = ROWS.iter().find(|row| row.matches(word)).ok_or(IllegalInstruction { bits })?;
    Ok(Instruction {
        op: row.op,
        rd: row.rd.gather(bits),
        rs1: row.rs1.gather(bits),
        rs2: row.rs2.gather(bits),
        rs3: 0,
        mode: 0,
        length: 2,
        immediate: row.immediate.gather(bits),
        bits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Field {
        fn scatter(self, number: u8) -> u16 {
            match self {
                Fixed(_) => 0,
                Full(low) => u16::from(number) << low,
                Prime(low) => u16::from(number - 8) << low,
            }
        }
    }

    /// The word that row would use for these operands.
    fn compress(row: &Row, instruction: &Instruction) -> Option<u16> {
        let fields = [(row.rd, instruction.rd), (row.rs1, instruction.rs1), (row.rs2, instruction.rs2)];
        let registers = fields.iter().fold(0, |word, &(field, number)| word | field.scatter(number));
        Some(row.bits | registers | row.immediate.scatter(instruction.immediate)? as u16)
    }

    #[test]
    fn every_word_is_illegal_or_comes_back_from_its_operands() {
        let mut legal = 0;
        for word in (0..=u16::MAX).filter(|word| word & 3 != 3) {
            let Ok(instruction) = expand(word) else { continue };
            legal += 1;
            let row = ROWS.iter().find(|row| row.matches(word)).unwrap();
            assert_eq!(compress(row, &instruction), Some(word), "{} {word:#06x}", row.name);
            let wide = instruction.encode().unwrap_or_else(|| panic!("{} has no wide form", row.name));
            let expected = Instruction { length: 4, bits: wide, ..instruction };
            assert_eq!(Instruction::decode(wide), Ok(expected), "{} {word:#06x}", row.name);
        }
        // Reserved: c.addi4spn of 0, a column of quadrant 0, c.addiw to x0, c.lui and c.addi16sp of 0, two columns beside
        // c.addw, c.lwsp and c.ldsp to x0, c.jr to x0.
        let reserved = 8 + 2048 + 64 + 32 + 128 + 64 + 64 + 1;
        assert_eq!(legal, 3 * (1 << 14) - reserved);
    }

    #[test]
    fn reserved_words_are_illegal() {
        for word in [0x0000u16, 0x8000, 0x2001, 0x6101, 0x6001, 0x9c41, 0x9c61, 0x4002, 0x6002, 0x8002] {
            assert!(expand(word).is_err(), "{word:#06x}");
        }
    }
}
