//! The instruction table: one row per instruction of RV64IMAFD, Zicsr, Zifencei and the machine mode.
//!
//! A row is the whole encoding: the fixed bits under their mask, and the [`Shape`] that tells the places of
//! the operands. The decoder, the encoder and the disassembler read nothing else; an instruction's effect is
//! one arm of `execute`. Compressed instructions are rows of their own table that expand into these
//! operations.

use crate::shape::Shape;

/// The part of a pipeline that works on an instruction; a timing model's first question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// Integer arithmetic and logic.
    Alu,
    /// A conditional branch.
    Branch,
    /// `jal`.
    Jump,
    /// `jalr`.
    JumpRegister,
    /// A load, of either register file.
    Load,
    /// A store, of either register file.
    Store,
    /// `lr`, `sc` and the read-modify-write operations.
    Atomic,
    /// Integer multiplication.
    Multiply,
    /// Integer division and remainder.
    Divide,
    /// Floating-point addition, multiplication and their fusion.
    FloatArithmetic,
    /// Floating-point division and square root.
    FloatDivide,
    /// Floating-point moves, comparisons, conversions and sign injection.
    FloatMove,
    /// An access to a control and status register.
    Csr,
    /// `fence` and `fence.i`.
    Fence,
    /// `ecall`, `ebreak`, `mret`, `wfi`.
    System,
}

/// One row of the table.
pub(crate) struct Row {
    pub(crate) op: Op,
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) class: Class,
    /// The fixed bits of the encoding.
    pub(crate) bits: u32,
    /// Which bits are fixed.
    pub(crate) mask: u32,
}

macro_rules! operations {
    ($($op:ident $name:literal $shape:ident $class:ident $bits:literal $mask:literal;)*) => {
        /// An operation, one per mnemonic of the 32-bit encodings.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum Op {
            $(#[doc = concat!("`", $name, "`")] $op,)*
        }

        pub(crate) static ROWS: [Row; COUNT] = [
            $(Row { op: Op::$op, name: $name, shape: Shape::$shape, class: Class::$class, bits: $bits, mask: $mask },)*
        ];

        const COUNT: usize = [$(Op::$op),*].len();
        const MAJOR_OPCODES: [u32; COUNT] = [$(($bits >> 2) & 31),*];
    };
}

operations! {
    // RISC-V Unpriv §2, §4: RV64I.
    Lui     "lui"     Upper    Alu 0x0000_0037 0x0000_007f;
    Auipc   "auipc"   Upper    Alu 0x0000_0017 0x0000_007f;
    Jal     "jal"     Jump     Jump 0x0000_006f 0x0000_007f;
    Jalr    "jalr"    JumpRegister JumpRegister 0x0000_0067 0x0000_707f;
    Beq     "beq"     Branch   Branch 0x0000_0063 0x0000_707f;
    Bne     "bne"     Branch   Branch 0x0000_1063 0x0000_707f;
    Blt     "blt"     Branch   Branch 0x0000_4063 0x0000_707f;
    Bge     "bge"     Branch   Branch 0x0000_5063 0x0000_707f;
    Bltu    "bltu"    Branch   Branch 0x0000_6063 0x0000_707f;
    Bgeu    "bgeu"    Branch   Branch 0x0000_7063 0x0000_707f;
    Lb      "lb"      Load     Load 0x0000_0003 0x0000_707f;
    Lh      "lh"      Load     Load 0x0000_1003 0x0000_707f;
    Lw      "lw"      Load     Load 0x0000_2003 0x0000_707f;
    Ld      "ld"      Load     Load 0x0000_3003 0x0000_707f;
    Lbu     "lbu"     Load     Load 0x0000_4003 0x0000_707f;
    Lhu     "lhu"     Load     Load 0x0000_5003 0x0000_707f;
    Lwu     "lwu"     Load     Load 0x0000_6003 0x0000_707f;
    Sb      "sb"      Store    Store 0x0000_0023 0x0000_707f;
    Sh      "sh"      Store    Store 0x0000_1023 0x0000_707f;
    Sw      "sw"      Store    Store 0x0000_2023 0x0000_707f;
    Sd      "sd"      Store    Store 0x0000_3023 0x0000_707f;
    Addi    "addi"    Immediate Alu 0x0000_0013 0x0000_707f;
    Slti    "slti"    Immediate Alu 0x0000_2013 0x0000_707f;
    Sltiu   "sltiu"   Immediate Alu 0x0000_3013 0x0000_707f;
    Xori    "xori"    Immediate Alu 0x0000_4013 0x0000_707f;
    Ori     "ori"     Immediate Alu 0x0000_6013 0x0000_707f;
    Andi    "andi"    Immediate Alu 0x0000_7013 0x0000_707f;
    Slli    "slli"    Shift    Alu 0x0000_1013 0xfc00_707f;
    Srli    "srli"    Shift    Alu 0x0000_5013 0xfc00_707f;
    Srai    "srai"    Shift    Alu 0x4000_5013 0xfc00_707f;
    Add     "add"     Register Alu 0x0000_0033 0xfe00_707f;
    Sub     "sub"     Register Alu 0x4000_0033 0xfe00_707f;
    Sll     "sll"     Register Alu 0x0000_1033 0xfe00_707f;
    Slt     "slt"     Register Alu 0x0000_2033 0xfe00_707f;
    Sltu    "sltu"    Register Alu 0x0000_3033 0xfe00_707f;
    Xor     "xor"     Register Alu 0x0000_4033 0xfe00_707f;
    Srl     "srl"     Register Alu 0x0000_5033 0xfe00_707f;
    Sra     "sra"     Register Alu 0x4000_5033 0xfe00_707f;
    Or      "or"      Register Alu 0x0000_6033 0xfe00_707f;
    And     "and"     Register Alu 0x0000_7033 0xfe00_707f;
    Addiw   "addiw"   Immediate Alu 0x0000_001b 0x0000_707f;
    Slliw   "slliw"   Shift    Alu 0x0000_101b 0xfe00_707f;
    Srliw   "srliw"   Shift    Alu 0x0000_501b 0xfe00_707f;
    Sraiw   "sraiw"   Shift    Alu 0x4000_501b 0xfe00_707f;
    Addw    "addw"    Register Alu 0x0000_003b 0xfe00_707f;
    Subw    "subw"    Register Alu 0x4000_003b 0xfe00_707f;
    Sllw    "sllw"    Register Alu 0x0000_103b 0xfe00_707f;
    Srlw    "srlw"    Register Alu 0x0000_503b 0xfe00_707f;
    Sraw    "sraw"    Register Alu 0x4000_503b 0xfe00_707f;
    Fence   "fence"   Fence    Fence 0x0000_000f 0x0000_707f;
    FenceI  "fence.i" FenceI   Fence 0x0000_100f 0x0000_707f;
    Ecall   "ecall"   Bare     System 0x0000_0073 0xffff_ffff;
    Ebreak  "ebreak"  Bare     System 0x0010_0073 0xffff_ffff;
    // RISC-V Priv §3.3.
    Mret    "mret"    Bare     System 0x3020_0073 0xffff_ffff;
    Wfi     "wfi"     Bare     System 0x1050_0073 0xffff_ffff;
    // Zicsr.
    Csrrw   "csrrw"   Csr      Csr 0x0000_1073 0x0000_707f;
    Csrrs   "csrrs"   Csr      Csr 0x0000_2073 0x0000_707f;
    Csrrc   "csrrc"   Csr      Csr 0x0000_3073 0x0000_707f;
    Csrrwi  "csrrwi"  CsrImmediate Csr 0x0000_5073 0x0000_707f;
    Csrrsi  "csrrsi"  CsrImmediate Csr 0x0000_6073 0x0000_707f;
    Csrrci  "csrrci"  CsrImmediate Csr 0x0000_7073 0x0000_707f;
    // M.
    Mul     "mul"     Register Multiply 0x0200_0033 0xfe00_707f;
    Mulh    "mulh"    Register Multiply 0x0200_1033 0xfe00_707f;
    Mulhsu  "mulhsu"  Register Multiply 0x0200_2033 0xfe00_707f;
    Mulhu   "mulhu"   Register Multiply 0x0200_3033 0xfe00_707f;
    Div     "div"     Register Divide 0x0200_4033 0xfe00_707f;
    Divu    "divu"    Register Divide 0x0200_5033 0xfe00_707f;
    Rem     "rem"     Register Divide 0x0200_6033 0xfe00_707f;
    Remu    "remu"    Register Divide 0x0200_7033 0xfe00_707f;
    Mulw    "mulw"    Register Multiply 0x0200_003b 0xfe00_707f;
    Divw    "divw"    Register Divide 0x0200_403b 0xfe00_707f;
    Divuw   "divuw"   Register Divide 0x0200_503b 0xfe00_707f;
    Remw    "remw"    Register Divide 0x0200_603b 0xfe00_707f;
    Remuw   "remuw"   Register Divide 0x0200_703b 0xfe00_707f;
    // A.
    LrW      "lr.w"      LoadReserved Atomic 0x1000_202f 0xf9f0_707f;
    ScW      "sc.w"      Atomic Atomic 0x1800_202f 0xf800_707f;
    AmoswapW "amoswap.w" Atomic Atomic 0x0800_202f 0xf800_707f;
    AmoaddW  "amoadd.w"  Atomic Atomic 0x0000_202f 0xf800_707f;
    AmoxorW  "amoxor.w"  Atomic Atomic 0x2000_202f 0xf800_707f;
    AmoandW  "amoand.w"  Atomic Atomic 0x6000_202f 0xf800_707f;
    AmoorW   "amoor.w"   Atomic Atomic 0x4000_202f 0xf800_707f;
    AmominW  "amomin.w"  Atomic Atomic 0x8000_202f 0xf800_707f;
    AmomaxW  "amomax.w"  Atomic Atomic 0xa000_202f 0xf800_707f;
    AmominuW "amominu.w" Atomic Atomic 0xc000_202f 0xf800_707f;
    AmomaxuW "amomaxu.w" Atomic Atomic 0xe000_202f 0xf800_707f;
    LrD      "lr.d"      LoadReserved Atomic 0x1000_302f 0xf9f0_707f;
    ScD      "sc.d"      Atomic Atomic 0x1800_302f 0xf800_707f;
    AmoswapD "amoswap.d" Atomic Atomic 0x0800_302f 0xf800_707f;
    AmoaddD  "amoadd.d"  Atomic Atomic 0x0000_302f 0xf800_707f;
    AmoxorD  "amoxor.d"  Atomic Atomic 0x2000_302f 0xf800_707f;
    AmoandD  "amoand.d"  Atomic Atomic 0x6000_302f 0xf800_707f;
    AmoorD   "amoor.d"   Atomic Atomic 0x4000_302f 0xf800_707f;
    AmominD  "amomin.d"  Atomic Atomic 0x8000_302f 0xf800_707f;
    AmomaxD  "amomax.d"  Atomic Atomic 0xa000_302f 0xf800_707f;
    AmominuD "amominu.d" Atomic Atomic 0xc000_302f 0xf800_707f;
    AmomaxuD "amomaxu.d" Atomic Atomic 0xe000_302f 0xf800_707f;
    // F.
    Flw     "flw"       FloatLoad  Load 0x0000_2007 0x0000_707f;
    Fsw     "fsw"       FloatStore Store 0x0000_2027 0x0000_707f;
    FmaddS  "fmadd.s"   FloatFused FloatArithmetic 0x0000_0043 0x0600_007f;
    FmsubS  "fmsub.s"   FloatFused FloatArithmetic 0x0000_0047 0x0600_007f;
    FnmsubS "fnmsub.s"  FloatFused FloatArithmetic 0x0000_004b 0x0600_007f;
    FnmaddS "fnmadd.s"  FloatFused FloatArithmetic 0x0000_004f 0x0600_007f;
    FaddS   "fadd.s"    FloatRounded FloatArithmetic 0x0000_0053 0xfe00_007f;
    FsubS   "fsub.s"    FloatRounded FloatArithmetic 0x0800_0053 0xfe00_007f;
    FmulS   "fmul.s"    FloatRounded FloatArithmetic 0x1000_0053 0xfe00_007f;
    FdivS   "fdiv.s"    FloatRounded FloatDivide 0x1800_0053 0xfe00_007f;
    FsqrtS  "fsqrt.s"   FloatUnary FloatDivide 0x5800_0053 0xfff0_007f;
    FsgnjS  "fsgnj.s"   FloatPlain FloatMove 0x2000_0053 0xfe00_707f;
    FsgnjnS "fsgnjn.s"  FloatPlain FloatMove 0x2000_1053 0xfe00_707f;
    FsgnjxS "fsgnjx.s"  FloatPlain FloatMove 0x2000_2053 0xfe00_707f;
    FminS   "fmin.s"    FloatPlain FloatMove 0x2800_0053 0xfe00_707f;
    FmaxS   "fmax.s"    FloatPlain FloatMove 0x2800_1053 0xfe00_707f;
    FcvtWS  "fcvt.w.s"  ToIntegerRounded FloatMove 0xc000_0053 0xfff0_007f;
    FcvtWuS "fcvt.wu.s" ToIntegerRounded FloatMove 0xc010_0053 0xfff0_007f;
    FcvtLS  "fcvt.l.s"  ToIntegerRounded FloatMove 0xc020_0053 0xfff0_007f;
    FcvtLuS "fcvt.lu.s" ToIntegerRounded FloatMove 0xc030_0053 0xfff0_007f;
    FmvXW   "fmv.x.w"   ToInteger FloatMove 0xe000_0053 0xfff0_707f;
    FclassS "fclass.s"  ToInteger FloatMove 0xe000_1053 0xfff0_707f;
    FeqS    "feq.s"     Compare FloatMove 0xa000_2053 0xfe00_707f;
    FltS    "flt.s"     Compare FloatMove 0xa000_1053 0xfe00_707f;
    FleS    "fle.s"     Compare FloatMove 0xa000_0053 0xfe00_707f;
    FcvtSW  "fcvt.s.w"  FromIntegerRounded FloatMove 0xd000_0053 0xfff0_007f;
    FcvtSWu "fcvt.s.wu" FromIntegerRounded FloatMove 0xd010_0053 0xfff0_007f;
    FcvtSL  "fcvt.s.l"  FromIntegerRounded FloatMove 0xd020_0053 0xfff0_007f;
    FcvtSLu "fcvt.s.lu" FromIntegerRounded FloatMove 0xd030_0053 0xfff0_007f;
    FmvWX   "fmv.w.x"   FromInteger FloatMove 0xf000_0053 0xfff0_707f;
    // D.
    Fld     "fld"       FloatLoad  Load 0x0000_3007 0x0000_707f;
    Fsd     "fsd"       FloatStore Store 0x0000_3027 0x0000_707f;
    FmaddD  "fmadd.d"   FloatFused FloatArithmetic 0x0200_0043 0x0600_007f;
    FmsubD  "fmsub.d"   FloatFused FloatArithmetic 0x0200_0047 0x0600_007f;
    FnmsubD "fnmsub.d"  FloatFused FloatArithmetic 0x0200_004b 0x0600_007f;
    FnmaddD "fnmadd.d"  FloatFused FloatArithmetic 0x0200_004f 0x0600_007f;
    FaddD   "fadd.d"    FloatRounded FloatArithmetic 0x0200_0053 0xfe00_007f;
    FsubD   "fsub.d"    FloatRounded FloatArithmetic 0x0a00_0053 0xfe00_007f;
    FmulD   "fmul.d"    FloatRounded FloatArithmetic 0x1200_0053 0xfe00_007f;
    FdivD   "fdiv.d"    FloatRounded FloatDivide 0x1a00_0053 0xfe00_007f;
    FsqrtD  "fsqrt.d"   FloatUnary FloatDivide 0x5a00_0053 0xfff0_007f;
    FsgnjD  "fsgnj.d"   FloatPlain FloatMove 0x2200_0053 0xfe00_707f;
    FsgnjnD "fsgnjn.d"  FloatPlain FloatMove 0x2200_1053 0xfe00_707f;
    FsgnjxD "fsgnjx.d"  FloatPlain FloatMove 0x2200_2053 0xfe00_707f;
    FminD   "fmin.d"    FloatPlain FloatMove 0x2a00_0053 0xfe00_707f;
    FmaxD   "fmax.d"    FloatPlain FloatMove 0x2a00_1053 0xfe00_707f;
    FcvtSD  "fcvt.s.d"  FloatUnary FloatMove 0x4010_0053 0xfff0_007f;
    FcvtDS  "fcvt.d.s"  FloatUnary FloatMove 0x4200_0053 0xfff0_007f;
    FcvtWD  "fcvt.w.d"  ToIntegerRounded FloatMove 0xc200_0053 0xfff0_007f;
    FcvtWuD "fcvt.wu.d" ToIntegerRounded FloatMove 0xc210_0053 0xfff0_007f;
    FcvtLD  "fcvt.l.d"  ToIntegerRounded FloatMove 0xc220_0053 0xfff0_007f;
    FcvtLuD "fcvt.lu.d" ToIntegerRounded FloatMove 0xc230_0053 0xfff0_007f;
    FmvXD   "fmv.x.d"   ToInteger FloatMove 0xe200_0053 0xfff0_707f;
    FclassD "fclass.d"  ToInteger FloatMove 0xe200_1053 0xfff0_707f;
    FeqD    "feq.d"     Compare FloatMove 0xa200_2053 0xfe00_707f;
    FltD    "flt.d"     Compare FloatMove 0xa200_1053 0xfe00_707f;
    FleD    "fle.d"     Compare FloatMove 0xa200_0053 0xfe00_707f;
    FcvtDW  "fcvt.d.w"  FromIntegerRounded FloatMove 0xd200_0053 0xfff0_007f;
    FcvtDWu "fcvt.d.wu" FromIntegerRounded FloatMove 0xd210_0053 0xfff0_007f;
    FcvtDL  "fcvt.d.l"  FromIntegerRounded FloatMove 0xd220_0053 0xfff0_007f;
    FcvtDLu "fcvt.d.lu" FromIntegerRounded FloatMove 0xd230_0053 0xfff0_007f;
    FmvDX   "fmv.d.x"   FromInteger FloatMove 0xf200_0053 0xfff0_707f;
}

impl Op {
    /// Every operation, in the order of the table.
    pub fn all() -> impl Iterator<Item = Op> {
        ROWS.iter().map(|row| row.op)
    }

    /// The mnemonic, as assemblers spell it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The part of a pipeline that works on it.
    pub fn class(self) -> Class {
        self.row().class
    }

    /// How many bytes of memory it touches, if any.
    pub fn access_bytes(self) -> Option<u8> {
        use Op::*;
        match self {
            Lb | Lbu | Sb => Some(1),
            Lh | Lhu | Sh => Some(2),
            Lw | Lwu | Sw | Flw | Fsw => Some(4),
            Ld | Sd | Fld | Fsd => Some(8),
            _ if self.class() == Class::Atomic => Some(if self.row().bits & 0x1000 == 0 { 4 } else { 8 }),
            _ => None,
        }
    }

    pub(crate) fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The rows that share the major opcode of `word`, in table order.
    pub(crate) fn candidates(word: u32) -> impl Iterator<Item = &'static Row> {
        let mut next = FIRST[((word >> 2) & 31) as usize];
        std::iter::from_fn(move || {
            let row = ROWS.get(usize::from(next))?;
            next = NEXT[usize::from(next)];
            Some(row)
        })
    }
}

const END: u8 = u8::MAX;

/// The first row of each major opcode; [`NEXT`] chains the others.
static FIRST: [u8; 32] = {
    let mut first = [END; 32];
    let mut row = COUNT;
    while row > 0 {
        row -= 1;
        first[MAJOR_OPCODES[row] as usize] = row as u8;
    }
    first
};

static NEXT: [u8; COUNT] = {
    let mut next = [END; COUNT];
    let mut last = [END; 32];
    let mut row = COUNT;
    while row > 0 {
        row -= 1;
        let opcode = MAJOR_OPCODES[row] as usize;
        next[row] = last[opcode];
        last[opcode] = row as u8;
    }
    next
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_bits_lie_under_their_mask() {
        for row in &ROWS {
            assert_eq!(row.bits & !row.mask, 0, "{}", row.name);
            assert_eq!(row.bits & 3, 3, "{}", row.name);
        }
    }

    #[test]
    fn no_two_rows_claim_the_same_word() {
        for (index, a) in ROWS.iter().enumerate() {
            for b in &ROWS[index + 1..] {
                assert_ne!(a.bits & b.mask, b.bits & a.mask, "{} and {}", a.name, b.name);
            }
        }
    }

    #[test]
    fn every_row_is_among_the_candidates_of_its_own_bits() {
        assert!(COUNT < usize::from(END));
        for row in &ROWS {
            assert!(Op::candidates(row.bits).any(|candidate| candidate.op == row.op), "{}", row.name);
        }
    }
}
