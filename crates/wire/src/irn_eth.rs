//! The headers that IRN adds to RoCEv2, version 2 (IRN §5.2, §5.3). Formats: `docs/wire-irn.md`.
//!
//! They appear only under opcodes of the manufacturer range and only between peers that agreed on them, so a field
//! that this version does not define is an error, not something to skip.

use crate::{HeaderName, ParseError, ParseErrorKind, Psn, bytes};

/// The version of the IRN extension that this crate speaks. Version 1 had its opcodes at 0xC0, where OCP MRC
/// 1.0 has some.
pub const IRN_VERSION: u8 = 2;

const MASK_24: u32 = 0x00FF_FFFF;

/// The header of every packet of an IRN message, by which the responder can place it without its
/// predecessors.
///
/// Kept as the two words of the wire, so that it is always valid and eight bytes small.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IrnEth {
    /// Version, flags, WQE sequence number.
    head: u32,
    /// Packet offset.
    offset: u32,
}

/// One bit each for the properties of a packet of an IRN message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IrnFlags(u8);

/// A run of packets that arrived beyond the cumulative acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SackEth {
    /// PSN of the last packet of the run.
    pub psn: Psn,
    /// Packets in the run, at least 1; exactly 1 is the paper's NACK.
    pub count: u8,
}

impl IrnFlags {
    /// No flag.
    pub const NONE: IrnFlags = IrnFlags(0);
    /// The last packet of its message: the message's length follows from its offset.
    pub const LAST: IrnFlags = IrnFlags(1);
    /// Sent before under this PSN. The receiver measures loss by it; the protocol ignores it.
    pub const RETRANSMITTED: IrnFlags = IrnFlags(2);

    const DEFINED: u8 = 3;

    /// Both sets of flags.
    #[must_use]
    #[inline]
    pub const fn with(self, other: IrnFlags) -> IrnFlags {
        IrnFlags(self.0 | other.0)
    }

    /// Whether every flag of `other` is set.
    #[inline]
    pub const fn has(self, other: IrnFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl IrnEth {
    /// Length on the wire.
    pub const LEN: usize = 8;

    /// The header of packet number `offset` (from 0) of a message. Both numbers are taken modulo 2^24.
    ///
    /// `wqe_sn` is recv_WQE_SN on SENDs and WRITEs with immediate, read_WQE_SN on READs, atomics and their
    /// responses; on other WRITEs it means nothing.
    #[inline]
    pub const fn new(wqe_sn: u32, offset: u32, flags: IrnFlags) -> IrnEth {
        IrnEth {
            head: (IRN_VERSION as u32) << 28 | (flags.0 as u32) << 24 | wqe_sn & MASK_24,
            offset: offset & MASK_24,
        }
    }

    /// The responder's work queue element to which this message belongs, modulo 2^24.
    #[inline]
    pub const fn wqe_sn(self) -> u32 {
        self.head & MASK_24
    }

    /// The packet's place in its message: it begins `offset` × path MTU bytes into it.
    #[inline]
    pub const fn offset(self) -> u32 {
        self.offset
    }

    /// The packet's flags.
    #[inline]
    pub const fn flags(self) -> IrnFlags {
        IrnFlags((self.head >> 24) as u8 & 0xF)
    }

    /// Whether this is the first packet of its message.
    #[inline]
    pub const fn is_first(self) -> bool {
        self.offset == 0
    }

    /// Whether this is the last packet of its message.
    #[inline]
    pub const fn is_last(self) -> bool {
        self.flags().has(IrnFlags::LAST)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Another version, or reserved bits that are set.
    #[inline]
    pub fn parse(b: &[u8; IrnEth::LEN]) -> Result<IrnEth, ParseError> {
        let header = IrnEth { head: bytes::u32(b, 0), offset: bytes::u32(b, 4) };
        if header.head >> 28 != u32::from(IRN_VERSION) {
            return Err(ParseError::new(HeaderName::IrnEth, 0, ParseErrorKind::BadVersion));
        }
        if header.flags().0 & !IrnFlags::DEFINED != 0 {
            return Err(ParseError::new(HeaderName::IrnEth, 0, ParseErrorKind::ReservedBits));
        }
        if header.offset & !MASK_24 != 0 {
            return Err(ParseError::new(HeaderName::IrnEth, 4, ParseErrorKind::ReservedBits));
        }
        Ok(header)
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; IrnEth::LEN]) {
        bytes::put(b, 0, self.head.to_be_bytes());
        bytes::put(b, 4, self.offset.to_be_bytes());
    }
}

impl std::fmt::Debug for IrnEth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IrnEth")
            .field("wqe_sn", &self.wqe_sn())
            .field("offset", &self.offset())
            .field("last", &self.is_last())
            .field("retransmitted", &self.flags().has(IrnFlags::RETRANSMITTED))
            .finish()
    }
}

/// The cumulative acknowledgement of the other direction that rides on a request: the BTH's PSN is the
/// request's.
pub(crate) mod cumulative {
    use crate::{HeaderName, ParseError, ParseErrorKind, Psn, bytes};

    /// Length on the wire.
    pub(crate) const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub(crate) fn parse(b: &[u8; LEN]) -> Result<Psn, ParseError> {
        if b[3] != 0 {
            return Err(ParseError::new(HeaderName::CumulativeEth, 3, ParseErrorKind::ReservedBits));
        }
        Ok(Psn::new(bytes::u24(b, 0)))
    }

    /// Writes the header.
    #[inline]
    pub(crate) fn emit(psn: Psn, b: &mut [u8; LEN]) {
        *b = (psn.value() << 8).to_be_bytes();
    }
}

impl SackEth {
    /// Length on the wire.
    pub const LEN: usize = 4;

    /// The paper's selective acknowledgement: one packet.
    pub const fn one(psn: Psn) -> SackEth {
        SackEth { psn, count: 1 }
    }

    /// PSN of the first packet of the run.
    pub const fn first(self) -> Psn {
        self.psn.sub(self.count.saturating_sub(1) as u32)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// A run of no packets.
    #[inline]
    pub fn parse(b: &[u8; SackEth::LEN]) -> Result<SackEth, ParseError> {
        if b[3] == 0 {
            return Err(ParseError::new(HeaderName::SackEth, 3, ParseErrorKind::BadValue));
        }
        Ok(SackEth { psn: Psn::new(bytes::u24(b, 0)), count: b[3] })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; SackEth::LEN]) {
        debug_assert!(self.count > 0, "a selective acknowledgement names at least one packet");
        *b = (self.psn.value() << 8 | u32::from(self.count)).to_be_bytes();
    }
}
