//! REP: reply to a request for communication (IBTA §12.6.8).

use super::CmData;
use crate::{Psn, Qpn, bytes};

/// Reply to a request for communication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// The responder's identifier of the connection.
    pub local_id: u32,
    /// The requester's identifier of the connection.
    pub remote_id: u32,
    /// Q_Key; 0 for connections.
    pub qkey: u32,
    /// The responder's queue pair.
    pub qpn: Qpn,
    /// Vendor of the enhanced connection establishment's options, 24 bits; 0 for none.
    pub ece_vendor: u32,
    /// The PSN at which the *requester* is to begin sending.
    pub starting_psn: Psn,
    /// READs and atomics that the responder can have outstanding as a responder.
    pub responder_resources: u8,
    /// READs and atomics that the responder will have outstanding.
    pub initiator_depth: u8,
    /// How long the responder's acknowledgements may take, as an exponent, 5 bits.
    pub target_ack_delay: u8,
    /// The responder's answer to the alternate path, 2 bits: 0 accepted, 1 not supported, 2 rejected.
    pub failover: u8,
    /// Whether the responder does end-to-end flow control.
    pub has_flow_control: bool,
    /// RNR retries that the requester is to make, 3 bits.
    pub rnr_retry_count: u8,
    /// Whether the responder's queue pair has a shared receive queue.
    pub has_srq: bool,
    /// GUID of the responder's channel adapter.
    pub ca_guid: u64,
    /// The consumer's data.
    pub private_data: [u8; Rep::PRIVATE_LEN],
}

impl Rep {
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 196;
    const PRIVATE: usize = 36;

    pub(super) fn parse(b: &CmData) -> Rep {
        Rep {
            local_id: bytes::u32(b, 0),
            remote_id: bytes::u32(b, 4),
            qkey: bytes::u32(b, 8),
            qpn: Qpn::new(bytes::u24(b, 12)),
            // The vendor lies, lowest byte first, in three bytes that used to be reserved.
            ece_vendor: u32::from(b[15]) | u32::from(b[19]) << 8 | u32::from(b[23]) << 16,
            starting_psn: Psn::new(bytes::u24(b, 20)),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover: b[26] >> 1 & 3,
            has_flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            has_srq: b[27] & 0x10 != 0,
            ca_guid: bytes::u64(b, 28),
            private_data: super::private(b, Rep::PRIVATE),
        }
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        let [low, middle, high, _] = self.ece_vendor.to_le_bytes();
        bytes::put(b, 0, self.local_id.to_be_bytes());
        bytes::put(b, 4, self.remote_id.to_be_bytes());
        bytes::put(b, 8, self.qkey.to_be_bytes());
        bytes::put(b, 12, (self.qpn.value() << 8 | u32::from(low)).to_be_bytes());
        b[19] = middle;
        bytes::put(b, 20, (self.starting_psn.value() << 8 | u32::from(high)).to_be_bytes());
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        b[26] =
            (self.target_ack_delay & 0x1F) << 3 | (self.failover & 3) << 1 | u8::from(self.has_flow_control);
        b[27] = (self.rnr_retry_count & 7) << 5 | u8::from(self.has_srq) << 4;
        bytes::put(b, 28, self.ca_guid.to_be_bytes());
        bytes::put(b, Rep::PRIVATE, self.private_data);
    }
}
