//! Acknowledge extended transport header: the responder's verdict on a request (IBTA §9.3.4, §9.7.5.2).

use std::fmt;

use highwire_stdx::Duration;

use crate::{HeaderName, ParseError, ParseErrorKind, bytes};

/// Syndrome and message sequence number of an acknowledgement or response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// Acknowledged, not ready, or refused.
    pub syndrome: Syndrome,
    /// Requests that the responder has completed, modulo 2^24.
    pub msn: u32,
}

/// The verdict that an AETH carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// All is well.
    Ack {
        /// Receive WQEs ready at the responder, as a code of five bits: see [`credit_count`].
        credits: u8,
    },
    /// No receive WQE is posted: try again.
    Rnr {
        /// How long to wait, as a code of five bits: see [`rnr_delay`].
        timer: u8,
    },
    /// The request is refused.
    Nak(NakCode),
}

/// Why a request is refused (IBTA §9.7.5.2.8, table 46).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A request is missing: send again from the PSN of this packet.
    PsnSequence = 0,
    /// The responder does not accept this operation here.
    InvalidRequest = 1,
    /// Key, bounds or rights do not allow the access.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperational = 3,
    /// The reliable datagram context is wrong.
    InvalidRd = 4,
}

impl Aeth {
    /// Length on the wire.
    pub const LEN: usize = 4;

    /// A positive acknowledgement that carries no credits.
    pub const fn ack(msn: u32) -> Aeth {
        Aeth { syndrome: Syndrome::Ack { credits: Syndrome::NO_CREDITS }, msn }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// A syndrome of a reserved kind or an unknown NAK code.
    #[inline]
    pub fn parse(b: &[u8; Aeth::LEN]) -> Result<Aeth, ParseError> {
        match Syndrome::from_u8(b[0]) {
            Some(syndrome) => Ok(Aeth { syndrome, msn: bytes::u24(b, 1) }),
            None => Err(ParseError::new(HeaderName::Aeth, 0, ParseErrorKind::UnknownSyndrome)),
        }
    }

    /// Writes the header; `msn` modulo 2^24.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Aeth::LEN]) {
        *b = (u32::from(self.syndrome.to_u8()) << 24 | self.msn & 0x00FF_FFFF).to_be_bytes();
    }
}

impl Syndrome {
    /// The credit code that stands for no number of credits.
    pub const NO_CREDITS: u8 = 31;

    /// The syndrome that `byte` stands for, unless it is reserved.
    #[inline]
    pub const fn from_u8(byte: u8) -> Option<Syndrome> {
        let value = byte & 0x1F;
        match byte >> 5 {
            0b000 => Some(Syndrome::Ack { credits: value }),
            0b001 => Some(Syndrome::Rnr { timer: value }),
            0b011 => match value {
                0 => Some(Syndrome::Nak(NakCode::PsnSequence)),
                1 => Some(Syndrome::Nak(NakCode::InvalidRequest)),
                2 => Some(Syndrome::Nak(NakCode::RemoteAccess)),
                3 => Some(Syndrome::Nak(NakCode::RemoteOperational)),
                4 => Some(Syndrome::Nak(NakCode::InvalidRd)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The byte on the wire.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & 0x1F,
            Syndrome::Rnr { timer } => 0x20 | timer & 0x1F,
            Syndrome::Nak(code) => 0x60 | code as u8,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syndrome::Ack { credits: Syndrome::NO_CREDITS } => f.write_str("ack"),
            Syndrome::Ack { credits } => write!(f, "ack credits {}", CREDITS[usize::from(credits & 0x1F)]),
            Syndrome::Rnr { timer } => write!(f, "rnr {:?}", std::time::Duration::from(rnr_delay(*timer))),
            Syndrome::Nak(code) => write!(f, "nak {code}"),
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NakCode::PsnSequence => "psn-sequence",
            NakCode::InvalidRequest => "invalid-request",
            NakCode::RemoteAccess => "remote-access",
            NakCode::RemoteOperational => "remote-operational",
            NakCode::InvalidRd => "invalid-rd",
        })
    }
}

/// IBTA §9.7.7.2, table 52; code 31 is no count.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// IBTA §9.7.5.2.8, table 45, in units of 10 µs.
const RNR_DELAYS_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Receive WQEs that a credit code stands for; `None` if it stands for no number. Only the low five bits
/// count.
#[inline]
pub fn credit_count(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code & 0x1F)).copied()
}

/// The largest credit code that promises no more than `count` receive WQEs.
#[inline]
pub fn credit_code(count: u32) -> u8 {
    (CREDITS.partition_point(|&c| c <= count) - 1) as u8
}

/// How long an RNR timer code asks to wait. Only the low five bits count.
#[inline]
pub fn rnr_delay(code: u8) -> Duration {
    Duration::from_micros(u64::from(RNR_DELAYS_10US[usize::from(code & 0x1F)]) * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_round_trips_or_is_refused() {
        let known = (0..=255u8).filter(|&b| Syndrome::from_u8(b).is_some_and(|s| s.to_u8() == b)).count();
        let parsed = (0..=255u8).filter(|&b| Syndrome::from_u8(b).is_some()).count();
        assert_eq!((known, parsed), (32 + 32 + 5, 32 + 32 + 5));
    }

    #[test]
    fn credit_codes_promise_no_more_than_there_is() {
        assert_eq!(credit_count(Syndrome::NO_CREDITS), None);
        assert_eq!(credit_count(30), Some(32768));
        assert_eq!(credit_code(u32::MAX), 30);
        for count in 0..40_000 {
            let code = credit_code(count);
            assert!(credit_count(code).expect("a code below 31 is a count") <= count);
            assert!(credit_count(code + 1).is_none_or(|more| more > count));
        }
    }

    #[test]
    fn rnr_timers_are_those_of_the_specification() {
        // IBTA §9.7.5.2.8, in units of 10 us.
        let expected = [
            65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536,
            2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
        ];
        for (code, tens) in expected.into_iter().enumerate() {
            assert_eq!(rnr_delay(code as u8), Duration::from_micros(10 * tens), "code {code}");
            assert_eq!(rnr_delay(code as u8 | 0xE0), Duration::from_micros(10 * tens), "five bits count");
        }
    }
}
