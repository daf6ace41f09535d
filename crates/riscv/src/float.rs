//! Floating-point operations on bits, with RISC-V's rounding modes, flags and NaNs (RISC-V Unpriv §20, §21).
//!
//! The arithmetic is `rustc_apfloat`'s. This module decides the cases that it leaves open: NaNs become the
//! canonical one, underflow and overflow are judged after rounding, square roots, saturating conversions, and
//! the order of minimum and maximum. Values are the low bits of a `u64`; the caller unboxes single-precision
//! ones.

use rustc_apfloat::ieee::{Double, IeeeFloat, Semantics, Single};
use rustc_apfloat::{Float, FloatConvert, Round, Status, StatusAnd};

use crate::arithmetic::{Arithmetic, flag};
use crate::host_float::{Host, host_arithmetic};

/// A binary format, single or double precision.
pub(crate) trait Format {
    /// The library's description of it.
    type Semantics: Semantics;
    /// The same precision with a larger exponent, in which nothing of this format is ever tiny.
    type Wide: Semantics;
    /// The processor's own type.
    type Host: Host;
    const BITS: u32;
    const FRACTION_BITS: u32;
    const CANONICAL_NAN: u64;
}

/// Single precision.
pub(crate) struct F32;
/// Double precision.
pub(crate) struct F64;
pub(crate) struct WideSingle;
pub(crate) struct WideDouble;

impl Semantics for WideSingle {
    const BITS: usize = 1 + 12 + 23;
    const EXP_BITS: usize = 12;
}

impl Semantics for WideDouble {
    const BITS: usize = 1 + 15 + 52;
    const EXP_BITS: usize = 15;
}

impl Format for F32 {
    type Semantics = rustc_apfloat::ieee::SingleS;
    type Wide = WideSingle;
    type Host = f32;
    const BITS: u32 = 32;
    const FRACTION_BITS: u32 = 23;
    const CANONICAL_NAN: u64 = 0x7fc0_0000;
}

impl Format for F64 {
    type Semantics = rustc_apfloat::ieee::DoubleS;
    type Wide = WideDouble;
    type Host = f64;
    const BITS: u32 = 64;
    const FRACTION_BITS: u32 = 52;
    const CANONICAL_NAN: u64 = 0x7ff8_0000_0000_0000;
}

/// The rounding mode that the three bits of `frm` or of an instruction name; the caller resolves the dynamic one.
pub(crate) fn rounding(mode: u8) -> Option<Round> {
    Some(match mode {
        0 => Round::NearestTiesToEven,
        1 => Round::TowardZero,
        2 => Round::TowardNegative,
        3 => Round::TowardPositive,
        4 => Round::NearestTiesToAway,
        _ => return None,
    })
}

const fn sign<F: Format>() -> u64 {
    1 << (F::BITS - 1)
}

const fn infinity<F: Format>() -> u64 {
    sign::<F>() - (1 << F::FRACTION_BITS)
}

pub(crate) fn is_nan<F: Format>(bits: u64) -> bool {
    bits & !sign::<F>() > infinity::<F>()
}

fn is_signaling<F: Format>(bits: u64) -> bool {
    is_nan::<F>(bits) && bits >> (F::FRACTION_BITS - 1) & 1 == 0
}

fn is_zero<F: Format>(bits: u64) -> bool {
    bits & !sign::<F>() == 0
}

fn raised(status: Status) -> u8 {
    let pairs = [
        (Status::INEXACT, flag::INEXACT),
        (Status::UNDERFLOW, flag::UNDERFLOW),
        (Status::OVERFLOW, flag::OVERFLOW),
        (Status::DIV_BY_ZERO, flag::DIVIDE_BY_ZERO),
        (Status::INVALID_OP, flag::INVALID),
    ];
    pairs.iter().filter(|(status_bit, _)| status.contains(*status_bit)).fold(0, |flags, (_, bit)| flags | bit)
}

fn load<F: Format>(bits: u64) -> IeeeFloat<F::Semantics> {
    IeeeFloat::from_bits(bits.into())
}

/// The bits of a result; a NaN becomes the canonical one.
fn finish<F: Format>(result: StatusAnd<IeeeFloat<F::Semantics>>, flags: &mut u8) -> u64 {
    *flags |= raised(result.status);
    if result.value.is_nan() { F::CANONICAL_NAN } else { result.value.to_bits() as u64 }
}

fn apply<S: Semantics>(
    operation: Arithmetic,
    [a, b, c]: [IeeeFloat<S>; 3],
    round: Round,
) -> StatusAnd<IeeeFloat<S>> {
    match operation {
        Arithmetic::Add => a.add_r(b, round),
        Arithmetic::Sub => a.sub_r(b, round),
        Arithmetic::Mul => a.mul_r(b, round),
        Arithmetic::Div => a.div_r(b, round),
        Arithmetic::Fused => a.mul_add_r(b, c, round),
    }
}

/// `a op b`, or `a * b + c`; other operations ignore `c`.
pub(crate) fn arithmetic<F: Format>(
    operation: Arithmetic,
    [a, b, c]: [u64; 3],
    round: Round,
    flags: &mut u8,
) -> u64 {
    if let Some(result) = host_arithmetic::<F::Host>(operation, [a, b, c], round, *flags) {
        return result;
    }
    let c = if operation == Arithmetic::Fused { c } else { 0 };
    let operands = [a, b, c];
    if operands.iter().any(|&bits| is_nan::<F>(bits)) {
        // RISC-V Unpriv §20.6: infinity times zero is invalid even if a quiet NaN is added.
        let lost_product = operation == Arithmetic::Fused && is_infinity_times_zero::<F>(a, b);
        if lost_product || operands.iter().any(|&bits| is_signaling::<F>(bits)) {
            *flags |= flag::INVALID;
        }
        return F::CANONICAL_NAN;
    }
    let mut result = apply(operation, operands.map(load::<F>), round);
    if is_on_limit(&result) {
        let wide =
            apply(operation, operands.map(|bits| widen::<F::Semantics, F::Wide>(load::<F>(bits))), round);
        result.status |= beyond_limits::<F::Semantics, F::Wide>(wide.value);
    }
    finish::<F>(result, flags)
}

fn is_infinity_times_zero<F: Format>(a: u64, b: u64) -> bool {
    let magnitudes = [a & !sign::<F>(), b & !sign::<F>()];
    magnitudes == [infinity::<F>(), 0] || magnitudes == [0, infinity::<F>()]
}

fn widen<S: Semantics, W: Semantics>(value: IeeeFloat<S>) -> IeeeFloat<W> {
    value.convert(&mut false).value
}

/// Whether a result lies, inexactly, on a limit of its format: the smallest normal or the largest finite number.
///
/// There the library's flags are about the number in this format: an underflow if it is subnormal, an
/// overflow if it is infinite. IEEE 754 asks about the number rounded with an unlimited exponent, which can
/// lie beyond the limit.
fn is_on_limit<S: Semantics>(result: &StatusAnd<IeeeFloat<S>>) -> bool {
    result.status.contains(Status::INEXACT)
        && (result.value.is_smallest_normalized() || result.value.is_largest())
}

/// The flags that the result `wide`, of the same precision with a larger exponent, implies for the format
/// `S`.
fn beyond_limits<S: Semantics, W: Semantics>(wide: IeeeFloat<W>) -> Status {
    let smallest = widen::<S, W>(IeeeFloat::<S>::smallest_normalized());
    let largest = widen::<S, W>(IeeeFloat::<S>::largest());
    match wide.abs() {
        size if size < smallest => Status::UNDERFLOW,
        size if size > largest => Status::OVERFLOW,
        _ => Status::OK,
    }
}

/// The square root.
pub(crate) fn square_root<F: Format>(a: u64, round: Round, flags: &mut u8) -> u64 {
    if is_nan::<F>(a) || (a & sign::<F>() != 0 && !is_zero::<F>(a)) {
        if !is_nan::<F>(a) || is_signaling::<F>(a) {
            *flags |= flag::INVALID;
        }
        return F::CANONICAL_NAN;
    }
    if is_zero::<F>(a) || a == infinity::<F>() {
        return a;
    }
    // a = significand * 2^exponent with an even exponent and a significand of at least 2 * (precision + 2) bits, so that
    // its integer root has the precision and two bits more, and the remainder is nothing but a sticky bit.
    let field = a >> F::FRACTION_BITS;
    let fraction = a & ((1 << F::FRACTION_BITS) - 1);
    let hidden = u64::from(field != 0) << F::FRACTION_BITS;
    let bias = (1 << (F::BITS - F::FRACTION_BITS - 2)) - 1;
    let exponent = field.max(1) as i32 - bias - F::FRACTION_BITS as i32;
    let mut shift = (fraction | hidden).leading_zeros() as i32 + 56;
    shift -= (exponent - shift) & 1;
    let significand = u128::from(fraction | hidden) << shift;
    let root = significand.isqrt();
    let sticky = u128::from(root * root != significand);
    let rounded = IeeeFloat::<F::Semantics>::from_u128_r(root << 1 | sticky, round);
    // The result is nowhere near the limits of the format, so this scaling is exact.
    let scaled = rounded.map(|value| value.scalbn((exponent - shift) / 2 - 1));
    finish::<F>(scaled, flags)
}

/// Single to double precision; always exact.
pub(crate) fn single_to_double(a: u64, flags: &mut u8) -> u64 {
    if is_nan::<F32>(a) {
        *flags |= if is_signaling::<F32>(a) { flag::INVALID } else { 0 };
        return F64::CANONICAL_NAN;
    }
    let converted: StatusAnd<Double> = load::<F32>(a).convert(&mut false);
    converted.value.to_bits() as u64
}

/// Double to single precision.
pub(crate) fn double_to_single(a: u64, round: Round, flags: &mut u8) -> u64 {
    if is_nan::<F64>(a) {
        *flags |= if is_signaling::<F64>(a) { flag::INVALID } else { 0 };
        return F32::CANONICAL_NAN;
    }
    let mut converted: StatusAnd<Single> = load::<F64>(a).convert_r(round, &mut false);
    if is_on_limit(&converted) {
        let wide: StatusAnd<IeeeFloat<WideSingle>> = load::<F64>(a).convert_r(round, &mut false);
        converted.status |= beyond_limits::<<F32 as Format>::Semantics, WideSingle>(wide.value);
    }
    finish::<F32>(converted, flags)
}

/// An integer to floating point.
pub(crate) fn from_integer<F: Format>(value: i128, round: Round, flags: &mut u8) -> u64 {
    finish::<F>(IeeeFloat::from_i128_r(value, round), flags)
}

/// Floating point to an integer between `low` and `high`; larger values saturate, and a NaN counts as large.
pub(crate) fn to_integer<F: Format>(a: u64, low: i128, high: i128, round: Round, flags: &mut u8) -> i128 {
    let limit = if a & sign::<F>() == 0 || is_nan::<F>(a) { high } else { low };
    let converted = load::<F>(a).to_i128_r(128, round, &mut false);
    let in_range = (low..=high).contains(&converted.value);
    if is_nan::<F>(a) || converted.status.contains(Status::INVALID_OP) || !in_range {
        *flags |= flag::INVALID;
        return limit;
    }
    *flags |= raised(converted.status);
    converted.value
}

/// Orders finite and infinite numbers as integers: negative zero just below positive zero.
fn order<F: Format>(bits: u64) -> i64 {
    let magnitude = (bits & !sign::<F>()) as i64;
    if bits & sign::<F>() == 0 { magnitude } else { -1 - magnitude }
}

/// `a == b`; only a signaling NaN is invalid.
pub(crate) fn equal<F: Format>(a: u64, b: u64, flags: &mut u8) -> bool {
    if is_nan::<F>(a) || is_nan::<F>(b) {
        *flags |= if is_signaling::<F>(a) || is_signaling::<F>(b) { flag::INVALID } else { 0 };
        return false;
    }
    a == b || (is_zero::<F>(a) && is_zero::<F>(b))
}

/// `a < b`, or `a <= b`; any NaN is invalid.
pub(crate) fn less<F: Format>(a: u64, b: u64, or_equal: bool, flags: &mut u8) -> bool {
    if is_nan::<F>(a) || is_nan::<F>(b) {
        *flags |= flag::INVALID;
        return false;
    }
    let same = a == b || (is_zero::<F>(a) && is_zero::<F>(b));
    if same { or_equal } else { order::<F>(a) < order::<F>(b) }
}

/// The lesser of two numbers, or the greater: of a number and a NaN, the number.
pub(crate) fn extreme<F: Format>(a: u64, b: u64, greater: bool, flags: &mut u8) -> u64 {
    *flags |= if is_signaling::<F>(a) || is_signaling::<F>(b) { flag::INVALID } else { 0 };
    match (is_nan::<F>(a), is_nan::<F>(b)) {
        (true, true) => F::CANONICAL_NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) if (order::<F>(a) < order::<F>(b)) == greater => b,
        (false, false) => a,
    }
}

/// The class of a value, one of ten, as one bit (RISC-V Unpriv §20.9).
pub(crate) fn classify<F: Format>(a: u64) -> u64 {
    let negative = a & sign::<F>() != 0;
    let magnitude = a & !sign::<F>();
    let bit = match magnitude {
        0 => [4, 3],
        _ if is_signaling::<F>(a) => [8, 8],
        _ if magnitude > infinity::<F>() => [9, 9],
        _ if magnitude == infinity::<F>() => [7, 0],
        _ if magnitude >> F::FRACTION_BITS == 0 => [5, 2],
        _ => [6, 1],
    };
    1 << bit[usize::from(negative)]
}
