//! When packets left, so that their acknowledgements tell round trips.
//!
//! Only for congestion controls and timeouts that ask for it. A packet that is resent tells nothing any more: its acknowledgement may be
//! that of either transmission. Each packet is measured once at most.

use highwire_stdx::{Duration, Instant};
use highwire_wire::Psn;

/// The departures of the last packets, in a ring by PSN.
#[derive(Clone, Debug)]
pub(super) struct RoundTrips {
    slots: Box<[Slot]>,
    /// The first PSN that has not left.
    next: Psn,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    psn: Psn,
    sent_at: Instant,
    path: u16,
}

/// At most this many departures are remembered: in a larger window only some packets are measured.
const PACKETS_MAX: u32 = 1024;

const EMPTY: Slot = Slot { psn: Psn::new(0), sent_at: Instant::FAR_FUTURE, path: 0 };

impl RoundTrips {
    pub(super) fn new(first: Psn, window: u32) -> RoundTrips {
        let slots = vec![EMPTY; window.clamp(1, PACKETS_MAX).next_power_of_two() as usize];
        RoundTrips { slots: slots.into(), next: first }
    }

    fn slot(&mut self, psn: Psn) -> &mut Slot {
        let mask = self.slots.len() - 1;
        &mut self.slots[psn.value() as usize & mask]
    }

    pub(super) fn on_sent(&mut self, psn: Psn, now: Instant, path: u16, first_unacknowledged: Psn) {
        let is_resent = psn.is_before(self.next);
        if !is_resent {
            self.next = psn.next();
        }
        let slot = self.slot(psn);
        // A packet that waits for its acknowledgement keeps its slot; otherwise, in a large window, every packet would be
        // forgotten before its acknowledgement came.
        let is_free = slot.sent_at == Instant::FAR_FUTURE || slot.psn.is_before(first_unacknowledged);
        if is_resent && slot.psn == psn {
            *slot = EMPTY;
        } else if is_free && !is_resent {
            *slot = Slot { psn, sent_at: now, path };
        }
    }

    /// How long ago `psn` left and which way it took, if that is known and was not asked before.
    pub(super) fn take(&mut self, psn: Psn, now: Instant) -> Option<(Duration, u16)> {
        let slot = self.slot(psn);
        if slot.psn != psn || slot.sent_at > now {
            return None;
        }
        let trip = (now - slot.sent_at, slot.path);
        *slot = EMPTY;
        Some(trip)
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
        let mut trips = RoundTrips::new(Psn::new(0xFF_FFFF), 111);
        let psn = Psn::new;
        let first = psn(0xFF_FFFF);
        trips.on_sent(psn(0xFF_FFFF), at(10), 7, first);
        trips.on_sent(psn(0), at(11), 7, first);
        trips.on_sent(psn(1), at(12), 7, first);
        trips.on_sent(psn(0), at(20), 7, first);
        assert_eq!(trips.take(psn(0xFF_FFFF), at(30)), Some((Duration::from_micros(20), 7)));
        assert_eq!(trips.take(psn(0xFF_FFFF), at(31)), None);
        assert_eq!(trips.take(psn(0), at(40)), None);
        assert_eq!(trips.take(psn(1), at(40)), Some((Duration::from_micros(28), 7)));
        assert_eq!(trips.take(psn(2), at(40)), None, "never sent");
        trips.on_sent(psn(5), at(50), 7, psn(2));
        assert_eq!(trips.take(psn(5 + 128), at(60)), None, "another packet's place in the ring");
    }

    #[test]
    fn in_a_window_larger_than_the_ring_the_oldest_is_measured() {
        let mut trips = RoundTrips::new(Psn::new(0), 2);
        let psn = Psn::new;
        for n in 0..6 {
            trips.on_sent(psn(n), at(u64::from(n)), 7, psn(0));
        }
        assert_eq!(trips.take(psn(4), at(30)), None);
        assert_eq!(trips.take(psn(0), at(30)), Some((Duration::from_micros(30), 7)));
        // Packet 1 was lost, and everything up to 7 is acknowledged by now: its place is free again.
        trips.on_sent(psn(7), at(40), 7, psn(7));
        assert_eq!(trips.take(psn(7), at(50)), Some((Duration::from_micros(10), 7)));
    }
}
