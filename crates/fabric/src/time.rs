//! Virtual time in integer picoseconds, and the rate of a link.
//!
//! A byte at 40 Gb/s lasts 200 ps and at 800 Gb/s 10 ps, so picoseconds keep the usual rates exact; 2^64 of them are
//! 213 days. Protocol code counts nanoseconds ([`Instant`]): [`Time::instant`] rounds down, so a protocol never believes
//! that it is later than it is, and [`Time::from_instant`] gives back the first picosecond at which it is that late.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

use highwire_stdx::{Duration, Instant};

/// A point in virtual time: picoseconds since the start of the run.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A span of virtual time in picoseconds.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than every event: the deadline of a host that waits for none.
    pub const NEVER: Time = Time(u64::MAX);

    /// The point `ps` picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Time {
        Time(ps)
    }

    /// The point `ns` nanoseconds after the start.
    pub const fn from_ns(ns: u64) -> Time {
        Time(ns.saturating_mul(1_000))
    }

    /// The point `us` microseconds after the start.
    pub const fn from_us(us: u64) -> Time {
        Time(us.saturating_mul(1_000_000))
    }

    /// The point `ms` milliseconds after the start.
    pub const fn from_ms(ms: u64) -> Time {
        Time(ms.saturating_mul(1_000_000_000))
    }

    /// Picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Seconds since the start, as a fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// Time passed since `earlier`; zero if that lies in the future.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// What a protocol's clock shows at this time (rounded down to nanoseconds).
    pub const fn instant(self) -> Instant {
        if self.0 == u64::MAX { Instant::FAR_FUTURE } else { Instant::from_nanos(self.0 / 1_000) }
    }

    /// The first point at which a protocol's clock shows `instant`.
    pub const fn from_instant(instant: Instant) -> Time {
        Time(instant.as_nanos().saturating_mul(1_000))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Span {
        Span(ps)
    }

    /// A span of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Span {
        Span(ns.saturating_mul(1_000))
    }

    /// A span of `us` microseconds.
    pub const fn from_us(us: u64) -> Span {
        Span(us.saturating_mul(1_000_000))
    }

    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000_000))
    }

    /// The span in picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The span in nanoseconds, as a fraction.
    pub fn as_ns_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// The span in microseconds, as a fraction.
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The span in seconds, as a fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

/// The rate of a link, in bits per second.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u64", into = "u64"))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl TryFrom<u64> for Rate {
    type Error = &'static str;

    /// A rate of so many bits per second, if a link can have it.
    fn try_from(bps: u64) -> Result<Rate, &'static str> {
        let is_possible = (1..=8_192_000_000_000_000).contains(&bps);
        is_possible.then_some(Rate(bps)).ok_or("a link's rate lies between 1 bit/s and 8192 Tbit/s")
    }
}

impl From<Rate> for u64 {
    fn from(rate: Rate) -> u64 {
        rate.0
    }
}

impl Rate {
    /// A rate of `bps` bits per second.
    ///
    /// # Panics
    /// If it is zero, or above 8 Tb/s times 2^10: a byte must last a measurable part of a picosecond.
    pub const fn from_bps(bps: u64) -> Rate {
        assert!(
            bps > 0 && bps <= 8_192_000_000_000_000,
            "a link's rate lies between 1 bit/s and 8192 Tbit/s"
        );
        Rate(bps)
    }

    /// A rate of `gbps` times 10^9 bits per second.
    pub const fn from_gbps(gbps: u64) -> Rate {
        Rate::from_bps(gbps * 1_000_000_000)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// How long `bytes` bytes last on the wire, rounded up to a picosecond.
    pub const fn span_of(self, bytes: u64) -> Span {
        let ps = (bytes as u128 * 8_000_000_000_000).div_ceil(self.0 as u128);
        Span(if ps > u64::MAX as u128 { u64::MAX } else { ps as u64 })
    }

    /// How many whole bytes pass in `span`.
    pub const fn bytes_in(self, span: Span) -> u64 {
        (span.0 as u128 * self.0 as u128 / 8_000_000_000_000) as u64
    }
}

/// A rate prepared for the event loop: a multiplication per packet where a byte lasts whole picoseconds, as it does at all
/// usual rates, and a division otherwise. As exact as [`Rate::span_of`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Picoseconds per byte, as a fraction in lowest terms.
    numerator: u64,
    denominator: u64,
}

impl Pace {
    pub(crate) fn new(rate: Rate) -> Pace {
        const BYTE: u64 = 8_000_000_000_000;
        let (mut a, mut b) = (BYTE, rate.0);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Pace { numerator: BYTE / a, denominator: rate.0 / a }
    }

    #[inline]
    pub(crate) fn span_of(self, bytes: u32) -> Span {
        let product = u128::from(bytes) * u128::from(self.numerator);
        if self.denominator == 1 { Span(product as u64) } else { self.divided(product) }
    }

    #[cold]
    fn divided(self, product: u128) -> Span {
        let denominator = u128::from(self.denominator);
        Span(u64::try_from(product.div_ceil(denominator)).unwrap_or(u64::MAX))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    #[inline]
    fn add(self, rhs: Span) -> Time {
        Time(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, rhs: Span) {
        *self = *self + rhs;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, rhs: Span) -> Span {
        Span(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, rhs: Span) -> Span {
        Span(self.0.saturating_sub(rhs.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, rhs: u64) -> Span {
        Span(self.0.saturating_mul(rhs))
    }
}

impl From<Duration> for Span {
    fn from(d: Duration) -> Span {
        Span::from_ns(d.as_nanos())
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER {
            return f.write_str("never");
        }
        write!(f, "{}", Span(self.0))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Span {
    /// All digits, in microseconds: `2.217200us`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}us", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1_000_000_000) {
            write!(f, "{}Gbps", self.0 / 1_000_000_000)
        } else {
            write!(f, "{}bps", self.0)
        }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_rates_are_exact() {
        for (gbps, ps) in [(10, 800), (25, 320), (40, 200), (100, 80), (200, 40), (400, 20), (800, 10)] {
            let rate = Rate::from_gbps(gbps);
            for bytes in [1, 64, 1086, 9000, 1 << 20] {
                assert_eq!(rate.span_of(bytes).as_ps(), bytes * ps);
                assert_eq!(Pace::new(rate).span_of(bytes as u32).as_ps(), bytes * ps);
            }
        }
    }

    #[test]
    fn odd_rates_round_up() {
        let rate = Rate::from_gbps(56);
        assert_eq!(rate.span_of(7).as_ps(), 1000);
        assert_eq!(rate.span_of(1).as_ps(), 143);
        for (bps, bytes) in
            [(56_000_000_000, 7), (56_000_000_000, 1086), (3, u32::MAX), (8_192_000_000_000_000, 1)]
        {
            let rate = Rate::from_bps(bps);
            assert_eq!(Pace::new(rate).span_of(bytes), rate.span_of(u64::from(bytes)), "{rate} {bytes}");
        }
        assert_eq!(rate.bytes_in(Span::from_ps(1000)), 7);
    }

    #[test]
    fn protocol_clocks_never_run_ahead() {
        assert_eq!(Time::from_ps(1_999).instant(), Instant::from_nanos(1));
        assert_eq!(Time::from_instant(Instant::from_nanos(2)), Time::from_ps(2_000));
        assert_eq!(Time::NEVER.instant(), Instant::FAR_FUTURE);
        assert_eq!(Time::from_instant(Instant::FAR_FUTURE), Time::NEVER);
    }

    #[test]
    fn times_print_every_digit() {
        assert_eq!(Time::from_ps(2_217_200).to_string(), "2.217200us");
        assert_eq!(Rate::from_gbps(40).to_string(), "40Gbps");
    }
}
