//! The transport protocol as the NIC's programmable pipelines see it, and NDP as one.
//!
//! A transport decides two things: what a packet that arrives is answered with, and what a control packet allows a message of ours.
//! Buffers, bitmaps, timers, pacing and the order of sending are the NIC's.

use crate::packet::{Packet, flag};

/// A message that is arriving, as a transport sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arriving {
    /// Up to which packet its sender may send.
    pub credit: u16,
}

/// A message of ours, as a transport sees it. Bit *n* of a set is packet *n*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Departing {
    /// Up to which packet we may send.
    pub credit: u16,
    /// Packets that have arrived.
    pub delivered: u32,
    /// Packets that must be sent again.
    pub resend: u32,
}

/// What a packet is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// At once: [`flag::ACK`] or [`flag::NACK`].
    pub verdict: u8,
    /// Paced: the credit that the sender gets.
    pub pull: Option<u16>,
}

/// A transport protocol.
pub trait Transport {
    /// How many packets of a message leave before anybody has asked for them.
    fn unsolicited(&self) -> u16;

    /// A DATA packet has arrived, perhaps without its payload. `state` is new with the message's first packet.
    fn on_data(&mut self, state: &mut Arriving, packet: &Packet) -> Answer;

    /// A control packet has arrived for a message of ours.
    fn on_control(&mut self, state: &mut Departing, packet: &Packet);
}

/// NDP: the first packets of a message leave unasked, switches trim instead of dropping, and the receiver pulls the rest at the
/// pace of its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ndp {
    /// Packets of a round trip.
    pub rtt_packets: u16,
}

impl Transport for Ndp {
    fn unsolicited(&self) -> u16 {
        self.rtt_packets
    }

    fn on_data(&mut self, state: &mut Arriving, packet: &Packet) -> Answer {
        // Each arrival, whole or trimmed, lets one more packet leave.
        state.credit = state.credit.max(self.rtt_packets).saturating_add(1);
        let is_trimmed = packet.flags & flag::CHOP != 0;
        Answer { verdict: if is_trimmed { flag::NACK } else { flag::ACK }, pull: Some(state.credit) }
    }

    fn on_control(&mut self, state: &mut Departing, packet: &Packet) {
        let bit = 1u32.checked_shl(packet.packet_offset.into()).unwrap_or(0);
        if packet.flags & flag::ACK != 0 {
            state.delivered |= bit;
            state.resend &= !bit;
        }
        if packet.flags & flag::NACK != 0 {
            state.resend |= bit & !state.delivered;
        }
        if packet.flags & flag::PULL != 0 {
            state.credit = state.credit.max(packet.pull_offset);
        }
    }
}
