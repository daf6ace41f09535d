//! How long the units outside the pipeline take, as a function of the operands.

use highwire_riscv::{Instruction, Op};

use crate::decode::Needs;

/// Bits that the multiplier works off per cycle.
const UNROLL: u32 = 8;

/// Cycles from the request, in the execute stage, to the result of a multiplication or division.
pub(crate) fn integer_unit_cycles(op: Op, a: u64, b: u64) -> u64 {
    match op {
        Op::Mul => 1 + steps(a, 1, 8),
        Op::Mulh | Op::Mulhu | Op::Mulhsu => 1 + 8,
        Op::Mulw => 1 + steps(u64::from(a as u32), 0, 4),
        Op::Div => division(a, b, true, false),
        Op::Divu => division(a, b, false, false),
        Op::Rem => division(a, b, true, true),
        Op::Remu => division(a, b, false, true),
        Op::Divw => division(a as i32 as u64, b as i32 as u64, true, false),
        Op::Divuw => division(a as u32 as u64, b as u32 as u64, false, false),
        Op::Remw => division(a as i32 as u64, b as i32 as u64, true, true),
        Op::Remuw => division(a as u32 as u64, b as u32 as u64, false, true),
        _ => 1,
    }
}

/// The multiplier stops when nothing is left of `multiplier`, but not before step `first`.
fn steps(multiplier: u64, first: u32, all: u32) -> u64 {
    let left = (64 - multiplier.leading_zeros()).div_ceil(UNROLL).max(first);
    u64::from((left + 1).min(all))
}

/// One bit per cycle from the first on that the quotient can have; negative operands and results take a cycle each.
fn division(a: u64, b: u64, is_signed: bool, is_remainder: bool) -> u64 {
    let (negative_a, negative_b) = (is_signed && a >> 63 != 0, is_signed && b >> 63 != 0);
    let [dividend, divisor] =
        [(a, negative_a), (b, negative_b)].map(|(v, negative)| if negative { v.wrapping_neg() } else { v });
    let top = |v: u64| i64::from(v.checked_ilog2().unwrap_or(0));
    let skipped = 63 & !(top(dividend) - top(divisor));
    let bits = if divisor != 0 && skipped >= 1 { 1 + 64 - skipped } else { 64 };
    let prepares = u64::from(negative_a || negative_b);
    let by_zero = divisor == 0;
    let negates = u64::from(if is_remainder { negative_a } else { negative_a != negative_b && !by_zero });
    1 + prepares + bits as u64 + 1 + negates
}

/// How a floating-point instruction leaves its pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FloatLatency {
    /// It writes no register, or an integer register like any instruction.
    None,
    /// The result is written so many cycles after the memory stage's beginning.
    Pipe(u64),
    /// A unit of its own computes for so many cycles; for none if there is nothing to compute.
    Unit(u64),
}

/// The latency of `instruction`, which needs `needs`, with the operands `a` and `b`.
#[inline]
pub(crate) fn float_latency(needs: &Needs, instruction: &Instruction, a: u64, b: u64) -> FloatLatency {
    match needs.float_cycles() {
        Some(0) => FloatLatency::None,
        Some(cycles) => FloatLatency::Pipe(cycles.into()),
        // Special operands need no division: the result is there at write-back, although the instruction
        // passes through the divider, too.
        None => FloatLatency::Unit(divide_cycles(instruction.op, a, b).unwrap_or(0)),
    }
}

/// Cycles from one division or root to the next that waits for it: a bit of the result per cycle. `None` for
/// zeros, infinities and NaNs.
fn divide_cycles(op: Op, a: u64, b: u64) -> Option<u64> {
    let is_double = matches!(op, Op::FdivD | Op::FsqrtD);
    let is_root = matches!(op, Op::FsqrtS | Op::FsqrtD);
    let [a, b] = [a, b].map(|bits| Parts::of(bits, is_double));
    let others = if is_root { a.is_negative } else { b.is_special };
    if a.is_special || others {
        return None;
    }
    let precision = if is_double { 53 } else { 24 };
    Some(
        precision
            + 3
            + if is_root { u64::from(a.exponent & 1 == 0) } else { 1 + u64::from(a.fraction < b.fraction) },
    )
}

/// A number taken apart; a subnormal one as if it were normalised.
struct Parts {
    is_negative: bool,
    exponent: i64,
    fraction: u64,
    /// Zero, infinite or NaN; a single-precision value that is not NaN-boxed counts as NaN.
    is_special: bool,
}

impl Parts {
    fn of(bits: u64, is_double: bool) -> Parts {
        let (fraction_bits, exponent_bits) = if is_double { (52, 11) } else { (23, 8) };
        let highest = (1u64 << exponent_bits) - 1;
        let mask = (1u64 << fraction_bits) - 1;
        let field = bits >> fraction_bits & highest;
        let fraction = bits & mask;
        let boxed = is_double || bits >> 32 == 0xffff_ffff;
        let is_special = !boxed || field == highest || (field == 0 && fraction == 0);
        let shift = if field == 0 { fraction.leading_zeros() as i64 - 63 + fraction_bits } else { 0 };
        Parts {
            is_negative: bits >> (fraction_bits + exponent_bits) & 1 != 0,
            exponent: field.max(1) as i64 - shift - (highest >> 1) as i64,
            fraction: fraction << shift & mask,
            is_special,
        }
    }
}
