//! Base transport header: twelve bytes that begin every packet (IBTA §9.2).
//!
//! ```text
//!  0               1               2               3
//! +---------------+-+-+---+-------+-------------------------------+
//! |    opcode     |S|M|pad| tver  |            P_Key              |
//! +-+-+-----------+---------------+-------------------------------+
//! |F|B| reserved6 |               destination QPN                 |
//! +-+-+-----------+-----------------------------------------------+
//! |A|  reserved7  |                     PSN                       |
//! +-+-------------+-----------------------------------------------+
//! ```

use crate::{HeaderName, Opcode, ParseError, ParseErrorKind, Psn, Qpn, bytes};

/// The partition that every port is a full member of; RoCEv2 knows no other (RoCEv2 A17.7).
pub const DEFAULT_PKEY: u16 = 0xFFFF;

/// Base transport header. Every bit is kept, so a parsed header re-emits exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// The operation, and which extension headers follow.
    pub opcode: Opcode,
    /// SE: the sender wants the receiver to be woken for this message.
    pub solicited: bool,
    /// M: path migration state. Linux' rxe sends 0.
    pub mig_req: bool,
    /// Bytes of padding between payload and ICRC, 0–3.
    pub pad_count: u8,
    /// Version of the transport, four bits; only 0 exists.
    pub transport_version: u8,
    /// Partition key.
    pub pkey: u16,
    /// F: a switch saw congestion on the way.
    pub fecn: bool,
    /// B: the destination's sender causes congestion.
    pub becn: bool,
    /// Reserved, six bits; together with F and B outside the ICRC.
    pub reserved6: u8,
    /// The queue pair to which this packet goes.
    pub dest_qpn: Qpn,
    /// A: the requester wants an acknowledgement.
    pub ack_request: bool,
    /// Reserved, seven bits.
    pub reserved7: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Length on the wire.
    pub const LEN: usize = 12;

    /// A header with no flag set, no padding and the default partition.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qpn: Qpn, psn: Psn) -> Bth {
        Bth {
            opcode,
            solicited: false,
            mig_req: false,
            pad_count: 0,
            transport_version: 0,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            reserved6: 0,
            dest_qpn,
            ack_request: false,
            reserved7: 0,
            psn,
        }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// An unknown opcode or a transport version other than 0.
    #[inline(always)]
    pub fn parse(b: &[u8; Bth::LEN]) -> Result<Bth, ParseError> {
        let Some(opcode) = Opcode::from_u8(b[0]) else {
            return Err(ParseError::new(HeaderName::Bth, 0, ParseErrorKind::UnknownOpcode));
        };
        if b[1] & 0x0F != 0 {
            return Err(ParseError::new(HeaderName::Bth, 1, ParseErrorKind::BadVersion));
        }
        Ok(Bth {
            opcode,
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad_count: b[1] >> 4 & 3,
            transport_version: b[1] & 0x0F,
            pkey: bytes::u16(b, 2),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            reserved6: b[4] & 0x3F,
            dest_qpn: Qpn::new(bytes::u24(b, 5)),
            ack_request: b[8] & 0x80 != 0,
            reserved7: b[8] & 0x7F,
            psn: Psn::new(bytes::u24(b, 9)),
        })
    }

    /// Writes the header; fields wider than their bits are cut.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Bth::LEN]) {
        let flags = u8::from(self.solicited) << 7
            | u8::from(self.mig_req) << 6
            | (self.pad_count & 3) << 4
            | self.transport_version & 0x0F;
        let word0 = u32::from(self.opcode.to_u8()) << 24 | u32::from(flags) << 16 | u32::from(self.pkey);
        let marks = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6 | self.reserved6 & 0x3F;
        let ack = u8::from(self.ack_request) << 7 | self.reserved7 & 0x7F;
        bytes::put(b, 0, word0.to_be_bytes());
        bytes::put(b, 4, (u32::from(marks) << 24 | self.dest_qpn.value()).to_be_bytes());
        bytes::put(b, 8, (u32::from(ack) << 24 | self.psn.value()).to_be_bytes());
    }
}
