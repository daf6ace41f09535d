//! SIDR: which queue pair provides a datagram service (IBTA §12.11).

use super::CmData;
use crate::{Qpn, bytes};

/// Service identifier resolution request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// The requester's identifier of the request.
    pub request_id: u32,
    /// Partition key.
    pub pkey: u16,
    /// The requested service.
    pub service_id: u64,
    /// The consumer's data; with `rdma_cm`, an [`IpCm`](super::IpCm) header and then the application's.
    pub private_data: [u8; SidrReq::PRIVATE_LEN],
}

/// The result of a service identifier resolution request (IBTA §12.11.2). A number, as peers may know more
/// results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SidrStatus(pub u8);

/// Service identifier resolution reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// The requester's identifier of the request.
    pub request_id: u32,
    /// The result.
    pub status: SidrStatus,
    /// The valid bytes of the additional information.
    pub info_len: u8,
    /// The queue pair that provides the service.
    pub qpn: Qpn,
    /// The requested service.
    pub service_id: u64,
    /// The key that admits datagrams to the queue pair.
    pub qkey: u32,
    /// Additional information, whose meaning depends on the status.
    pub info: [u8; SidrRep::INFO_LEN],
    /// The consumer's data.
    pub private_data: [u8; SidrRep::PRIVATE_LEN],
}

impl SidrStatus {
    /// The queue pair and its key are valid.
    pub const SUCCESS: SidrStatus = SidrStatus(0);
    /// The service has no listener.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// The application refused.
    pub const REJECTED: SidrStatus = SidrStatus(2);
    /// No queue pair is available.
    pub const NO_QP: SidrStatus = SidrStatus(3);
}

impl SidrReq {
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 216;

    pub(super) fn parse(b: &CmData) -> SidrReq {
        SidrReq {
            request_id: bytes::u32(b, 0),
            pkey: bytes::u16(b, 4),
            service_id: bytes::u64(b, 8),
            private_data: super::private(b, 16),
        }
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        bytes::put(b, 0, self.request_id.to_be_bytes());
        bytes::put(b, 4, self.pkey.to_be_bytes());
        bytes::put(b, 8, self.service_id.to_be_bytes());
        bytes::put(b, 16, self.private_data);
    }
}

impl SidrRep {
    /// Length of the additional information.
    pub const INFO_LEN: usize = 72;
    /// Length of the private data.
    pub const PRIVATE_LEN: usize = 136;
    const INFO: usize = 24;
    const PRIVATE: usize = SidrRep::INFO + SidrRep::INFO_LEN;

    pub(super) fn parse(b: &CmData) -> SidrRep {
        SidrRep {
            request_id: bytes::u32(b, 0),
            status: SidrStatus(b[4]),
            info_len: b[5],
            qpn: Qpn::new(bytes::u24(b, 8)),
            service_id: bytes::u64(b, 12),
            qkey: bytes::u32(b, 20),
            info: super::private(b, SidrRep::INFO),
            private_data: super::private(b, SidrRep::PRIVATE),
        }
    }

    pub(super) fn emit(&self, b: &mut CmData) {
        bytes::put(b, 0, self.request_id.to_be_bytes());
        b[4] = self.status.0;
        b[5] = self.info_len;
        bytes::put(b, 8, (self.qpn.value() << 8).to_be_bytes());
        bytes::put(b, 12, self.service_id.to_be_bytes());
        bytes::put(b, 20, self.qkey.to_be_bytes());
        bytes::put(b, SidrRep::INFO, self.info);
        bytes::put(b, SidrRep::PRIVATE, self.private_data);
    }
}
