//! The notification point: the receiver that turns ECN marks into congestion notification packets (RoCEv2 A17.9.3).

use highwire_stdx::{Duration, Instant};

/// Decides for one flow which marked packets are answered with a CNP.
#[derive(Clone, Debug)]
pub struct CnpGenerator {
    interval: Duration,
    quiet_until: Instant,
}

impl CnpGenerator {
    /// At most one CNP per flow in this time: DCQCN's value.
    pub const INTERVAL: Duration = Duration::from_micros(50);

    /// A generator that sends at most one CNP per `interval`; the first marked packet is answered at once.
    pub const fn new(interval: Duration) -> CnpGenerator {
        CnpGenerator { interval, quiet_until: Instant::ZERO }
    }

    /// A data packet arrived, `is_marked` with "congestion experienced" or not. Returns whether to send a CNP
    /// now.
    #[inline]
    pub fn on_packet(&mut self, now: Instant, is_marked: bool) -> bool {
        if !is_marked || now < self.quiet_until {
            return false;
        }
        self.quiet_until = now + self.interval;
        true
    }
}

impl Default for CnpGenerator {
    fn default() -> CnpGenerator {
        CnpGenerator::new(CnpGenerator::INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_notification_per_interval_however_many_marks() {
        let mut cnps = CnpGenerator::default();
        let answered: Vec<u64> = (0..=200)
            .filter(|&us| cnps.on_packet(Instant::ZERO + Duration::from_micros(us), us >= 10))
            .collect();
        assert_eq!(answered, [10, 60, 110, 160]);
    }

    #[test]
    fn unmarked_packets_are_never_answered() {
        let mut cnps = CnpGenerator::default();
        assert!(!cnps.on_packet(Instant::ZERO, false));
        assert!(cnps.on_packet(Instant::ZERO, true));
    }
}
