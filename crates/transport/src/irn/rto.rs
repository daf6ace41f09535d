//! A timeout computed from round trips, as TCP has it (RFC 6298): what IRN was compared with (IRN §4.3, question 3).
//!
//! The clock is exact, so there is no granularity to add. The shortest timeout, which the RFC fixes at one
//! second, is a parameter: one second is far too long for a data centre.

use highwire_stdx::Duration;

/// A retransmission timeout, computed from round trips.
#[derive(Clone, Copy, Debug)]
pub struct RetransmissionTimeout {
    /// SRTT and RTTVAR, once a round trip was measured.
    smoothed: Option<(u64, u64)>,
    current: u64,
    min: u64,
    max: u64,
}

impl RetransmissionTimeout {
    /// `initial` until a round trip is measured, then never outside `min` and `max`.
    pub fn new(initial: Duration, min: Duration, max: Duration) -> RetransmissionTimeout {
        let max = max.max(min).as_nanos();
        RetransmissionTimeout {
            smoothed: None,
            current: initial.as_nanos().min(max),
            min: min.as_nanos(),
            max,
        }
    }

    /// The timeout as it is now.
    pub fn current(&self) -> Duration {
        Duration::from_nanos(self.current)
    }

    /// A round trip of a packet that was sent once (RFC 6298 §2.2, §2.3, §3).
    pub fn on_round_trip(&mut self, rtt: Duration) {
        let rtt = rtt.as_nanos();
        let (srtt, rttvar) = match self.smoothed {
            None => (rtt, rtt / 2),
            Some((srtt, rttvar)) => ((7 * srtt + rtt) / 8, (3 * rttvar + srtt.abs_diff(rtt)) / 4),
        };
        self.smoothed = Some((srtt, rttvar));
        self.current = (srtt + 4 * rttvar).clamp(self.min, self.max);
    }

    /// The timer ran out (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.current = self.current.saturating_mul(2).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn the_first_round_trip_counts_threefold_and_steady_ones_bring_it_down() {
        let mut rto = RetransmissionTimeout::new(us(1000), us(1), us(1_000_000));
        assert_eq!(rto.current(), us(1000));
        rto.on_round_trip(us(80));
        assert_eq!(rto.current(), us(80 + 4 * 40));
        rto.on_round_trip(us(80));
        assert_eq!(rto.current(), us(80 + 4 * 30));
        // SRTT = 7/8 * 80 + 1/8 * 160, RTTVAR = 3/4 * 30 + 1/4 * 80.
        rto.on_round_trip(us(160));
        assert_eq!(rto.current(), Duration::from_nanos(90_000 + 4 * 42_500));
    }

    #[test]
    fn never_below_the_minimum_nor_above_the_maximum() {
        let mut rto = RetransmissionTimeout::new(us(1000), us(320), us(3000));
        rto.on_round_trip(us(10));
        assert_eq!(rto.current(), us(320));
        let doubled: Vec<u64> = (0..5)
            .map(|_| {
                rto.back_off();
                rto.current().as_nanos() / 1000
            })
            .collect();
        assert_eq!(doubled, [640, 1280, 2560, 3000, 3000]);
        rto.on_round_trip(us(10));
        assert_eq!(rto.current(), us(320), "a measured round trip ends the doubling");
    }
}
