//! The bytes that a requester has in flight, for controls that limit bytes.
//!
//! Invariant: `bytes` is the sum over `packets`, which are in the order of their PSNs.

use highwire_wire::Psn;
use std::collections::VecDeque;

/// The packets in flight with their bytes on the wire. Packets that were selectively acknowledged count until the cumulative
/// acknowledgement covers them, as they do for windows in packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flight {
    packets: VecDeque<(Psn, u32)>,
    bytes: u64,
}

impl Flight {
    /// The bytes in flight from `first` on, up to `next` exclusive. A requester that goes back has what is behind `next` not in flight.
    pub(crate) fn bytes_between(&mut self, first: Psn, next: Psn) -> u64 {
        while let Some(&(psn, bytes)) = self.packets.front()
            && psn.is_before(first)
        {
            self.packets.pop_front();
            self.bytes -= u64::from(bytes);
        }
        while let Some(&(psn, bytes)) = self.packets.back()
            && !psn.is_before(next)
        {
            self.packets.pop_back();
            self.bytes -= u64::from(bytes);
        }
        self.bytes
    }

    /// A packet leaves; one that is in flight already counts once.
    pub(crate) fn on_sent(&mut self, psn: Psn, bytes: u32) {
        if self.packets.back().is_none_or(|&(last, _)| last.is_before(psn)) {
            self.packets.push_back((psn, bytes));
            self.bytes += u64::from(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_counts_once_until_it_is_acknowledged_or_gone_back_over() {
        for origin in [0, 0xFF_FFFE] {
            let psn = |n: u32| Psn::new(origin).add(n);
            let mut flight = Flight::default();
            (0..4).for_each(|n| flight.on_sent(psn(n), 100 + n));
            flight.on_sent(psn(1), 101);
            assert_eq!(flight.bytes_between(psn(0), psn(4)), 406);
            assert_eq!(flight.bytes_between(psn(1), psn(4)), 306, "packet 0 was acknowledged");
            assert_eq!(flight.bytes_between(psn(1), psn(2)), 101, "go-back-N stands before packet 2");
            flight.on_sent(psn(2), 102);
            assert_eq!(flight.bytes_between(psn(1), psn(3)), 203);
            assert_eq!(flight.bytes_between(psn(3), psn(3)), 0);
        }
    }
}
