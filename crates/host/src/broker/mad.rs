//! What the broker understands of management datagrams: whom one is for, and how to decline (IBTA §12.6, §13.4).
//!
//! ```text
//!  0 base version 1 · class · class version · method │ 4 status · 6 class-specific │ 8 transaction u64
//! 16 attribute u16 · 20 modifier u32 │ 24 the message of connection management, 232 bytes
//! ```

use super::GSI_QKEY;
use super::protocol::Mad;
use highwire_wire::{Bth, Deth, Ext, Headers, ICRC_LEN, Opcode, Psn, Qpn};

/// A packet with a management datagram: BTH, DETH, datagram, ICRC.
pub(crate) const GSI_PACKET_BYTES: usize = Bth::LEN + Deth::LEN + size_of::<Mad>() + ICRC_LEN;

const CONNECTION_MANAGEMENT: u8 = 0x07;
const REQ: u16 = 0x0010;
const REJ: u16 = 0x0012;
const DREQ: u16 = 0x0015;
const DREP: u16 = 0x0016;
const SIDR_REQ: u16 = 0x0017;
const SIDR_REP: u16 = 0x0018;
/// Nobody listens to this service id (IBTA §12.6.7.2, §12.11.2.4).
const REJ_INVALID_SERVICE: u16 = 8;
const SIDR_UNSUPPORTED: u8 = 1;

/// Whom a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recipient {
    /// Whoever listens to this service.
    Listener(u64),
    /// Whoever chose this communication or request id.
    Owner(u32),
    /// Nobody: it is not of connection management.
    Nobody,
}

/// The packet from queue pair 1 to queue pair 1 that carries `mad`, without its ICRC.
pub(crate) fn gsi_packet(psn: Psn, mad: &Mad) -> [u8; GSI_PACKET_BYTES] {
    let deth = Deth { qkey: GSI_QKEY, source_qpn: Qpn::GSI };
    let headers = Headers::new(Opcode::UdSendOnly, Qpn::GSI, psn, Ext::Deth(deth));
    let mut packet = [0; GSI_PACKET_BYTES];
    let start = headers.emit(&mut packet);
    packet[start..start + mad.len()].copy_from_slice(mad);
    packet
}

pub(super) fn recipient(mad: &Mad) -> Recipient {
    if mad[0] != 1 || mad[1] != CONNECTION_MANAGEMENT {
        return Recipient::Nobody;
    }
    match attribute(mad) {
        REQ | SIDR_REQ => Recipient::Listener(u64::from(u32_at(mad, 32)) << 32 | u64::from(u32_at(mad, 36))),
        SIDR_REP => Recipient::Owner(u32_at(mad, 24)),
        // All others begin with the sender's id and then the receiver's.
        _ => Recipient::Owner(u32_at(mad, 28)),
    }
}

/// What to tell somebody whose datagram is for nobody here: that there is no such service, or that the connection is gone.
pub(super) fn decline(mad: &Mad) -> Option<Box<Mad>> {
    let mut reply = Box::new([0; 256]);
    reply[..4].copy_from_slice(&mad[..4]);
    reply[8..16].copy_from_slice(&mad[8..16]);
    let (asker, owner) = (&mad[24..28], &mad[28..32]);
    let attribute = match attribute(mad) {
        REQ => {
            reply[28..32].copy_from_slice(asker);
            reply[34..36].copy_from_slice(&REJ_INVALID_SERVICE.to_be_bytes());
            REJ
        }
        SIDR_REQ => {
            reply[24..28].copy_from_slice(asker);
            reply[28] = SIDR_UNSUPPORTED;
            SIDR_REP
        }
        DREQ => {
            reply[24..28].copy_from_slice(owner);
            reply[28..32].copy_from_slice(asker);
            DREP
        }
        _ => return None,
    };
    reply[16..18].copy_from_slice(&attribute.to_be_bytes());
    Some(reply)
}

fn attribute(mad: &Mad) -> u16 {
    u16::from_be_bytes([mad[16], mad[17]])
}

fn u32_at(mad: &Mad, at: usize) -> u32 {
    u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attribute: u16, words: [u32; 4]) -> Mad {
        let mut mad = [0; 256];
        mad[..4].copy_from_slice(&[1, CONNECTION_MANAGEMENT, 2, 3]);
        mad[8..16].copy_from_slice(&0x1122_3344_5566_7788u64.to_be_bytes());
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        for (word, at) in words.into_iter().zip((24..).step_by(4)) {
            mad[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        mad
    }

    #[test]
    fn requests_go_to_listeners_and_answers_to_their_owners() {
        let check = |attribute, expected| {
            assert_eq!(
                recipient(&message(attribute, [0xA, 0xB, 1, 0x0106_1D2F])),
                expected,
                "{attribute:#x}"
            );
        };
        for request in [REQ, SIDR_REQ] {
            check(request, Recipient::Listener(0x1_0106_1D2F));
        }
        check(SIDR_REP, Recipient::Owner(0xA));
        for answer in [0x11, REJ, 0x13, 0x14, DREQ, DREP, 0x19, 0x1A] {
            check(answer, Recipient::Owner(0xB));
        }
        let mut other = message(REQ, [0; 4]);
        other[1] = 0x81;
        assert_eq!(recipient(&other), Recipient::Nobody);
    }

    #[test]
    fn what_is_for_nobody_is_declined_in_its_own_terms() {
        let check = |attribute, answer, expected: [u32; 3]| {
            let reply = decline(&message(attribute, [0xA, 0xB, 0xC, 0xD])).expect("an answer");
            assert_eq!(reply[..16], message(attribute, [0; 4])[..16], "the same transaction");
            assert_eq!(
                (super::attribute(&reply), [24, 28, 32].map(|at| u32_at(&reply, at))),
                (answer, expected)
            );
        };
        check(REQ, REJ, [0, 0xA, 8]);
        check(SIDR_REQ, SIDR_REP, [0xA, 0x0100_0000, 0]);
        check(DREQ, DREP, [0xB, 0xA, 0]);
        // Nobody answers a rejection.
        assert_eq!(decline(&message(REJ, [0; 4])), None);
    }
}
