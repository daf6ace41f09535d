//! The one message of the negotiation: 64 bytes, big-endian.
//!
//! ```text
//!  0 +---------------------------------------------------------------+
//!    |                        magic "HWNG"                           |
//!  4 +-------------------------------+---------------+---------------+
//!    |          version = 1          |     kind      |  IRN version  |
//!  8 +-------------------------------+---------------+---------------+
//!    |                     nonce (64 bits): chosen by the asker      |
//! 16 +---------------------------------------------------------------+
//!    |                     from: GID (128 bits)                      |
//! 32 +---------------------------------------------------------------+
//!    |     from: QPN                 |  36:   to: QPN                |
//! 40 +-------------------------------+-------------------------------+
//!    |     sender's first PSN        |  44:   receiver's first PSN   |
//! 48 +-------------------------------+-------------------------------+
//!    |     features: bit 0 = IRN     |  52:   reserved, zero         |
//!    +-------------------------------+-------------------------------+
//! ```
//!
//! Kinds: 1 hello, 2 accept, 3 refuse, 4 not yet. An unknown version or kind is no message at all. The IRN version is the
//! asker's in every message of a conversation: a peer that speaks another one refuses in words that the asker understands.

use highwire_verbs::Gid;
use highwire_wire::{Psn, Qpn};

pub(crate) const MESSAGE_LEN: usize = 64;

const MAGIC: [u8; 4] = *b"HWNG";
const VERSION: u16 = 1;
const FEATURE_IRN: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Hello = 1,
    Accept = 2,
    Refuse = 3,
    NotYet = 4,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// The version of the extension that the asker speaks.
    pub(crate) irn_version: u8,
    pub(crate) nonce: u64,
    pub(crate) from: Gid,
    pub(crate) from_qpn: Qpn,
    pub(crate) to_qpn: Qpn,
    /// The first PSN of the sender's requester.
    pub(crate) sq_psn: Psn,
    /// The first PSN that the sender's responder expects.
    pub(crate) rq_psn: Psn,
}

impl Message {
    /// The message in `bytes`, if its form is this version's and nothing in it is unknown.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let version = u16::from_be_bytes([bytes[4], bytes[5]]);
        let understood = bytes[..4] == MAGIC && version == VERSION;
        if !understood || word(48) & FEATURE_IRN == 0 {
            return None;
        }
        let kind = match bytes[6] {
            1 => Kind::Hello,
            2 => Kind::Accept,
            3 => Kind::Refuse,
            4 => Kind::NotYet,
            _ => return None,
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..32]);
        Some(Message {
            kind,
            irn_version: bytes[7],
            nonce: u64::from(word(8)) << 32 | u64::from(word(12)),
            from: Gid(gid),
            from_qpn: Qpn::new(word(32)),
            to_qpn: Qpn::new(word(36)),
            sq_psn: Psn::new(word(40)),
            rq_psn: Psn::new(word(44)),
        })
    }

    pub(crate) fn emit(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        bytes[6] = self.kind as u8;
        bytes[7] = self.irn_version;
        bytes[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.from.0);
        let words = [
            self.from_qpn.value(),
            self.to_qpn.value(),
            self.sq_psn.value(),
            self.rq_psn.value(),
            FEATURE_IRN,
        ];
        for (word, at) in words.into_iter().zip((32..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}
