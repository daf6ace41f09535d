//! MRA: the message arrived, its answer takes a while (IBTA §12.6.6).

use super::CmData;
use crate::{HeaderName, ParseError, ParseErrorKind, bytes};

/// The message that an MRA answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answered {
    /// The REQ.
    Req,
    /// The REP.
    Rep,
    /// The LAP.
    Lap,
}

/// Message receipt acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// The sender's identifier of the connection.
    pub local_id: u32,
    /// The receiver's identifier of the connection.
    pub remote_id: u32,
    /// The message that arrived.
    pub answered: Answered,
    /// How long the answer may take, as an exponent: 4.096 µs · 2^n, 5 bits.
    pub service_timeout: u8,
    /// The consumer's data.
    pub private_data: [u8; Mra::PRIVATE_LEN],
}

impl Mra {
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 222;

    pub(super) fn parse(b: &CmData) -> Result<Mra, ParseError> {
        let answered = match b[8] >> 6 {
            0 => Answered::Req,
            1 => Answered::Rep,
            2 => Answered::Lap,
            _ => return Err(ParseError::new(HeaderName::Mad, 24 + 8, ParseErrorKind::BadValue)),
        };
        Ok(Mra {
            local_id: bytes::u32(b, 0),
            remote_id: bytes::u32(b, 4),
            answered,
            service_timeout: b[9] >> 3,
            private_data: super::private(b, 10),
        })
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        bytes::put(b, 0, self.local_id.to_be_bytes());
        bytes::put(b, 4, self.remote_id.to_be_bytes());
        b[8] = (self.answered as u8) << 6;
        b[9] = (self.service_timeout & 0x1F) << 3;
        bytes::put(b, 10, self.private_data);
    }
}
