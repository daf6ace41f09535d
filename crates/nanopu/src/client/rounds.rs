//! The authors' switch, in which their load generator sits: time goes in rounds of one link latency.
//!
//! Whatever arrives whole within a round is answered in the same round: an acknowledgement leaves, at the earliest, in the place that
//! the answer's first word had, and always before a request of that round, however early that was due. Nothing begins in a round that
//! does not end in it, and nothing overtakes what must therefore wait.

use std::collections::VecDeque;

use crate::packet::Packet;

/// Acknowledgements carry an application header, which is empty.
pub(super) const ACKNOWLEDGEMENT_BYTES: usize = 16;

/// What waits to leave.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    /// When the first word of what is acknowledged was in the switch, when its last one was, and the acknowledgement.
    acknowledgements: VecDeque<(u64, u64, Packet)>,
    /// When it is due, and the packet.
    requests: VecDeque<(u64, Packet)>,
}

impl Rounds {
    pub(super) fn acknowledge(&mut self, first: u64, last: u64, packet: Packet) {
        self.acknowledgements.push_back((first, last, packet));
    }

    pub(super) fn request(&mut self, due: u64, packet: Packet) {
        self.requests.push_back((due, packet));
    }

    /// What leaves the switch in the round of `cycles` that begins in cycle `base`, and when its first word does.
    pub(super) fn transmit(&mut self, base: u64, cycles: u64) -> Vec<(u64, Packet)> {
        let end = base + cycles;
        let mut free = base;
        let mut leaving = Vec::new();
        loop {
            let acknowledges = self.acknowledgements.front().is_some_and(|&(_, last, _)| last < end);
            let next = match acknowledges {
                true => self.acknowledgements.front().map(|(first, _, packet)| (*first, packet)),
                false => {
                    self.requests.front().filter(|&&(due, _)| due <= base).map(|(due, packet)| (*due, packet))
                }
            };
            let Some((stamp, packet)) = next else { break };
            let first = free.max(stamp);
            if first + packet.wire_words() >= end {
                break;
            }
            free = first + packet.wire_words();
            let packet = match acknowledges {
                true => self.acknowledgements.pop_front().map(|(_, _, packet)| packet),
                false => self.requests.pop_front().map(|(_, packet)| packet),
            };
            leaving.extend(packet.map(|packet| (first, packet)));
        }
        leaving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ten words.
    fn packet(message: u16) -> Packet {
        Packet { message, payload: vec![0; 16], ..Packet::default() }
    }

    /// When each message leaves in the round from cycle 1400 on.
    fn round(rounds: &mut Rounds, base: u64) -> Vec<(u64, u16)> {
        rounds.transmit(base, 140).into_iter().map(|(first, packet)| (first - base, packet.message)).collect()
    }

    #[test]
    fn a_request_waits_for_the_acknowledgement_of_what_comes_in_its_round() {
        let mut rounds = Rounds::default();
        rounds.request(1400, packet(1));
        assert_eq!(round(&mut rounds, 1400), [(0, 1)]);
        rounds.request(1540, packet(2));
        rounds.acknowledge(1590, 1599, packet(3));
        assert_eq!(round(&mut rounds, 1540), [(50, 3), (60, 2)]);
    }

    #[test]
    fn nothing_begins_that_does_not_end_in_the_round() {
        let mut rounds = Rounds::default();
        rounds.request(1400, packet(1));
        rounds.acknowledge(1520, 1529, packet(2));
        assert_eq!(round(&mut rounds, 1400), [(120, 2)]);
        // What comes at the end of a round is whole in the next, and keeps its place before the request.
        rounds.acknowledge(1675, 1684, packet(3));
        assert_eq!(round(&mut rounds, 1540), [(0, 1)]);
        rounds.request(1680, packet(4));
        assert_eq!(round(&mut rounds, 1680), [(0, 3), (10, 4)]);
    }
}
