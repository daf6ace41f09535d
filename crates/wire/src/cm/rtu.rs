//! RTU: ready to use (IBTA §12.6.9).

use super::CmData;
use crate::bytes;

/// The requester has its reply and may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtu {
    /// The requester's identifier of the connection.
    pub local_id: u32,
    /// The responder's identifier of the connection.
    pub remote_id: u32,
    /// The consumer's data.
    pub private_data: [u8; Rtu::PRIVATE_LEN],
}

impl Rtu {
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 224;

    pub(super) fn parse(b: &CmData) -> Rtu {
        Rtu { local_id: bytes::u32(b, 0), remote_id: bytes::u32(b, 4), private_data: super::private(b, 8) }
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        bytes::put(b, 0, self.local_id.to_be_bytes());
        bytes::put(b, 4, self.remote_id.to_be_bytes());
        bytes::put(b, 8, self.private_data);
    }
}
