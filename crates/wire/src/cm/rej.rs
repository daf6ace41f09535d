//! REJ: a refusal (IBTA §12.6.7).

use std::fmt;

use super::CmData;
use crate::bytes;

/// The message that a REJ refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// The REQ.
    Req,
    /// The REP.
    Rep,
    /// None in particular.
    None,
    /// A number that the specification leaves free.
    Reserved,
}

/// Why a message was refused (IBTA §12.6.7.2).
///
/// A number and not a list of cases: a peer's reason must survive whether or not this crate knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RejectReason(pub u16);

/// Reject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's identifier of the connection; 0 if it made none.
    pub local_id: u32,
    /// The receiver's identifier of the connection.
    pub remote_id: u32,
    /// The refused message.
    pub rejected: Rejected,
    /// The reason.
    pub reason: RejectReason,
    /// The valid bytes of the additional information, 7 bits.
    pub info_len: u8,
    /// Additional information, whose meaning depends on the reason.
    pub info: [u8; Rej::INFO_LEN],
    /// The consumer's data.
    pub private_data: [u8; Rej::PRIVATE_LEN],
}

impl RejectReason {
    /// No queue pair is available.
    pub const NO_QP: RejectReason = RejectReason(1);
    /// No resources are available.
    pub const NO_RESOURCES: RejectReason = RejectReason(3);
    /// An answer did not come in time.
    pub const TIMEOUT: RejectReason = RejectReason(4);
    /// The request is not supported.
    pub const UNSUPPORTED: RejectReason = RejectReason(5);
    /// The receiver does not know the identifier of the connection.
    pub const INVALID_COMMUNICATION_ID: RejectReason = RejectReason(6);
    /// The service has no listener.
    pub const INVALID_SERVICE_ID: RejectReason = RejectReason(8);
    /// The service type is not supported.
    pub const INVALID_TRANSPORT_TYPE: RejectReason = RejectReason(9);
    /// One end still holds a connection that the other has forgotten.
    pub const STALE_CONNECTION: RejectReason = RejectReason(10);
    /// The primary path's GID is not the receiver's.
    pub const INVALID_GID: RejectReason = RejectReason(12);
    /// The path MTU is not supported.
    pub const INVALID_MTU: RejectReason = RejectReason(26);
    /// Too few resources for READs and atomics.
    pub const INSUFFICIENT_RESPONDER_RESOURCES: RejectReason = RejectReason(27);
    /// The application refused.
    pub const CONSUMER: RejectReason = RejectReason(28);
    /// The requester's identifier is in use.
    pub const DUPLICATE_LOCAL_ID: RejectReason = RejectReason(30);
    /// The options of the enhanced connection establishment are not supported.
    pub const VENDOR_OPTION: RejectReason = RejectReason(35);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            RejectReason::NO_QP => "no queue pair",
            RejectReason::NO_RESOURCES => "no resources",
            RejectReason::TIMEOUT => "timeout",
            RejectReason::UNSUPPORTED => "unsupported request",
            RejectReason::INVALID_COMMUNICATION_ID => "invalid communication id",
            RejectReason::INVALID_SERVICE_ID => "nobody listens",
            RejectReason::INVALID_TRANSPORT_TYPE => "invalid transport type",
            RejectReason::STALE_CONNECTION => "stale connection",
            RejectReason::INVALID_GID => "invalid GID",
            RejectReason::INVALID_MTU => "invalid path MTU",
            RejectReason::INSUFFICIENT_RESPONDER_RESOURCES => "insufficient responder resources",
            RejectReason::CONSUMER => "rejected by the application",
            RejectReason::DUPLICATE_LOCAL_ID => "duplicate local communication id",
            RejectReason::VENDOR_OPTION => "vendor option not supported",
            RejectReason(code) => return write!(f, "reason {code}"),
        })
    }
}

impl Rej {
    /// Length of the additional information.
    pub const INFO_LEN: usize = 72;
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 148;
    const INFO: usize = 12;
    const PRIVATE: usize = Rej::INFO + Rej::INFO_LEN;

    pub(super) fn parse(b: &CmData) -> Rej {
        Rej {
            local_id: bytes::u32(b, 0),
            remote_id: bytes::u32(b, 4),
            rejected: match b[8] >> 6 {
                0 => Rejected::Req,
                1 => Rejected::Rep,
                2 => Rejected::None,
                _ => Rejected::Reserved,
            },
            info_len: b[9] >> 1,
            reason: RejectReason(bytes::u16(b, 10)),
            info: super::private(b, Rej::INFO),
            private_data: super::private(b, Rej::PRIVATE),
        }
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        bytes::put(b, 0, self.local_id.to_be_bytes());
        bytes::put(b, 4, self.remote_id.to_be_bytes());
        b[8] = (self.rejected as u8) << 6;
        b[9] = self.info_len << 1;
        bytes::put(b, 10, self.reason.0.to_be_bytes());
        bytes::put(b, Rej::INFO, self.info);
        bytes::put(b, Rej::PRIVATE, self.private_data);
    }
}
