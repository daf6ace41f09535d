//! The authors' switch, in which their load generator sits: time goes in rounds of one link latency.
//!
//! Packets that arrive whole within a round are switched in it, in the order of their first words; each leaves, at the earliest, in the place
//! that its first word had. Control packets go before data, however early the data was due. No packet begins
//! in a round in which it cannot end, and no packet overtakes one that must therefore wait.

use std::collections::VecDeque;

use crate::packet::Packet;

/// Control packets and data without its payload.
pub(crate) const URGENT: usize = 0;
/// Data.
pub(crate) const DATA: usize = 1;

/// The packets that wait to leave by one port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port {
    /// By priority: packets, and when their first word was in the switch.
    queues: [VecDeque<(u64, Packet)>; 2],
    bytes: [u64; 2],
}

impl Port {
    pub(crate) fn push(&mut self, priority: usize, stamp: u64, packet: Packet) {
        self.bytes[priority] += bytes_of(&packet);
        self.queues[priority].push_back((stamp, packet));
    }

    /// The bytes that wait.
    pub(crate) fn bytes(&self, priority: usize) -> u64 {
        self.bytes[priority]
    }

    /// The packets that leave in the round of `cycles` that begins in cycle `base`, with the cycle of their
    /// first word.
    pub(crate) fn transmit(&mut self, base: u64, cycles: u64) -> Vec<(u64, Packet)> {
        let mut free = base;
        let mut leaving = Vec::new();
        let most_urgent = |queues: &[VecDeque<_>; 2]| queues.iter().position(|queue| !queue.is_empty());
        while let Some(priority) = most_urgent(&self.queues) {
            let (stamp, packet) = self.queues[priority].front().expect("it is not empty");
            let first = free.max(*stamp);
            if first + packet.wire_words() >= base + cycles {
                break;
            }
            free = first + packet.wire_words();
            let packet = self.queues[priority].pop_front().expect("looked at").1;
            self.bytes[priority] -= bytes_of(&packet);
            leaving.push((first, packet));
        }
        leaving
    }
}

/// A packet's bytes as the authors count them, in whole words.
pub(crate) fn bytes_of(packet: &Packet) -> u64 {
    8 * packet.wire_words()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ten words.
    fn packet(message: u16) -> Packet {
        Packet { message, payload: vec![0; 16], ..Packet::default() }
    }

    /// Which messages leave in the round, and when.
    fn round(port: &mut Port, base: u64) -> Vec<(u64, u16)> {
        port.transmit(base, 140).into_iter().map(|(first, packet)| (first - base, packet.message)).collect()
    }

    #[test]
    fn data_waits_for_control_of_its_round() {
        let mut port = Port::default();
        port.push(DATA, 1400, packet(1));
        assert_eq!(round(&mut port, 1400), [(0, 1)]);
        port.push(DATA, 1540, packet(2));
        port.push(URGENT, 1590, packet(3));
        assert_eq!((port.bytes(URGENT), port.bytes(DATA)), (80, 80));
        assert_eq!(round(&mut port, 1540), [(50, 3), (60, 2)]);
        assert_eq!((port.bytes(URGENT), port.bytes(DATA)), (0, 0));
    }

    #[test]
    fn nothing_begins_that_does_not_end_in_the_round() {
        let mut port = Port::default();
        port.push(DATA, 1400, packet(1));
        port.push(URGENT, 1520, packet(2));
        assert_eq!(round(&mut port, 1400), [(120, 2)]);
        assert_eq!(round(&mut port, 1540), [(0, 1)]);
        port.push(URGENT, 1815, packet(3));
        port.push(DATA, 1680, packet(4));
        assert_eq!(round(&mut port, 1680), []);
        assert_eq!(round(&mut port, 1820), [(0, 3), (10, 4)]);
    }
}
