//! The common MAD header, as connection management uses it (IBTA §13.4.3, §16.7.1).

use std::fmt;

use super::{
    CM_DATA_LEN, CmData, Drep, Dreq, MAD_HEADER_LEN, MAD_LEN, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq,
};
use crate::{HeaderName, ParseError, ParseErrorKind, bytes};

const BASE_VERSION: u8 = 1;
const CLASS_COMMUNICATION_MANAGEMENT: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 0x03;

/// Which message a MAD carries: its attribute identifier (IBTA §16.7.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u16)]
pub enum CmAttribute {
    /// Request for communication.
    Req = 0x10,
    /// Message receipt acknowledgement: an answer will take a while.
    Mra = 0x11,
    /// Reject.
    Rej = 0x12,
    /// Reply to a request for communication.
    Rep = 0x13,
    /// Ready to use.
    Rtu = 0x14,
    /// Request for disconnection.
    Dreq = 0x15,
    /// Reply to a request for disconnection.
    Drep = 0x16,
    /// Service identifier resolution request.
    SidrReq = 0x17,
    /// Service identifier resolution reply.
    SidrRep = 0x18,
    /// Load alternate path. Known, but not supported.
    Lap = 0x19,
    /// Alternate path reply. Known, but not supported.
    Apr = 0x1A,
}

/// One message, with the fields that the common header adds to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmMad {
    /// The end that begins an exchange chooses it; the end that answers repeats it.
    pub transaction_id: u64,
    /// Options of the enhanced connection establishment; 0 where there are none. It is the attribute modifier.
    pub ece_options: u32,
    /// The message.
    pub message: CmMessage,
}

/// A connection management message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmMessage {
    /// Request for communication.
    Req(Req),
    /// Message receipt acknowledgement.
    Mra(Mra),
    /// Reject.
    Rej(Rej),
    /// Reply.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Request for disconnection.
    Dreq(Dreq),
    /// Reply to a request for disconnection.
    Drep(Drep),
    /// Service resolution request.
    SidrReq(SidrReq),
    /// Service resolution reply.
    SidrRep(SidrRep),
}

impl CmAttribute {
    /// The attribute with that identifier.
    pub fn from_id(id: u16) -> Option<CmAttribute> {
        use CmAttribute::*;
        [Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr]
            .into_iter()
            .find(|&attribute| attribute as u16 == id)
    }

    /// That of a datagram, whose contents need not make sense; `None` if it is no message of connection management.
    pub fn of(mad: &[u8]) -> Option<CmAttribute> {
        let id = mad.get(16..18).filter(|_| mad.get(1) == Some(&CLASS_COMMUNICATION_MANAGEMENT))?;
        CmAttribute::from_id(u16::from_be_bytes([id[0], id[1]]))
    }

    /// The name as the specification spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            CmAttribute::Req => "REQ",
            CmAttribute::Mra => "MRA",
            CmAttribute::Rej => "REJ",
            CmAttribute::Rep => "REP",
            CmAttribute::Rtu => "RTU",
            CmAttribute::Dreq => "DREQ",
            CmAttribute::Drep => "DREP",
            CmAttribute::SidrReq => "SIDR_REQ",
            CmAttribute::SidrRep => "SIDR_REP",
            CmAttribute::Lap => "LAP",
            CmAttribute::Apr => "APR",
        }
    }
}

impl CmMad {
    /// Reads a MAD. Bytes behind the 256th are ignored.
    ///
    /// # Errors
    /// Truncated; another class or method; another version; a message that is not supported (LAP, APR) or not
    /// known; a field whose value its message forbids.
    pub fn parse(mad: &[u8]) -> Result<CmMad, ParseError> {
        let error = |offset, kind| ParseError::new(HeaderName::Mad, offset, kind);
        let Some((header, rest)) = mad.split_first_chunk::<MAD_HEADER_LEN>() else {
            return Err(error(mad.len(), ParseErrorKind::Truncated));
        };
        let Some((data, _)) = rest.split_first_chunk::<CM_DATA_LEN>() else {
            return Err(error(mad.len(), ParseErrorKind::Truncated));
        };
        if header[0] != BASE_VERSION {
            return Err(error(0, ParseErrorKind::BadVersion));
        }
        if header[1] != CLASS_COMMUNICATION_MANAGEMENT {
            return Err(error(1, ParseErrorKind::OtherProtocol));
        }
        if header[2] != CLASS_VERSION {
            return Err(error(2, ParseErrorKind::BadVersion));
        }
        if header[3] != METHOD_SEND {
            return Err(error(3, ParseErrorKind::OtherProtocol));
        }
        let attribute = CmAttribute::from_id(bytes::u16(header, 16));
        let message = CmMessage::parse(attribute.ok_or(error(16, ParseErrorKind::UnknownOpcode))?, data)?;
        let (transaction_id, ece_options) = (bytes::u64(header, 8), bytes::u32(header, 20));
        Ok(CmMad { transaction_id, ece_options, message })
    }

    /// The MAD's bytes.
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[BASE_VERSION, CLASS_COMMUNICATION_MANAGEMENT, CLASS_VERSION, METHOD_SEND]);
        bytes::put(&mut mad, 8, self.transaction_id.to_be_bytes());
        bytes::put(&mut mad, 16, (self.message.attribute() as u16).to_be_bytes());
        bytes::put(&mut mad, 20, self.ece_options.to_be_bytes());
        let data = mad.last_chunk_mut::<CM_DATA_LEN>().expect("a MAD is longer than its data");
        match &self.message {
            CmMessage::Req(message) => message.emit(data),
            CmMessage::Mra(message) => message.emit(data),
            CmMessage::Rej(message) => message.emit(data),
            CmMessage::Rep(message) => message.emit(data),
            CmMessage::Rtu(message) => message.emit(data),
            CmMessage::Dreq(message) => message.emit(data),
            CmMessage::Drep(message) => message.emit(data),
            CmMessage::SidrReq(message) => message.emit(data),
            CmMessage::SidrRep(message) => message.emit(data),
        }
        mad
    }
}

impl CmMessage {
    fn parse(attribute: CmAttribute, data: &CmData) -> Result<CmMessage, ParseError> {
        Ok(match attribute {
            CmAttribute::Req => CmMessage::Req(Req::parse(data)?),
            CmAttribute::Mra => CmMessage::Mra(Mra::parse(data)?),
            CmAttribute::Rej => CmMessage::Rej(Rej::parse(data)),
            CmAttribute::Rep => CmMessage::Rep(Rep::parse(data)),
            CmAttribute::Rtu => CmMessage::Rtu(Rtu::parse(data)),
            CmAttribute::Dreq => CmMessage::Dreq(Dreq::parse(data)),
            CmAttribute::Drep => CmMessage::Drep(Drep::parse(data)),
            CmAttribute::SidrReq => CmMessage::SidrReq(SidrReq::parse(data)),
            CmAttribute::SidrRep => CmMessage::SidrRep(SidrRep::parse(data)),
            CmAttribute::Lap | CmAttribute::Apr => {
                return Err(ParseError::new(HeaderName::Mad, 16, ParseErrorKind::UnknownOpcode));
            }
        })
    }

    /// Which message it is.
    pub fn attribute(&self) -> CmAttribute {
        match self {
            CmMessage::Req(_) => CmAttribute::Req,
            CmMessage::Mra(_) => CmAttribute::Mra,
            CmMessage::Rej(_) => CmAttribute::Rej,
            CmMessage::Rep(_) => CmAttribute::Rep,
            CmMessage::Rtu(_) => CmAttribute::Rtu,
            CmMessage::Dreq(_) => CmAttribute::Dreq,
            CmMessage::Drep(_) => CmAttribute::Drep,
            CmMessage::SidrReq(_) => CmAttribute::SidrReq,
            CmMessage::SidrRep(_) => CmAttribute::SidrRep,
        }
    }

    /// The identifier by which the *receiver* knows the conversation; `None` for the messages that begin one.
    ///
    /// SIDR has one identifier for both ends, chosen by the requester.
    pub fn receiver_id(&self) -> Option<u32> {
        match self {
            CmMessage::Req(_) | CmMessage::SidrReq(_) => None,
            CmMessage::Mra(message) => Some(message.remote_id),
            CmMessage::Rej(message) => Some(message.remote_id),
            CmMessage::Rep(message) => Some(message.remote_id),
            CmMessage::Rtu(message) => Some(message.remote_id),
            CmMessage::Dreq(message) => Some(message.remote_id),
            CmMessage::Drep(message) => Some(message.remote_id),
            CmMessage::SidrRep(message) => Some(message.request_id),
        }
    }

    /// The service that a message which begins a conversation asks for.
    pub fn service_id(&self) -> Option<u64> {
        match self {
            CmMessage::Req(message) => Some(message.service_id),
            CmMessage::SidrReq(message) => Some(message.service_id),
            _ => None,
        }
    }
}

impl fmt::Display for CmMad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tid {:#x}", self.message.attribute().as_str(), self.transaction_id)?;
        if let Some(service) = self.message.service_id() {
            write!(f, " service {service:#x}")?;
        }
        if let Some(id) = self.message.receiver_id() {
            write!(f, " to id {id:#x}")?;
        }
        Ok(())
    }
}
