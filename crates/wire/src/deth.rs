//! Datagram extended transport header: the sending queue pair, and the key that admits the datagram (IBTA
//! §9.3.2).

use crate::{Qpn, bytes};

/// Q_Key and sender of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deth {
    /// Must equal the receiving queue pair's Q_Key.
    pub qkey: u32,
    /// The sending queue pair.
    pub source_qpn: Qpn,
}

impl Deth {
    /// Length on the wire.
    pub const LEN: usize = 8;

    /// Reads the header. The reserved byte is ignored.
    #[inline]
    pub fn parse(b: &[u8; Deth::LEN]) -> Deth {
        Deth { qkey: bytes::u32(b, 0), source_qpn: Qpn::new(bytes::u24(b, 5)) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Deth::LEN]) {
        bytes::put(b, 0, self.qkey.to_be_bytes());
        bytes::put(b, 4, self.source_qpn.value().to_be_bytes());
    }
}
