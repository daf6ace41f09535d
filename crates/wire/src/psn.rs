//! Packet sequence numbers and queue pair numbers: 24 bits each.
//!
//! PSNs wrap, so they have no total order. Two of them compare by their signed distance, which is meaningful while
//! they lie within 2^23 of each other (IBTA §9.7.2).

use std::fmt;

const MASK: u32 = 0x00FF_FFFF;

/// A packet sequence number, modulo 2^24.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The PSN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// The number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN that follows.
    #[must_use]
    pub const fn next(self) -> Psn {
        self.add(1)
    }

    /// The PSN `n` steps later.
    #[must_use]
    pub const fn add(self, n: u32) -> Psn {
        Psn(self.0.wrapping_add(n) & MASK)
    }

    /// The PSN `n` steps earlier.
    #[must_use]
    pub const fn sub(self, n: u32) -> Psn {
        Psn(self.0.wrapping_sub(n) & MASK)
    }

    /// Steps from `origin` to `self`, in `-2^23..2^23`; negative when `self` comes first.
    pub const fn distance_from(self, origin: Psn) -> i32 {
        // Shift the 24-bit difference to the top so that the sign bit is bit 23's.
        (self.0.wrapping_sub(origin.0) << 8) as i32 >> 8
    }

    /// Steps from `origin` forward to `self`, in `0..2^24`: for ranges that may span more than half of the numbers.
    #[inline]
    pub const fn ahead_of(self, origin: Psn) -> u32 {
        self.0.wrapping_sub(origin.0) & MASK
    }

    /// Whether `self` comes before `other`.
    pub const fn is_before(self, other: Psn) -> bool {
        self.distance_from(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {:#08x}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A queue pair number: 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services QP, which carries connection management.
    pub const GSI: Qpn = Qpn(1);
    /// The destination of multicast datagrams.
    pub const MULTICAST: Qpn = Qpn(MASK);

    /// The QPN with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Qpn {
        Qpn(value & MASK)
    }

    /// The number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qpn {:#08x}", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    #[test]
    fn distances_are_signed_and_wrap() {
        assert_eq!(Psn::new(1).distance_from(Psn::new(0xFF_FFFF)), 2);
        assert_eq!(Psn::new(0xFF_FFFF).distance_from(Psn::new(1)), -2);
        assert_eq!(Psn::new(0x80_0000).distance_from(Psn::new(0)), -0x80_0000);
        assert!(Psn::new(0xFF_FFFE).is_before(Psn::new(3)));
    }

    #[test]
    fn adding_then_measuring_gives_the_steps_back() {
        let mut rng = Rng::new(5);
        for _ in 0..10_000 {
            let origin = Psn::new(rng.next_u32());
            let steps = rng.below(1 << 23) as u32;
            assert_eq!(origin.add(steps).distance_from(origin), steps as i32);
            assert_eq!(origin.add(steps).sub(steps), origin);
            assert_eq!(origin.sub(steps).distance_from(origin), -(steps as i32));
        }
    }
}
