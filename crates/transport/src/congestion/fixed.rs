//! Rates and fractions as integers.

use std::fmt;

/// A sending rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// `n` bits per second.
    ///
    /// # Panics
    /// If `n` is zero: a rate is divided by.
    pub const fn from_bits_per_second(n: u64) -> Rate {
        assert!(n > 0, "a rate of zero never sends");
        Rate(n)
    }

    /// `n` megabits (10^6) per second.
    pub const fn from_mbps(n: u64) -> Rate {
        Rate::from_bits_per_second(n * 1_000_000)
    }

    /// `n` gigabits (10^9) per second.
    pub const fn from_gbps(n: u64) -> Rate {
        Rate::from_bits_per_second(n * 1_000_000_000)
    }

    /// The rate in bits per second, at least 1.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// The middle of two rates, rounded up so that repeating it reaches the higher one.
    #[must_use]
    pub(super) const fn midpoint_with_higher(self, higher: Rate) -> Rate {
        Rate((self.0 + higher.0).div_ceil(2))
    }

    /// `self + step * times`, at most `max`.
    #[must_use]
    pub fn raised(self, step: Rate, times: u64, max: Rate) -> Rate {
        Rate(self.0.saturating_add(step.0.saturating_mul(times)).min(max.0))
    }

    /// `self * (1 - fraction)`, rounded down, at least `min`.
    #[must_use]
    pub fn reduced_by(self, fraction: Fraction, min: Rate) -> Rate {
        Rate(fraction.complement().of(self.0).max(min.0))
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bit/s", self.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} Gb/s", self.0 as f64 / 1e9)
    }
}

/// A number in `0..=1` in units of 2^-30.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(u32);

impl Fraction {
    /// Zero.
    pub const ZERO: Fraction = Fraction(0);
    /// One.
    pub const ONE: Fraction = Fraction(1 << 30);

    /// `numerator / denominator`, rounded down.
    ///
    /// # Panics
    /// If it exceeds one, or the denominator is zero.
    pub const fn new(numerator: u32, denominator: u32) -> Fraction {
        assert!(numerator <= denominator && denominator > 0, "not a fraction");
        Fraction((((numerator as u64) << 30) / denominator as u64) as u32)
    }

    /// `numerator / denominator`, rounded down, and one where it exceeds that.
    pub const fn ratio(numerator: u64, denominator: u64) -> Fraction {
        if numerator >= denominator {
            return Fraction::ONE;
        }
        Fraction((((numerator as u128) << 30) / denominator as u128) as u32)
    }

    /// The numerator over 2^30.
    pub const fn numerator(self) -> u32 {
        self.0
    }

    /// `1 - self`.
    #[must_use]
    pub const fn complement(self) -> Fraction {
        Fraction(Fraction::ONE.0 - self.0)
    }

    /// Half of it, rounded down.
    #[must_use]
    pub const fn halved(self) -> Fraction {
        Fraction(self.0 / 2)
    }

    /// The product, rounded down.
    #[must_use]
    pub const fn times(self, other: Fraction) -> Fraction {
        Fraction(((self.0 as u64 * other.0 as u64) >> 30) as u32)
    }

    /// The sum, at most one.
    #[must_use]
    pub const fn plus(self, other: Fraction) -> Fraction {
        let sum = self.0 + other.0;
        Fraction(if sum > Fraction::ONE.0 { Fraction::ONE.0 } else { sum })
    }

    /// `old` and `new` mixed, with this weight for the new one; rounded down.
    pub(super) const fn blend(self, old: i64, new: i64) -> i64 {
        ((self.complement().0 as i128 * old as i128 + self.0 as i128 * new as i128) >> 30) as i64
    }

    /// `self` to the power of `n`, by repeated squaring.
    #[must_use]
    pub const fn power(self, n: u64) -> Fraction {
        let (mut result, mut square, mut left) = (Fraction::ONE, self, n);
        while left > 0 {
            if left & 1 == 1 {
                result = result.times(square);
            }
            square = square.times(square);
            left >>= 1;
        }
        result
    }

    /// This part of `whole`, rounded down.
    pub const fn of(self, whole: u64) -> u64 {
        ((whole as u128 * self.0 as u128) >> 30) as u64
    }
}

impl fmt::Debug for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", f64::from(self.0) / f64::from(Fraction::ONE.0))
    }
}

/// A part of the link's rate, for steps that scale with it.
pub(super) const fn share(line_rate: Rate, denominator: u64) -> Rate {
    let step = line_rate.bits_per_second() / denominator;
    Rate::from_bits_per_second(if step == 0 { 1 } else { step })
}

/// 100 Mb/s, or the whole of a slower link.
pub(super) const fn min_rate(line_rate: Rate) -> Rate {
    let floor = Rate::from_mbps(100);
    if line_rate.bits_per_second() < floor.bits_per_second() { line_rate } else { floor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_round_down_and_stay_in_range() {
        assert_eq!(Fraction::new(1, 256).numerator(), 1 << 22);
        assert_eq!(Fraction::new(1, 2).times(Fraction::new(1, 2)), Fraction::new(1, 4));
        assert_eq!(Fraction::ONE.plus(Fraction::ONE), Fraction::ONE);
        assert_eq!(Fraction::new(1, 2).power(10), Fraction::new(1, 1024));
        assert_eq!(Fraction::new(255, 256).power(0), Fraction::ONE);
        assert_eq!(Fraction::new(255, 256).power(u64::MAX), Fraction::ZERO);
        assert_eq!(Fraction::new(3, 4).of(u64::MAX), (u128::from(u64::MAX) * 3 / 4) as u64);
    }

    #[test]
    fn repeated_midpoints_reach_the_target() {
        let target = Rate::from_gbps(40);
        let mut rate = Rate::from_mbps(100);
        for _ in 0..40 {
            rate = rate.midpoint_with_higher(target);
        }
        assert_eq!(rate, target);
    }
}
