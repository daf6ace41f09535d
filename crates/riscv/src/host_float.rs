//! The short way through the processor's own floating-point unit, where it is provably the same.
//!
//! A processor that follows IEEE 754 gives the same bits when rounding to nearest. Only the flags cannot be
//! read, but once `inexact` is set, as it is in nearly every running program, an operation whose result is a
//! normal number can raise no new flag. All other operations use the long way.

use rustc_apfloat::Round;

use crate::arithmetic::{Arithmetic, flag};

/// A floating-point type of the processor.
pub(crate) trait Host: Copy + PartialOrd {
    fn from_low_bits(bits: u64) -> Self;
    fn low_bits(self) -> u64;
    fn calculate(operation: Arithmetic, operands: [Self; 3]) -> Self;
    /// Neither zero, subnormal, infinite, a NaN, nor the smallest normal number, which may hide an underflow.
    fn is_plain(self) -> bool;
}

macro_rules! host {
    ($float:ty, $bits:ty) => {
        impl Host for $float {
            fn from_low_bits(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }

            fn low_bits(self) -> u64 {
                self.to_bits().into()
            }

            fn calculate(operation: Arithmetic, [a, b, c]: [Self; 3]) -> Self {
                match operation {
                    Arithmetic::Add => a + b,
                    Arithmetic::Sub => a - b,
                    Arithmetic::Mul => a * b,
                    Arithmetic::Div => a / b,
                    Arithmetic::Fused => a.mul_add(b, c),
                }
            }

            fn is_plain(self) -> bool {
                self.abs() > Self::MIN_POSITIVE && self.abs() <= Self::MAX
            }
        }
    };
}

host!(f32, u32);
host!(f64, u64);

/// The result, if the processor's is provably the same.
#[inline]
pub(crate) fn host_arithmetic<H: Host>(
    operation: Arithmetic,
    operands: [u64; 3],
    round: Round,
    flags: u8,
) -> Option<u64> {
    if flags & flag::INEXACT == 0 || round != Round::NearestTiesToEven {
        return None;
    }
    let result = H::calculate(operation, operands.map(H::from_low_bits));
    result.is_plain().then(|| result.low_bits())
}
