//! The transport protocol as the NIC's programmable pipelines see it.
//!
//! A transport decides which packets leave unasked and how urgently, how an arriving packet is answered, and
//! what a control packet allows a departing message. The NIC itself handles buffers, duplicates, timers, the
//! pace of pulls, the order of sending, and the echo of marks.
//!
//! Invariant: a transport acts only when the NIC calls it, so a NIC without packets and messages stands
//! still.

mod homa;
mod kind;
mod ndp;
mod round_trips;

pub use homa::{Homa, HomaConfig};
pub use kind::{Taken, TransportKind};
pub use ndp::Ndp;
pub use round_trips::RoundTrips;

use crate::packet::{AppHeader, Packet, flag};

/// A message that is arriving, as a transport sees it. Bit *n* of a set is packet *n*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arriving {
    /// Up to which packet its sender may send; the transport's.
    pub credit: u16,
    /// Packets that have arrived, each counted once; the NIC's.
    pub arrived: u64,
}

/// A message of ours, as a transport sees it. Bit *n* of a set is packet *n*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Departing {
    /// Up to which packet we may send.
    pub credit: u16,
    /// Packets that have arrived.
    pub delivered: u64,
    /// Packets that must be sent again.
    pub resend: u64,
    /// [`Packet::priority`] of packets that leave from now on.
    pub priority: u8,
    /// No packet leaves before this cycle, unless the transport says otherwise ([`Transport::earliest`]).
    pub not_before: u64,
}

impl Departing {
    /// Takes note of what an ACK or a NACK says about its packet.
    pub fn on_verdict(&mut self, packet: &Packet) {
        let bit = bit(packet);
        if packet.flags & flag::ACK != 0 {
            self.delivered |= bit;
            self.resend &= !bit;
        }
        if packet.flags & flag::NACK != 0 {
            self.resend |= bit & !self.delivered;
        }
    }
}

/// The answer to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// At once: [`flag::ACK`] or [`flag::NACK`].
    pub verdict: u8,
    /// Paced: the credit that the sender gets.
    pub pull: Option<u16>,
}

/// Cycles that a transport's pipelines take beyond NDP's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PipelineCycles {
    /// From a DATA packet's headers to the transport's decision. The payload comes in meanwhile, so long
    /// packets do not wait.
    pub ingress: u64,
    /// From the arbiter to the wire.
    pub egress: u64,
}

/// A transport protocol.
pub trait Transport {
    /// All calls up to the next one of this method are of this cycle. Cycles never go back.
    fn at(&mut self, _cycle: u64) {}

    /// A message of ours begins: how many of its packets leave unasked, and how urgent they are.
    fn begin(&mut self, header: AppHeader) -> Departing;

    /// A DATA packet has arrived, perhaps without its payload. `state` is new with the message's first packet, and does not yet
    /// count this one.
    fn on_data(&mut self, state: &mut Arriving, packet: &Packet) -> Answer;

    /// A control packet has arrived for a message of ours.
    fn on_control(&mut self, state: &mut Departing, packet: &Packet);

    /// A packet of a message of ours goes to the wire, for the first time or again. What leaves next follows `state`.
    fn on_sent(&mut self, _state: &mut Departing, _packet: &Packet) {}

    /// The cycle before which no packet of a message to `peer` leaves; other messages overtake it meanwhile. It may change with every call.
    fn earliest(&self, _peer: u32, state: &Departing) -> u64 {
        state.not_before
    }

    /// A departing message has heard nothing for long. The packets of `sent` have left; those that have not
    /// arrived are sent again.
    fn on_timeout(&mut self, state: &mut Departing, sent: u64) {
        state.resend |= sent & !state.delivered;
    }

    /// A control packet that leaves at once, for any message that is arriving. Asked after each packet, until there is none.
    fn poll_control(&mut self) -> Option<Packet> {
        None
    }

    /// [`Packet::priority`] of answers.
    fn control_priority(&self) -> u8 {
        0
    }

    /// Whether congested switches may mark its packets. The answer to a marked packet has [`flag::ECHO`].
    fn is_ecn_capable(&self) -> bool {
        false
    }

    /// The cycles of its decisions.
    fn pipeline_cycles(&self) -> PipelineCycles {
        PipelineCycles::default()
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn at(&mut self, cycle: u64) {
        (**self).at(cycle);
    }

    fn on_sent(&mut self, state: &mut Departing, packet: &Packet) {
        (**self).on_sent(state, packet);
    }

    fn earliest(&self, peer: u32, state: &Departing) -> u64 {
        (**self).earliest(peer, state)
    }

    fn is_ecn_capable(&self) -> bool {
        (**self).is_ecn_capable()
    }

    fn begin(&mut self, header: AppHeader) -> Departing {
        (**self).begin(header)
    }

    fn on_data(&mut self, state: &mut Arriving, packet: &Packet) -> Answer {
        (**self).on_data(state, packet)
    }

    fn on_control(&mut self, state: &mut Departing, packet: &Packet) {
        (**self).on_control(state, packet);
    }

    fn on_timeout(&mut self, state: &mut Departing, sent: u64) {
        (**self).on_timeout(state, sent);
    }

    fn poll_control(&mut self) -> Option<Packet> {
        (**self).poll_control()
    }

    fn control_priority(&self) -> u8 {
        (**self).control_priority()
    }

    fn pipeline_cycles(&self) -> PipelineCycles {
        (**self).pipeline_cycles()
    }
}

/// A packet's place in the sets of its message.
pub fn bit(packet: &Packet) -> u64 {
    1u64.checked_shl(packet.packet_offset.into()).unwrap_or(0)
}
