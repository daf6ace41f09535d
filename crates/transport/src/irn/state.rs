//! What each end remembers of one PSN space, field by field: what the hardware of `rtl/` takes and gives, and what IRN costs in bits.
//!
//! A card stores these fields and nothing else. The structs here also keep what a program gets faster that way (counts, the
//! highest packet) and what IRN's comparison schemes need; the tests against `rtl/` show that the fields are enough.

use super::receiver::{PacketClass, ReceiverWindow};
use super::sender::SenderWindow;
use highwire_wire::Psn;

/// Where a field of the state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A RoCE NIC has it already.
    Roce,
    /// IRN adds it, and the paper counts it.
    Irn,
    /// Highwire adds it, for [`PartialAcks::Evident`](super::PartialAcks::Evident).
    Evident,
}

/// A field of the state, without the bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// How many bits it takes.
    pub bits: u32,
    /// Where it comes from.
    pub origin: Origin,
}

const fn field(name: &'static str, bits: u32, origin: Origin) -> Field {
    Field { name, bits, origin }
}

const PSN_BITS: u32 = 24;

/// The next step of a sender's loss recovery: "retransmit" and "find a new hole" are a flag each in hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairStep {
    /// Nothing to do.
    Idle = 0,
    /// `retransmit` is to be resent.
    Resend = 1,
    /// The first hole behind `retransmit` is to be resent.
    Search = 2,
}

/// A sender's state without its bitmap: which packets of the window were selectively acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderState {
    /// The oldest packet that is not cumulatively acknowledged.
    pub first_unacknowledged: Psn,
    /// The next packet that was never sent.
    pub next_to_send: Psn,
    /// The packet that was resent last, or is to be resent.
    pub retransmit: Psn,
    /// The last packet that was new when a packet was last resent.
    pub recovery: Psn,
    /// What to do next.
    pub repair: RepairStep,
    /// A packet was resent, and its repair is not confirmed.
    pub in_recovery: bool,
    /// The timer was armed while few packets were in flight.
    pub is_timer_quick: bool,
    /// The first packet that was new when one was last resent for evident loss.
    pub evident: Psn,
    /// The packet to be resent is only presumed lost.
    pub is_presumed: bool,
}

impl SenderState {
    /// Bitmaps of a bandwidth-delay product each.
    pub const BITMAPS: u32 = 1;

    /// The fields, with their values.
    pub fn fields(&self) -> [(Field, u32); 9] {
        // Each field must be listed: a new one does not compile until it is.
        let SenderState {
            first_unacknowledged,
            next_to_send,
            retransmit,
            recovery,
            repair,
            in_recovery,
            is_timer_quick,
            evident,
            is_presumed,
        } = *self;
        [
            (field("first unacknowledged packet", PSN_BITS, Origin::Roce), first_unacknowledged.value()),
            (field("next packet to send", PSN_BITS, Origin::Roce), next_to_send.value()),
            (field("packet to resend", PSN_BITS, Origin::Irn), retransmit.value()),
            (field("recovery sequence", PSN_BITS, Origin::Irn), recovery.value()),
            (field("repair: resend, search", 2, Origin::Irn), repair as u32),
            (field("in recovery", 1, Origin::Irn), u32::from(in_recovery)),
            (field("timer is quick", 1, Origin::Irn), u32::from(is_timer_quick)),
            (field("first packet after evident loss", PSN_BITS, Origin::Evident), evident.value()),
            (field("resent packet is presumed lost", 1, Origin::Evident), u32::from(is_presumed)),
        ]
    }
}

/// A receiver's state without its bitmaps: which packets have arrived early, and what becomes due with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverState {
    /// The first packet that has not arrived.
    pub next_expected: Psn,
    /// Messages completed, modulo 2^24.
    pub msn: u32,
}

impl ReceiverState {
    /// Bitmaps of a bandwidth-delay product each.
    pub const BITMAPS: u32 = 2;

    /// The fields, with their values.
    pub fn fields(&self) -> [(Field, u32); 2] {
        let ReceiverState { next_expected, msn } = *self;
        [
            (field("next expected packet", PSN_BITS, Origin::Roce), next_expected.value()),
            (field("message sequence number", PSN_BITS, Origin::Roce), msn),
        ]
    }
}

/// What IRN adds to an entry of the send queue: the number of the receive, READ or atomic that it takes (IRN §5.3.2), and
/// where its answers begin in their own PSN space (IRN §5.2).
pub const SEND_WQE: [Field; 2] = [
    field("recv_WQE_SN or read_WQE_SN", PSN_BITS, Origin::Irn),
    field("first PSN of the answers", PSN_BITS, Origin::Irn),
];

/// What IRN adds to an entry of a receive queue and of a completion queue: nothing. What waits for its turn is kept by the
/// responder, per message that ended early.
pub const RECEIVE_WQE_AND_COMPLETION: [Field; 0] = [];

impl SenderWindow {
    /// A copy of what a card would store; [`sacked`](Self::sacked) is the bitmap.
    pub fn state(&self) -> SenderState {
        self.copy_state()
    }
}

impl ReceiverWindow {
    /// A copy of what a card would store; [`early_class`](Self::early_class) reads the bitmaps.
    pub fn state(&self) -> ReceiverState {
        ReceiverState { next_expected: self.next_expected(), msn: self.msn() }
    }

    /// The class with which a packet arrived early, if it did.
    pub fn early_class(&self, psn: Psn) -> Option<PacketClass> {
        self.class_of_early(psn)
    }
}

#[cfg(test)]
mod tests {
    use super::super::IrnConfig;
    use super::*;
    use crate::send_queue::SendWqe;

    fn bits(fields: &[(Field, u32)], origin: Origin) -> u32 {
        fields.iter().filter(|(field, _)| field.origin == origin).map(|(field, _)| field.bits).sum()
    }

    /// The paper's count (IRN §6.1): 52 bits per direction beyond RoCE's.
    #[test]
    fn irn_adds_52_bits_to_a_sender_and_none_but_bitmaps_to_a_receiver() {
        let sender = SenderWindow::new(Psn::new(7), IrnConfig::default()).state().fields();
        let receiver = ReceiverWindow::new(Psn::new(7), &IrnConfig::default()).state().fields();
        assert_eq!(bits(&sender, Origin::Roce), 48);
        assert_eq!(bits(&sender, Origin::Irn), 52);
        assert_eq!(bits(&sender, Origin::Evident), 25);
        assert_eq!(bits(&receiver, Origin::Roce), 48);
        assert_eq!(bits(&receiver, Origin::Irn) + bits(&receiver, Origin::Evident), 0);
        for (field, value) in sender.iter().chain(&receiver) {
            assert!(value >> field.bits == 0, "{field:?} holds {value}");
        }
    }

    /// Each field of an entry is named here, so that one that is added is counted or is RoCE's.
    #[test]
    fn irn_adds_two_numbers_to_an_entry_of_the_send_queue() {
        let SendWqe {
            wqe_sn,
            response_first,
            wr_id: _,
            operation: _,
            flags: _,
            sges: _,
            datagram: _,
            length: _,
            progress: _,
            first: _,
            psns: _,
            packets: _,
            ssn: _,
            responses: _,
            received: _,
            checked: _,
        } = SendWqe::EMPTY;
        assert_eq!([wqe_sn, response_first.value()].len(), SEND_WQE.len());
        assert_eq!(SEND_WQE.map(|field| field.bits).iter().sum::<u32>(), 48);
    }

    #[test]
    fn early_packets_keep_their_class_until_they_are_in_order() {
        let mut window = ReceiverWindow::new(Psn::new(0xFF_FFFF), &IrnConfig::default());
        let classes = [PacketClass::Middle, PacketClass::Last, PacketClass::LastWithCompletion];
        for (n, class) in classes.into_iter().enumerate() {
            let psn = Psn::new(n as u32);
            assert_eq!(window.early_class(psn), None);
            window.on_arrival(psn, class);
            assert_eq!(window.early_class(psn), Some(class));
        }
        assert_eq!(window.early_class(Psn::new(3)), None);
        assert_eq!(window.early_class(Psn::new(0x80_0000)), None, "outside the window");
        window.on_arrival(Psn::new(0xFF_FFFF), PacketClass::Middle);
        assert!((0..3).all(|n| window.early_class(Psn::new(n)).is_none()), "in order");
        assert_eq!(window.state(), ReceiverState { next_expected: Psn::new(3), msn: 2 });
    }
}
