//! The places of an instruction's operands: immediates as lists of bit slices, registers by field.
//!
//! Everything here is data that is read in both directions, so that decoding and encoding cannot disagree.

use crate::register::Bank;

/// `count` bits that lie at `word` in the instruction and at `value` in the immediate.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    word: u8,
    value: u8,
    count: u8,
}

/// A shorthand that keeps the tables readable.
pub(crate) const fn at(word: u8, value: u8, count: u8) -> Slice {
    Slice { word, value, count }
}

/// An immediate: its slices, and the number of bits from which it is sign-extended (none if it is unsigned).
pub(crate) struct Immediate {
    slices: &'static [Slice],
    sign_bits: Option<u32>,
}

impl Immediate {
    pub(crate) const fn signed(bits: u32, slices: &'static [Slice]) -> Immediate {
        Immediate { slices, sign_bits: Some(bits) }
    }

    pub(crate) const fn unsigned(slices: &'static [Slice]) -> Immediate {
        Immediate { slices, sign_bits: None }
    }

    /// The immediate in `word`.
    pub(crate) fn gather(&self, word: u32) -> i32 {
        let value = self.slices.iter().fold(0, |value, slice| {
            value | (((word >> slice.word) & ((1 << slice.count) - 1)) << slice.value)
        });
        match self.sign_bits {
            Some(bits) => ((value << (32 - bits)) as i32) >> (32 - bits),
            None => value as i32,
        }
    }

    /// The bits of a word with the immediate `value`, or nothing if it does not fit.
    pub(crate) fn scatter(&self, value: i32) -> Option<u32> {
        let word = self.slices.iter().fold(0, |word, slice| {
            word | (((value as u32 >> slice.value) & ((1 << slice.count) - 1)) << slice.word)
        });
        (self.gather(word) == value).then_some(word)
    }
}

/// The operand forms of the 32-bit encodings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// `op rd, rs1, rs2`
    Register,
    /// `op rd, rs1, immediate`
    Immediate,
    /// `op rd, rs1, amount`
    Shift,
    /// `op rd, offset(rs1)`
    Load,
    /// `op rs2, offset(rs1)`
    Store,
    /// `op rd, offset(rs1)`
    JumpRegister,
    /// `op rs1, rs2, target`
    Branch,
    /// `op rd, immediate[31:12]`
    Upper,
    /// `op rd, target`
    Jump,
    /// `op predecessors, successors`
    Fence,
    /// `fence.i`, whose unused fields are ignored
    FenceI,
    /// No operands
    Bare,
    /// `op rd, csr, rs1`
    Csr,
    /// `op rd, csr, immediate`
    CsrImmediate,
    /// `op rd, (rs1)`
    LoadReserved,
    /// `op rd, rs2, (rs1)`
    Atomic,
    /// `op fd, offset(rs1)`
    FloatLoad,
    /// `op fs2, offset(rs1)`
    FloatStore,
    /// `op fd, fs1, fs2, fs3, rounding`
    FloatFused,
    /// `op fd, fs1, fs2, rounding`
    FloatRounded,
    /// `op fd, fs1, rounding`
    FloatUnary,
    /// `op fd, fs1, fs2`
    FloatPlain,
    /// `op rd, fs1, fs2`
    Compare,
    /// `op rd, fs1`
    ToInteger,
    /// `op rd, fs1, rounding`
    ToIntegerRounded,
    /// `op fd, rs1`
    FromInteger,
    /// `op fd, rs1, rounding`
    FromIntegerRounded,
}

/// The meaning of the bits of [`crate::Instruction::mode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// There is none.
    None,
    /// A rounding mode in bits 14..12.
    Rounding,
    /// Acquire and release in bits 26 and 25.
    Ordering,
}

/// The operands of a shape: the register file of each field that is used, the immediate, the mode.
pub(crate) struct Operands {
    pub(crate) rd: Option<Bank>,
    pub(crate) rs1: Option<Bank>,
    pub(crate) rs2: Option<Bank>,
    pub(crate) rs3: Option<Bank>,
    pub(crate) immediate: Option<&'static Immediate>,
    pub(crate) mode: Mode,
    /// Fields that hardware ignores are kept, so that every word re-encodes to itself.
    pub(crate) keeps_unused: bool,
}

static I: Immediate = Immediate::signed(12, &[at(20, 0, 12)]);
static S: Immediate = Immediate::signed(12, &[at(7, 0, 5), at(25, 5, 7)]);
static B: Immediate = Immediate::signed(13, &[at(8, 1, 4), at(25, 5, 6), at(7, 11, 1), at(31, 12, 1)]);
static U: Immediate = Immediate::signed(32, &[at(12, 12, 20)]);
static J: Immediate = Immediate::signed(21, &[at(21, 1, 10), at(20, 11, 1), at(12, 12, 8), at(31, 20, 1)]);
static AMOUNT: Immediate = Immediate::unsigned(&[at(20, 0, 6)]);
static HIGH_12: Immediate = Immediate::unsigned(&[at(20, 0, 12)]);

impl Shape {
    pub(crate) fn operands(self) -> &'static Operands {
        use Bank::{F, X};
        macro_rules! operands {
            ($rd:expr, $rs1:expr, $rs2:expr, $rs3:expr, $immediate:expr, $mode:ident $(, $keeps:literal)?) => {{
                static OPERANDS: Operands = Operands {
                    rd: $rd, rs1: $rs1, rs2: $rs2, rs3: $rs3, immediate: $immediate, mode: Mode::$mode,
                    keeps_unused: false $(|| $keeps)?,
                };
                &OPERANDS
            }};
        }
        match self {
            Shape::Register => operands!(Some(X), Some(X), Some(X), None, None, None),
            Shape::Immediate | Shape::Load | Shape::JumpRegister => {
                operands!(Some(X), Some(X), None, None, Some(&I), None)
            }
            Shape::Shift => operands!(Some(X), Some(X), None, None, Some(&AMOUNT), None),
            Shape::Store => operands!(None, Some(X), Some(X), None, Some(&S), None),
            Shape::Branch => operands!(None, Some(X), Some(X), None, Some(&B), None),
            Shape::Upper => operands!(Some(X), None, None, None, Some(&U), None),
            Shape::Jump => operands!(Some(X), None, None, None, Some(&J), None),
            Shape::Fence | Shape::FenceI => operands!(None, None, None, None, Some(&HIGH_12), None, true),
            Shape::Bare => operands!(None, None, None, None, None, None),
            Shape::Csr => operands!(Some(X), Some(X), None, None, Some(&HIGH_12), None),
            Shape::CsrImmediate => operands!(Some(X), None, None, None, Some(&HIGH_12), None, true),
            Shape::LoadReserved => operands!(Some(X), Some(X), None, None, None, Ordering),
            Shape::Atomic => operands!(Some(X), Some(X), Some(X), None, None, Ordering),
            Shape::FloatLoad => operands!(Some(F), Some(X), None, None, Some(&I), None),
            Shape::FloatStore => operands!(None, Some(X), Some(F), None, Some(&S), None),
            Shape::FloatFused => operands!(Some(F), Some(F), Some(F), Some(F), None, Rounding),
            Shape::FloatRounded => operands!(Some(F), Some(F), Some(F), None, None, Rounding),
            Shape::FloatUnary => operands!(Some(F), Some(F), None, None, None, Rounding),
            Shape::FloatPlain => operands!(Some(F), Some(F), Some(F), None, None, None),
            Shape::Compare => operands!(Some(X), Some(F), Some(F), None, None, None),
            Shape::ToInteger => operands!(Some(X), Some(F), None, None, None, None),
            Shape::ToIntegerRounded => operands!(Some(X), Some(F), None, None, None, Rounding),
            Shape::FromInteger => operands!(Some(F), Some(X), None, None, None, None),
            Shape::FromIntegerRounded => operands!(Some(F), Some(X), None, None, None, Rounding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_immediate_is_scattered_and_gathered() {
        assert_eq!(B.gather(B.scatter(-4096).unwrap()), -4096);
        assert_eq!(J.gather(0xffdf_f06f), -4);
        assert_eq!(S.gather(0xfe11_3c23), -8);
        assert_eq!(U.gather(0x8000_00b7), i32::MIN);
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused() {
        assert_eq!(I.scatter(2048), None);
        assert_eq!(B.scatter(3), None);
        assert_eq!(U.scatter(1), None);
        assert_eq!(AMOUNT.scatter(64), None);
    }
}
