//! DREQ and DREP: the end of a connection (IBTA §12.6.10, §12.6.11).

use super::CmData;
use crate::{Qpn, bytes};

/// Request for disconnection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// The sender's identifier of the connection.
    pub local_id: u32,
    /// The receiver's identifier of the connection.
    pub remote_id: u32,
    /// The receiver's queue pair: proof that the sender means this connection.
    pub remote_qpn: Qpn,
    /// The consumer's data.
    pub private_data: [u8; Dreq::PRIVATE_LEN],
}

/// Reply to a request for disconnection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    /// The sender's identifier of the connection.
    pub local_id: u32,
    /// The receiver's identifier of the connection.
    pub remote_id: u32,
    /// The consumer's data.
    pub private_data: [u8; Drep::PRIVATE_LEN],
}

impl Dreq {
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 220;

    pub(super) fn parse(b: &CmData) -> Dreq {
        Dreq {
            local_id: bytes::u32(b, 0),
            remote_id: bytes::u32(b, 4),
            remote_qpn: Qpn::new(bytes::u24(b, 8)),
            private_data: super::private(b, 12),
        }
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        bytes::put(b, 0, self.local_id.to_be_bytes());
        bytes::put(b, 4, self.remote_id.to_be_bytes());
        bytes::put(b, 8, (self.remote_qpn.value() << 8).to_be_bytes());
        bytes::put(b, 12, self.private_data);
    }
}

impl Drep {
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 224;

    pub(super) fn parse(b: &CmData) -> Drep {
        Drep { local_id: bytes::u32(b, 0), remote_id: bytes::u32(b, 4), private_data: super::private(b, 8) }
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        bytes::put(b, 0, self.local_id.to_be_bytes());
        bytes::put(b, 4, self.remote_id.to_be_bytes());
        bytes::put(b, 8, self.private_data);
    }
}
