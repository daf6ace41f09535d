//! Opcodes as a table: the meaning of each packet and the headers that follow it (IBTA §9.2.1, §9.4).
//!
//! 0x00–0xBF are IBTA's, of which this crate knows RC, UC, UD, XRC and CNP. 0xC0–0xFF belong to
//! manufacturers; Highwire's are 0xD0–0xDF, and only peers that agreed on them use them.
//! `tests/golden/opcodes.txt` is the table as text.

use std::fmt;

/// Everything that follows from an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpcodeInfo {
    /// The opcode that this describes.
    pub opcode: Opcode,
    /// Its name in traces, as in `RC_SEND_ONLY`.
    pub name: &'static str,
    /// The service to which it belongs; none for CNPs.
    pub service: Option<Service>,
    /// The operation that the packet requests or answers.
    pub operation: Operation,
    /// The packet's position in its message.
    pub position: Position,
    /// The extension headers that follow the BTH.
    pub layout: Layout,
    /// Whether payload may follow the headers.
    pub has_payload: bool,
}

/// The transport service that a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection (IBTA A14).
    Xrc,
}

/// The operation that a packet requests or answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Message to a receive WQE.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    Read,
    /// Data of an RDMA READ.
    ReadResponse,
    /// Compare-and-swap request.
    CompareSwap,
    /// Fetch-and-add request.
    FetchAdd,
    /// Original value of an atomic.
    AtomicResponse,
    /// Acknowledgement of requests.
    Acknowledge,
    /// IRN: cumulative and selective acknowledgement of requests.
    SelectiveAcknowledge,
    /// IRN: acknowledgement of READ responses.
    ReadAcknowledge,
    /// IRN: cumulative and selective acknowledgement of READ responses.
    ReadSelectiveAcknowledge,
    /// Congestion notification.
    Congestion,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    Only,
    /// IRN: the packet's [`IrnEth`](crate::IrnEth) tells its position.
    Any,
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident $len:literal;)*) => {
        /// The extension headers of a packet, named as the variants of [`Ext`](crate::Ext).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Layout { $($(#[$doc])* $name,)* }

        impl Layout {
            /// Every layout.
            pub const ALL: &'static [Layout] = &[$(Layout::$name,)*];

            /// Length of these headers in bytes, without the BTH.
            #[inline]
            pub const fn len(self) -> usize {
                match self { $(Layout::$name => $len,)* }
            }
        }
    };
}

layouts! {
    /// BTH alone.
    None 0;
    /// ImmDt.
    Imm 4;
    /// IETH.
    Invalidate 4;
    /// RETH.
    Reth 16;
    /// RETH, ImmDt.
    RethImm 20;
    /// AETH.
    Aeth 4;
    /// AETH, AtomicAckETH.
    AtomicAck 12;
    /// AtomicETH.
    Atomic 28;
    /// DETH.
    Deth 8;
    /// DETH, ImmDt.
    DethImm 12;
    /// Sixteen reserved bytes.
    Cnp 16;
    /// XRCETH.
    Xrc 4;
    /// XRCETH, ImmDt.
    XrcImm 8;
    /// XRCETH, IETH.
    XrcInvalidate 8;
    /// XRCETH, RETH.
    XrcReth 20;
    /// XRCETH, RETH, ImmDt.
    XrcRethImm 24;
    /// XRCETH, AtomicETH.
    XrcAtomic 32;
    /// IrnETH.
    IrnSend 8;
    /// IrnETH, ImmDt.
    IrnSendImm 12;
    /// IrnETH, IETH.
    IrnSendInvalidate 12;
    /// IrnETH, RETH.
    IrnWrite 24;
    /// IrnETH, RETH, ImmDt.
    IrnWriteImm 28;
    /// IrnETH, RETH.
    IrnRead 24;
    /// IrnETH, AtomicETH.
    IrnAtomic 36;
    /// IrnETH, AETH.
    IrnReadResponse 12;
    /// IrnETH, AETH, AtomicAckETH.
    IrnAtomicResponse 20;
    /// AETH.
    IrnAck 4;
    /// AETH, SackETH.
    IrnNack 8;
    /// BTH alone.
    IrnReadAck 0;
    /// SackETH.
    IrnReadNack 4;
    /// IrnETH, AETH, CumulativeETH.
    IrnSendAck 16;
    /// IrnETH, RETH, AETH, CumulativeETH.
    IrnWriteAck 32;
}

impl Layout {
    /// Whether no extension header follows.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

macro_rules! opcodes {
    ($($name:ident $code:literal $text:literal $service:expr, $operation:ident $position:ident $layout:ident $payload:literal;)*) => {
        /// The first byte of a packet.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode {
            $(#[doc = concat!("`", $text, "`")] $name = $code,)*
        }

        impl Opcode {
            /// Every opcode, ascending.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];
        }

        static TABLE: [Option<OpcodeInfo>; 256] = {
            let mut table = [None; 256];
            $(table[$code] = Some(OpcodeInfo {
                opcode: Opcode::$name,
                name: $text,
                service: $service,
                operation: Operation::$operation,
                position: Position::$position,
                layout: Layout::$layout,
                has_payload: $payload,
            });)*
            table
        };
    };
}

const RC: Option<Service> = Some(Service::Rc);
const UC: Option<Service> = Some(Service::Uc);
const UD: Option<Service> = Some(Service::Ud);
const XRC: Option<Service> = Some(Service::Xrc);

opcodes! {
    RcSendFirst 0x00 "RC_SEND_FIRST" RC, Send First None true;
    RcSendMiddle 0x01 "RC_SEND_MIDDLE" RC, Send Middle None true;
    RcSendLast 0x02 "RC_SEND_LAST" RC, Send Last None true;
    RcSendLastImm 0x03 "RC_SEND_LAST_IMM" RC, Send Last Imm true;
    RcSendOnly 0x04 "RC_SEND_ONLY" RC, Send Only None true;
    RcSendOnlyImm 0x05 "RC_SEND_ONLY_IMM" RC, Send Only Imm true;
    RcWriteFirst 0x06 "RC_WRITE_FIRST" RC, Write First Reth true;
    RcWriteMiddle 0x07 "RC_WRITE_MIDDLE" RC, Write Middle None true;
    RcWriteLast 0x08 "RC_WRITE_LAST" RC, Write Last None true;
    RcWriteLastImm 0x09 "RC_WRITE_LAST_IMM" RC, Write Last Imm true;
    RcWriteOnly 0x0A "RC_WRITE_ONLY" RC, Write Only Reth true;
    RcWriteOnlyImm 0x0B "RC_WRITE_ONLY_IMM" RC, Write Only RethImm true;
    RcRead 0x0C "RC_READ" RC, Read Only Reth false;
    RcReadResponseFirst 0x0D "RC_READ_RESPONSE_FIRST" RC, ReadResponse First Aeth true;
    RcReadResponseMiddle 0x0E "RC_READ_RESPONSE_MIDDLE" RC, ReadResponse Middle None true;
    RcReadResponseLast 0x0F "RC_READ_RESPONSE_LAST" RC, ReadResponse Last Aeth true;
    RcReadResponseOnly 0x10 "RC_READ_RESPONSE_ONLY" RC, ReadResponse Only Aeth true;
    RcAck 0x11 "RC_ACK" RC, Acknowledge Only Aeth false;
    RcAtomicAck 0x12 "RC_ATOMIC_ACK" RC, AtomicResponse Only AtomicAck false;
    RcCompareSwap 0x13 "RC_COMPARE_SWAP" RC, CompareSwap Only Atomic false;
    RcFetchAdd 0x14 "RC_FETCH_ADD" RC, FetchAdd Only Atomic false;
    RcSendLastInvalidate 0x16 "RC_SEND_LAST_INV" RC, Send Last Invalidate true;
    RcSendOnlyInvalidate 0x17 "RC_SEND_ONLY_INV" RC, Send Only Invalidate true;

    UcSendFirst 0x20 "UC_SEND_FIRST" UC, Send First None true;
    UcSendMiddle 0x21 "UC_SEND_MIDDLE" UC, Send Middle None true;
    UcSendLast 0x22 "UC_SEND_LAST" UC, Send Last None true;
    UcSendLastImm 0x23 "UC_SEND_LAST_IMM" UC, Send Last Imm true;
    UcSendOnly 0x24 "UC_SEND_ONLY" UC, Send Only None true;
    UcSendOnlyImm 0x25 "UC_SEND_ONLY_IMM" UC, Send Only Imm true;
    UcWriteFirst 0x26 "UC_WRITE_FIRST" UC, Write First Reth true;
    UcWriteMiddle 0x27 "UC_WRITE_MIDDLE" UC, Write Middle None true;
    UcWriteLast 0x28 "UC_WRITE_LAST" UC, Write Last None true;
    UcWriteLastImm 0x29 "UC_WRITE_LAST_IMM" UC, Write Last Imm true;
    UcWriteOnly 0x2A "UC_WRITE_ONLY" UC, Write Only Reth true;
    UcWriteOnlyImm 0x2B "UC_WRITE_ONLY_IMM" UC, Write Only RethImm true;

    UdSendOnly 0x64 "UD_SEND_ONLY" UD, Send Only Deth true;
    UdSendOnlyImm 0x65 "UD_SEND_ONLY_IMM" UD, Send Only DethImm true;

    Cnp 0x81 "CNP" None, Congestion Only Cnp false;

    XrcSendFirst 0xA0 "XRC_SEND_FIRST" XRC, Send First Xrc true;
    XrcSendMiddle 0xA1 "XRC_SEND_MIDDLE" XRC, Send Middle Xrc true;
    XrcSendLast 0xA2 "XRC_SEND_LAST" XRC, Send Last Xrc true;
    XrcSendLastImm 0xA3 "XRC_SEND_LAST_IMM" XRC, Send Last XrcImm true;
    XrcSendOnly 0xA4 "XRC_SEND_ONLY" XRC, Send Only Xrc true;
    XrcSendOnlyImm 0xA5 "XRC_SEND_ONLY_IMM" XRC, Send Only XrcImm true;
    XrcWriteFirst 0xA6 "XRC_WRITE_FIRST" XRC, Write First XrcReth true;
    XrcWriteMiddle 0xA7 "XRC_WRITE_MIDDLE" XRC, Write Middle Xrc true;
    XrcWriteLast 0xA8 "XRC_WRITE_LAST" XRC, Write Last Xrc true;
    XrcWriteLastImm 0xA9 "XRC_WRITE_LAST_IMM" XRC, Write Last XrcImm true;
    XrcWriteOnly 0xAA "XRC_WRITE_ONLY" XRC, Write Only XrcReth true;
    XrcWriteOnlyImm 0xAB "XRC_WRITE_ONLY_IMM" XRC, Write Only XrcRethImm true;
    XrcRead 0xAC "XRC_READ" XRC, Read Only XrcReth false;
    XrcReadResponseFirst 0xAD "XRC_READ_RESPONSE_FIRST" XRC, ReadResponse First Aeth true;
    XrcReadResponseMiddle 0xAE "XRC_READ_RESPONSE_MIDDLE" XRC, ReadResponse Middle None true;
    XrcReadResponseLast 0xAF "XRC_READ_RESPONSE_LAST" XRC, ReadResponse Last Aeth true;
    XrcReadResponseOnly 0xB0 "XRC_READ_RESPONSE_ONLY" XRC, ReadResponse Only Aeth true;
    XrcAck 0xB1 "XRC_ACK" XRC, Acknowledge Only Aeth false;
    XrcAtomicAck 0xB2 "XRC_ATOMIC_ACK" XRC, AtomicResponse Only AtomicAck false;
    XrcCompareSwap 0xB3 "XRC_COMPARE_SWAP" XRC, CompareSwap Only XrcAtomic false;
    XrcFetchAdd 0xB4 "XRC_FETCH_ADD" XRC, FetchAdd Only XrcAtomic false;
    XrcSendLastInvalidate 0xB6 "XRC_SEND_LAST_INV" XRC, Send Last XrcInvalidate true;
    XrcSendOnlyInvalidate 0xB7 "XRC_SEND_ONLY_INV" XRC, Send Only XrcInvalidate true;

    IrnSend 0xD0 "IRN_SEND" RC, Send Any IrnSend true;
    IrnSendImm 0xD1 "IRN_SEND_IMM" RC, Send Any IrnSendImm true;
    IrnSendInvalidate 0xD2 "IRN_SEND_INV" RC, Send Any IrnSendInvalidate true;
    IrnWrite 0xD3 "IRN_WRITE" RC, Write Any IrnWrite true;
    IrnWriteImm 0xD4 "IRN_WRITE_IMM" RC, Write Any IrnWriteImm true;
    IrnRead 0xD5 "IRN_READ" RC, Read Only IrnRead false;
    IrnCompareSwap 0xD6 "IRN_COMPARE_SWAP" RC, CompareSwap Only IrnAtomic false;
    IrnFetchAdd 0xD7 "IRN_FETCH_ADD" RC, FetchAdd Only IrnAtomic false;
    IrnReadResponse 0xD8 "IRN_READ_RESPONSE" RC, ReadResponse Any IrnReadResponse true;
    IrnAtomicResponse 0xD9 "IRN_ATOMIC_RESPONSE" RC, AtomicResponse Only IrnAtomicResponse false;
    IrnAck 0xDA "IRN_ACK" RC, Acknowledge Only IrnAck false;
    IrnNack 0xDB "IRN_NACK" RC, SelectiveAcknowledge Only IrnNack false;
    IrnReadAck 0xDC "IRN_READ_ACK" RC, ReadAcknowledge Only IrnReadAck false;
    IrnReadNack 0xDD "IRN_READ_NACK" RC, ReadSelectiveAcknowledge Only IrnReadNack false;
    IrnSendAck 0xDE "IRN_SEND_ACK" RC, Send Any IrnSendAck true;
    IrnWriteAck 0xDF "IRN_WRITE_ACK" RC, Write Any IrnWriteAck true;
}

impl Opcode {
    /// The opcode that `byte` stands for, if it is one.
    #[inline]
    pub const fn from_u8(byte: u8) -> Option<Opcode> {
        match &TABLE[byte as usize] {
            Some(info) => Some(info.opcode),
            None => None,
        }
    }

    /// The byte on the wire.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// What this opcode means.
    #[inline]
    pub fn info(self) -> &'static OpcodeInfo {
        TABLE[self as usize].as_ref().expect("the macro gives every opcode a row")
    }

    /// Whether every RoCEv2 implementation may receive this opcode.
    #[inline]
    pub const fn is_standard(self) -> bool {
        !self.is_irn()
    }

    /// Whether this opcode is one of Highwire's, for peers that agreed on IRN.
    #[inline]
    pub const fn is_irn(self) -> bool {
        self as u8 >> 4 == 0xD
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.info().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_exactly_the_opcodes() {
        let known: Vec<Opcode> = (0..=255).filter_map(Opcode::from_u8).collect();
        assert_eq!(known, Opcode::ALL);
        assert!(known.iter().all(|o| o.info().opcode == *o && Opcode::from_u8(o.to_u8()) == Some(*o)));
    }

    #[test]
    fn no_opcode_of_ours_is_another_transports() {
        let ours: Vec<u8> = Opcode::ALL.iter().filter(|o| o.is_irn()).map(|o| o.to_u8()).collect();
        assert_eq!(ours, (0xD0..=0xDF).collect::<Vec<u8>>());
        // The opcodes of OCP MRC 1.0, and those that Linux keeps for manufacturers and hfi1's TID RDMA uses.
        let taken = (0xC6..=0xCB).chain(0xE0..=0xFF);
        assert!(taken.into_iter().all(|byte| Opcode::from_u8(byte).is_none()));
    }

    #[test]
    fn nothing_of_ours_is_standard() {
        assert!(Opcode::ALL.iter().all(|o| o.is_irn() == o.info().name.starts_with("IRN_")));
        assert!(Opcode::ALL.iter().all(|o| o.is_irn() != o.is_standard()));
    }
}
