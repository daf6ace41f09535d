//! Round trips of single packets, for transports that look at delay.

use std::collections::BTreeMap;

use crate::packet::Packet;

/// Departures that have not been answered.
///
/// A packet that leaves again is forgotten, since its answer may be to either departure.
///
/// Invariant: no more departures are kept than a NIC can have unanswered, since a message's buffer is used again by another one.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips {
    /// By buffer and packet: the message, and the cycle; nothing once the packet has left twice.
    left: BTreeMap<(u16, u8), (u16, Option<u64>)>,
}

impl RoundTrips {
    /// A data packet of ours leaves.
    pub fn on_sent(&mut self, cycle: u64, packet: &Packet) {
        let (place, message) = ((packet.buffer, packet.packet_offset), packet.message);
        let again = self.left.get(&place).is_some_and(|&(known, _)| known == message);
        self.left.insert(place, (message, (!again).then_some(cycle)));
    }

    /// An answer has come. Returns the cycles since the packet left, if it left once and is answered for the first time.
    pub fn on_answer(&mut self, cycle: u64, answer: &Packet) -> Option<u64> {
        let place = (answer.buffer, answer.packet_offset);
        self.left.get(&place).filter(|(message, _)| *message == answer.message)?;
        let (_, left) = self.left.remove(&place)?;
        Some(cycle - left?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_left_twice_has_no_round_trip() {
        let packet =
            |message, packet_offset| Packet { message, packet_offset, buffer: 3, ..Packet::default() };
        let mut trips = RoundTrips::default();
        trips.on_sent(10, &packet(1, 0));
        trips.on_sent(12, &packet(1, 1));
        trips.on_sent(90, &packet(1, 1));
        assert_eq!(trips.on_answer(100, &packet(1, 0)), Some(90));
        assert_eq!(trips.on_answer(101, &packet(1, 0)), None);
        assert_eq!(trips.on_answer(110, &packet(1, 1)), None);
        // The next message in the same buffer is not the same packet.
        trips.on_sent(200, &packet(1, 0));
        trips.on_sent(300, &packet(2, 0));
        assert_eq!(trips.on_answer(310, &packet(1, 0)), None, "a late answer");
        assert_eq!(trips.on_answer(340, &packet(2, 0)), Some(40));
        assert!(trips.left.is_empty());
    }
}
