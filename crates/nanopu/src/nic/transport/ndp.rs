//! NDP: the first packets of a message leave unasked, switches trim instead of dropping, and the receiver pulls the rest at the
//! pace of its link.

use super::{Answer, Arriving, Departing, Transport};
use crate::packet::{AppHeader, Packet, flag};

/// The transport: see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ndp {
    /// Packets of a round trip.
    pub rtt_packets: u16,
}

impl Transport for Ndp {
    fn begin(&mut self, _: AppHeader) -> Departing {
        Departing { credit: self.rtt_packets, ..Departing::default() }
    }

    fn on_data(&mut self, state: &mut Arriving, packet: &Packet) -> Answer {
        // Each arrival, whole or trimmed, lets one more packet leave.
        state.credit = state.credit.max(self.rtt_packets).saturating_add(1);
        let is_trimmed = packet.flags & flag::CHOP != 0;
        Answer { verdict: if is_trimmed { flag::NACK } else { flag::ACK }, pull: Some(state.credit) }
    }

    fn on_control(&mut self, state: &mut Departing, packet: &Packet) {
        state.on_verdict(packet);
        if packet.flags & flag::PULL != 0 {
            state.credit = state.credit.max(packet.pull_offset);
        }
    }
}
