//! When packets left, so that their acknowledgements tell round trips.
//!
//! Only for congestion controls and timeouts that ask for it. A packet that is resent tells nothing any more: its acknowledgement may be
//! that of either transmission. Each packet is measured once at most.

use super::Requester;
use crate::congestion::{AckSample, CongestionControl};
use crate::connection::Connection;
use highwire_stdx::{Duration, Instant};
use highwire_wire::Psn;

/// The departures of the last packets, in a ring by PSN.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrips {
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    psn: Psn,
    sent_at: Instant,
}

/// Whatever the window, no more departures than this are remembered: in a larger one only some packets are measured.
const PACKETS_MAX: u32 = 1024;

const EMPTY: Slot = Slot { psn: Psn::new(0), sent_at: Instant::FAR_FUTURE };

impl RoundTrips {
    pub(super) fn new(window: u32) -> RoundTrips {
        RoundTrips { slots: vec![EMPTY; window.clamp(1, PACKETS_MAX).next_power_of_two() as usize].into() }
    }

    fn slot(&mut self, psn: Psn) -> &mut Slot {
        let mask = self.slots.len() - 1;
        &mut self.slots[psn.value() as usize & mask]
    }

    pub(super) fn on_sent(&mut self, psn: Psn, now: Instant, is_resent: bool, first_unacknowledged: Psn) {
        let slot = self.slot(psn);
        // Whoever waits for its acknowledgement stays, or in a large window all would be forgotten before theirs.
        let is_free = slot.sent_at == Instant::FAR_FUTURE || slot.psn.is_before(first_unacknowledged);
        if is_resent && slot.psn == psn {
            *slot = EMPTY;
        } else if is_free && !is_resent {
            *slot = Slot { psn, sent_at: now };
        }
    }

    /// How long ago `psn` left, if that is known and was not asked before.
    pub(super) fn take(&mut self, psn: Psn, now: Instant) -> Option<Duration> {
        let slot = self.slot(psn);
        if slot.psn != psn || slot.sent_at > now {
            return None;
        }
        let rtt = now - slot.sent_at;
        *slot = EMPTY;
        Some(rtt)
    }
}

impl Requester {
    /// Makes room to note departures, if somebody wants round trips.
    pub(super) fn round_trips_for(&self, conn: &Connection) -> Option<Box<RoundTrips>> {
        let window = if self.is_irn() { conn.transport.irn.cap } else { conn.transport.go_back_n_window };
        let wants = self.congestion.wants_round_trips() || self.is_irn() && conn.transport.irn.computes_rto;
        wants.then(|| Box::new(RoundTrips::new(window)))
    }

    /// A packet leaves whose acknowledgement will tell a round trip, unless it is resent.
    #[inline]
    pub(super) fn note_departure(&mut self, psn: Psn, now: Instant, is_resent: bool) {
        if let Some(round_trips) = &mut self.round_trips {
            let first =
                self.irn.as_ref().map_or(self.first_unacknowledged, |i| i.window.first_unacknowledged());
            round_trips.on_sent(psn, now, is_resent, first);
        }
    }

    /// What an acknowledgement caused by `psn` tells, besides how much it covers.
    #[inline]
    pub(super) fn sample(&mut self, now: Instant, psn: Option<Psn>, is_ecn_echo: bool) -> AckSample {
        let rtt = match (&mut self.round_trips, psn) {
            (Some(round_trips), Some(psn)) => round_trips.take(psn, now),
            _ => None,
        };
        AckSample { packets: 0, rtt, is_ecn_echo }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    #[test]
    fn each_packet_is_measured_once_and_resent_ones_never() {
        let mut trips = RoundTrips::new(111);
        let psn = Psn::new;
        let first = psn(0xFF_FFFF);
        trips.on_sent(psn(0xFF_FFFF), at(10), false, first);
        trips.on_sent(psn(0), at(11), false, first);
        trips.on_sent(psn(1), at(12), false, first);
        trips.on_sent(psn(0), at(20), true, first);
        assert_eq!(trips.take(psn(0xFF_FFFF), at(30)), Some(Duration::from_micros(20)));
        assert_eq!(trips.take(psn(0xFF_FFFF), at(31)), None);
        assert_eq!(trips.take(psn(0), at(40)), None);
        assert_eq!(trips.take(psn(1), at(40)), Some(Duration::from_micros(28)));
        assert_eq!(trips.take(psn(2), at(40)), None, "never sent");
        trips.on_sent(psn(5), at(50), false, psn(2));
        assert_eq!(trips.take(psn(5 + 128), at(60)), None, "another packet's place in the ring");
    }

    #[test]
    fn in_a_window_larger_than_the_ring_the_oldest_is_measured() {
        let mut trips = RoundTrips::new(2);
        let psn = Psn::new;
        for n in 0..6 {
            trips.on_sent(psn(n), at(u64::from(n)), false, psn(0));
        }
        assert_eq!(trips.take(psn(4), at(30)), None);
        assert_eq!(trips.take(psn(0), at(30)), Some(Duration::from_micros(30)));
        // Packet 1 was lost, and everything up to 7 is acknowledged by now: its place is free again.
        trips.on_sent(psn(7), at(40), false, psn(7));
        assert_eq!(trips.take(psn(7), at(50)), Some(Duration::from_micros(10)));
    }
}
