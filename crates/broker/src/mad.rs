//! Management datagrams as the broker sees them: its recipient, and how to decline it.

use super::protocol::Mad;
use highwire_wire::cm::{CmMad, CmMessage, Drep, GSI_QKEY, Rej, RejectReason, Rejected, SidrRep, SidrStatus};
use highwire_wire::{Bth, Deth, Ext, Headers, ICRC_LEN, Opcode, Psn, Qpn};

/// A packet with a management datagram: BTH, DETH, datagram, ICRC.
pub const GSI_PACKET_BYTES: usize = Bth::LEN + Deth::LEN + size_of::<Mad>() + ICRC_LEN;

/// The recipient of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recipient {
    /// The process that listens to this service.
    Listener(u64),
    /// The process that chose this communication or request id.
    Owner(u32),
}

/// The packet from queue pair 1 to queue pair 1 that carries `mad`, without its ICRC.
pub fn gsi_packet(psn: Psn, mad: &Mad) -> [u8; GSI_PACKET_BYTES] {
    let deth = Deth { qkey: GSI_QKEY, source_qpn: Qpn::GSI };
    let headers = Headers::new(Opcode::UdSendOnly, Qpn::GSI, psn, Ext::Deth(deth));
    let mut packet = [0; GSI_PACKET_BYTES];
    let start = headers.emit(&mut packet);
    packet[start..start + mad.len()].copy_from_slice(mad);
    packet
}

/// The management datagram in a packet, and the queue pair that sent it; `None` if it is none (IBTA §13.5.2).
pub(super) fn mad_of<'a>(headers: &Headers, payload: &'a [u8]) -> Option<(Qpn, &'a Mad)> {
    match headers.ext {
        Ext::Deth(deth) if headers.bth.dest_qpn == Qpn::GSI && deth.qkey == GSI_QKEY => {
            Some((deth.source_qpn, payload.try_into().ok()?))
        }
        _ => None,
    }
}

pub(super) fn recipient(mad: &CmMad) -> Option<Recipient> {
    let listener = mad.message.service_id().map(Recipient::Listener);
    listener.or(mad.message.receiver_id().map(Recipient::Owner))
}

/// The answer to a datagram without a recipient here: that there is no such service, or that the connection is gone.
pub(super) fn decline(mad: &CmMad) -> Option<Mad> {
    let message = match &mad.message {
        CmMessage::Req(req) => CmMessage::Rej(Rej {
            local_id: 0,
            remote_id: req.local_id,
            rejected: Rejected::Req,
            reason: RejectReason::INVALID_SERVICE_ID,
            info_len: 0,
            info: [0; Rej::INFO_LEN],
            private_data: [0; Rej::PRIVATE_LEN],
        }),
        CmMessage::SidrReq(req) => CmMessage::SidrRep(SidrRep {
            request_id: req.request_id,
            status: SidrStatus::UNSUPPORTED,
            info_len: 0,
            qpn: Qpn::default(),
            service_id: req.service_id,
            qkey: 0,
            info: [0; SidrRep::INFO_LEN],
            private_data: [0; SidrRep::PRIVATE_LEN],
        }),
        CmMessage::Dreq(dreq) => CmMessage::Drep(Drep {
            local_id: dreq.remote_id,
            remote_id: dreq.local_id,
            private_data: [0; Drep::PRIVATE_LEN],
        }),
        _ => return None,
    };
    Some(CmMad { transaction_id: mad.transaction_id, ece_options: 0, message }.emit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message whose first words after the common header are these.
    fn message(attribute: u16, words: [u32; 4]) -> CmMad {
        let mut mad = [0; 256];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[15] = 9;
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        for (word, at) in words.into_iter().zip((24..).step_by(4)) {
            mad[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        CmMad::parse(&mad).expect("a message")
    }

    #[test]
    fn requests_go_to_listeners_and_answers_to_their_owners() {
        let check = |attribute, expected| {
            let mad = message(attribute, [0xA, 0xB, 1, 0x0106_1D2F]);
            assert_eq!(recipient(&mad), Some(expected), "{attribute:#x}");
        };
        for request in [0x10, 0x17] {
            check(request, Recipient::Listener(0x1_0106_1D2F));
        }
        check(0x18, Recipient::Owner(0xA));
        for answer in [0x11, 0x12, 0x13, 0x14, 0x15, 0x16] {
            check(answer, Recipient::Owner(0xB));
        }
    }

    #[test]
    fn what_is_for_nobody_is_declined_in_its_own_terms() {
        let check = |attribute, expected: &str, id| {
            let reply = decline(&message(attribute, [0xA, 0xB, 0xC, 0xD])).expect("an answer");
            let reply = CmMad::parse(&reply).expect("a message");
            assert_eq!((reply.transaction_id, reply.message.receiver_id()), (9, Some(id)));
            assert_eq!(reply.message.attribute().as_str(), expected);
        };
        check(0x10, "REJ", 0xA);
        check(0x17, "SIDR_REP", 0xA);
        check(0x15, "DREP", 0xA);
        // A rejection is never answered.
        assert_eq!(decline(&message(0x12, [0; 4])), None);
    }
}
