//! UDP header (RFC 768).

use crate::{HeaderName, ParseError, ParseErrorKind, bytes};

/// Ports, length and checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp {
    /// Any port; RoCEv2 senders spread their flows with it.
    pub source_port: u16,
    /// 4791 for RoCEv2: [`UDP_PORT`](crate::UDP_PORT).
    pub destination_port: u16,
    /// Length of header and payload.
    pub length: u16,
    /// Kept as it is and not verified: RoCEv2 has its ICRC, and rxe sends 0, which means no checksum.
    pub checksum: u16,
}

impl Udp {
    /// Length on the wire.
    pub const LEN: usize = 8;

    /// Reads the header.
    ///
    /// # Errors
    /// A length that does not cover the header.
    #[inline]
    pub fn parse(b: &[u8; Udp::LEN]) -> Result<Udp, ParseError> {
        let udp = Udp {
            source_port: bytes::u16(b, 0),
            destination_port: bytes::u16(b, 2),
            length: bytes::u16(b, 4),
            checksum: bytes::u16(b, 6),
        };
        if usize::from(udp.length) < Udp::LEN {
            return Err(ParseError::new(HeaderName::Udp, 4, ParseErrorKind::BadLength));
        }
        Ok(udp)
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Udp::LEN]) {
        bytes::put(b, 0, self.source_port.to_be_bytes());
        bytes::put(b, 2, self.destination_port.to_be_bytes());
        bytes::put(b, 4, self.length.to_be_bytes());
        bytes::put(b, 6, self.checksum.to_be_bytes());
    }
}
