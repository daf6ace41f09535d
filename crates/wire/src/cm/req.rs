//! REQ: request for communication (IBTA §12.6.5).

use super::{CmData, CmPath};
use crate::{HeaderName, ParseError, ParseErrorKind, Psn, Qpn, bytes};

/// The service that a connection is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransportType {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram: specified, and not implemented anywhere.
    Rd,
    /// Extended reliable connection.
    Xrc,
}

/// Request for communication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The requester's identifier of the connection.
    pub local_id: u32,
    /// Vendor of the enhanced connection establishment's options, 24 bits; 0 for none.
    pub ece_vendor: u32,
    /// The requested service.
    pub service_id: u64,
    /// GUID of the requester's channel adapter.
    pub ca_guid: u64,
    /// Q_Key; 0 for connections.
    pub qkey: u32,
    /// The requester's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the requester can have outstanding as a responder.
    pub responder_resources: u8,
    /// READs and atomics that the requester will have outstanding.
    pub initiator_depth: u8,
    /// Time within which the responder shall answer, as an exponent: 4.096 µs · 2^n, 5 bits.
    pub remote_response_timeout: u8,
    /// The service that the connection is to have.
    pub transport: TransportType,
    /// Whether the requester does end-to-end flow control.
    pub has_flow_control: bool,
    /// The PSN at which the *responder* is to begin sending.
    pub starting_psn: Psn,
    /// Time within which the requester will answer, as an exponent, 5 bits.
    pub local_response_timeout: u8,
    /// Retries of the requester's transport, 3 bits.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// Path MTU, as verbs number them: 1 is 256 bytes, 5 is 4096.
    pub path_mtu: u8,
    /// RNR retries that the responder is to make, 3 bits.
    pub rnr_retry_count: u8,
    /// How often messages of this exchange are repeated, 4 bits.
    pub max_cm_retries: u8,
    /// Whether the requester's queue pair has a shared receive queue.
    pub has_srq: bool,
    /// The path between both ends.
    pub primary: CmPath,
    /// The alternate path; all zeros for none.
    pub alternate: CmPath,
    /// The consumer's data; with `rdma_cm`, an [`IpCm`](super::IpCm) header and then the application's.
    pub private_data: [u8; Req::PRIVATE_LEN],
}

const SERVICE_BITS_RD: u8 = 2;
const SERVICE_BITS_EXTENDED: u8 = 3;
const EXTENDED_XRC: u8 = 1;

impl Req {
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 92;
    const PRIMARY: usize = 52;
    const PRIVATE: usize = Req::PRIMARY + 2 * CmPath::LEN;

    pub(super) fn parse(b: &CmData) -> Result<Req, ParseError> {
        let transport = match (b[43] >> 1 & 3, b[51] & 7) {
            (0, _) => TransportType::Rc,
            (1, _) => TransportType::Uc,
            (SERVICE_BITS_RD, _) => TransportType::Rd,
            (_, EXTENDED_XRC) => TransportType::Xrc,
            _ => return Err(ParseError::new(HeaderName::Mad, 24 + 51, ParseErrorKind::BadValue)),
        };
        Ok(Req {
            local_id: bytes::u32(b, 0),
            ece_vendor: bytes::u24(b, 5),
            service_id: bytes::u64(b, 8),
            ca_guid: bytes::u64(b, 16),
            qkey: bytes::u32(b, 28),
            qpn: Qpn::new(bytes::u24(b, 32)),
            responder_resources: b[35],
            initiator_depth: b[39],
            remote_response_timeout: b[43] >> 3,
            transport,
            has_flow_control: b[43] & 1 != 0,
            starting_psn: Psn::new(bytes::u24(b, 44)),
            local_response_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            pkey: bytes::u16(b, 48),
            path_mtu: b[50] >> 4,
            rnr_retry_count: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            has_srq: b[51] & 8 != 0,
            primary: CmPath::parse(b, Req::PRIMARY),
            alternate: CmPath::parse(b, Req::PRIMARY + CmPath::LEN),
            private_data: super::private(b, Req::PRIVATE),
        })
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        let (service, extended) = match self.transport {
            TransportType::Rc => (0, 0),
            TransportType::Uc => (1, 0),
            TransportType::Rd => (SERVICE_BITS_RD, 0),
            TransportType::Xrc => (SERVICE_BITS_EXTENDED, EXTENDED_XRC),
        };
        bytes::put(b, 0, self.local_id.to_be_bytes());
        bytes::put(b, 4, (self.ece_vendor & 0xFF_FFFF).to_be_bytes());
        bytes::put(b, 8, self.service_id.to_be_bytes());
        bytes::put(b, 16, self.ca_guid.to_be_bytes());
        bytes::put(b, 28, self.qkey.to_be_bytes());
        bytes::put(b, 32, (self.qpn.value() << 8 | u32::from(self.responder_resources)).to_be_bytes());
        b[39] = self.initiator_depth;
        b[43] = (self.remote_response_timeout & 0x1F) << 3 | service << 1 | u8::from(self.has_flow_control);
        bytes::put(b, 44, (self.starting_psn.value() << 8).to_be_bytes());
        b[47] = (self.local_response_timeout & 0x1F) << 3 | self.retry_count & 7;
        bytes::put(b, 48, self.pkey.to_be_bytes());
        b[50] = (self.path_mtu & 0x0F) << 4 | self.rnr_retry_count & 7;
        b[51] = (self.max_cm_retries & 0x0F) << 4 | u8::from(self.has_srq) << 3 | extended;
        self.primary.emit(b, Req::PRIMARY);
        self.alternate.emit(b, Req::PRIMARY + CmPath::LEN);
        bytes::put(b, Req::PRIVATE, self.private_data);
    }
}
