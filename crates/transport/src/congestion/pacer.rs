//! Spreads packets in time according to a rate.
//!
//! The schedule is kept in units of 2^-32 ns, so rounding does not add up: at 40 Gb/s a packet of 1086 bytes takes 217.2 ns, and
//! a million of them take a million times that. Invariant: a packet never leaves before all those before it would have been
//! serialised at their rates, less the burst.

use super::fixed::Rate;
use highwire_stdx::{Duration, Instant};

/// When the next packet of one flow may leave.
#[derive(Clone, Debug)]
pub struct Pacer {
    next_at: Instant,
    /// Beyond `next_at`, in 2^-32 ns.
    fraction: u32,
    burst: Duration,
    rate: Option<Rate>,
    /// The time of one byte at `rate`, in 2^-32 ns.
    byte_time: u64,
}

impl Pacer {
    /// A pacer that lets a late flow catch up with at most `burst` of its schedule: zero on an exact clock, about the
    /// engine's polling jitter on a host.
    pub const fn new(burst: Duration) -> Pacer {
        Pacer { next_at: Instant::ZERO, fraction: 0, burst, rate: None, byte_time: 0 }
    }

    /// When the next packet may leave, at the earliest; an instant in the past means now.
    #[inline]
    pub fn next_send(&self) -> Instant {
        // A fraction of a nanosecond still has to pass.
        if self.fraction == 0 { self.next_at } else { self.next_at + Duration::from_nanos(1) }
    }

    /// Whether a packet may leave now.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next_send() <= now
    }

    /// A packet of `bytes` on the wire leaves at `now`, at `rate`; without a rate it costs no time.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, bytes: u32, rate: Option<Rate>) {
        let Some(rate) = rate else { return };
        if self.rate != Some(rate) {
            self.rate = Some(rate);
            self.byte_time = byte_time(rate);
        }
        let oldest = Instant::from_nanos(now.as_nanos().saturating_sub(self.burst.as_nanos()));
        if self.next_send() < oldest {
            (self.next_at, self.fraction) = (oldest, 0);
        }
        let cost = u128::from(self.byte_time) * u128::from(bytes) + u128::from(self.fraction);
        self.next_at += Duration::from_nanos(u64::try_from(cost >> 32).unwrap_or(u64::MAX));
        self.fraction = cost as u32;
    }
}

/// 8 bits at `rate`, rounded to the nearest 2^-32 ns.
fn byte_time(rate: Rate) -> u64 {
    let rate = u128::from(rate.bits_per_second());
    let byte = (8_000_000_000u128 << 32) + rate / 2;
    u64::try_from(byte / rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_packets_take_a_million_packet_times() {
        let mut pacer = Pacer::new(Duration::ZERO);
        for _ in 0..1_000_000 {
            pacer.on_sent(pacer.next_send(), 1086, Some(Rate::from_gbps(40)));
        }
        // 1086 * 8 / 40e9 s = 217.2 ns; each packet leaves on a whole nanosecond, and the schedule keeps the rest.
        assert_eq!(pacer.next_send(), Instant::from_nanos(217_200_000));
    }

    #[test]
    fn an_idle_flow_earns_no_credit_beyond_the_burst() {
        let rate = Some(Rate::from_gbps(8)); // one byte per nanosecond
        let mut exact = Pacer::new(Duration::ZERO);
        exact.on_sent(Instant::from_nanos(5_000), 100, rate);
        assert_eq!(exact.next_send(), Instant::from_nanos(5_100));

        let mut lenient = Pacer::new(Duration::from_nanos(250));
        let mut sent = 0;
        while lenient.is_due(Instant::from_nanos(5_000)) {
            lenient.on_sent(Instant::from_nanos(5_000), 100, rate);
            sent += 1;
        }
        assert_eq!(sent, 3, "250 ns late are two packets to catch up with, and a third is due");
    }

    #[test]
    fn a_new_rate_applies_to_the_next_packet() {
        let mut pacer = Pacer::new(Duration::ZERO);
        pacer.on_sent(Instant::ZERO, 1000, Some(Rate::from_gbps(8)));
        pacer.on_sent(pacer.next_send(), 1000, Some(Rate::from_gbps(4)));
        assert_eq!(pacer.next_send(), Instant::from_nanos(3_000));
        pacer.on_sent(pacer.next_send(), 1000, None);
        assert_eq!(pacer.next_send(), Instant::from_nanos(3_000));
    }

    #[test]
    fn the_slowest_rate_and_the_largest_packet_do_not_overflow() {
        let mut pacer = Pacer::new(Duration::ZERO);
        pacer.on_sent(Instant::ZERO, u32::MAX, Some(Rate::from_bits_per_second(1)));
        assert!(pacer.next_send() > Instant::from_nanos(1 << 60));
    }
}
