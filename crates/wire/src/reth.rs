//! RDMA extended transport header: the responder's memory that a request names (IBTA §9.3.3).

use crate::bytes;

/// Remote address, key and length of a WRITE or READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reth {
    /// Virtual address at the responder. On IRN's WRITE packets: of the message, not of the packet.
    pub va: u64,
    /// The key that grants access to it.
    pub rkey: u32,
    /// Length of the whole message in bytes, at most 2^31.
    pub length: u32,
}

impl Reth {
    /// Length on the wire.
    pub const LEN: usize = 16;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Reth::LEN]) -> Reth {
        Reth { va: bytes::u64(b, 0), rkey: bytes::u32(b, 8), length: bytes::u32(b, 12) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Reth::LEN]) {
        bytes::put(b, 0, self.va.to_be_bytes());
        bytes::put(b, 8, self.rkey.to_be_bytes());
        bytes::put(b, 12, self.length.to_be_bytes());
    }
}
