//! A path as a REQ describes it: its two ends, and how packets are marked (IBTA §12.6.5).

use super::CmData;
use crate::bytes;

/// The local identifier that stands for "none", as RoCE has none (RoCEv2 A17.).
pub const LID_NONE: u16 = 0xFFFF;

/// Primary or alternate path; all zeros if there is no alternate one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CmPath {
    /// The requester's local identifier.
    pub local_lid: u16,
    /// The responder's local identifier.
    pub remote_lid: u16,
    /// The requester's GID.
    pub local_gid: [u8; 16],
    /// The responder's GID.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Packet rate code, 6 bits.
    pub packet_rate: u8,
    /// IP traffic class.
    pub traffic_class: u8,
    /// IP hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Whether both ends share a subnet.
    pub is_subnet_local: bool,
    /// Time-out of the requester's local acknowledgements, as an exponent: 4.096 µs · 2^n, 5 bits.
    pub local_ack_timeout: u8,
}

impl CmPath {
    pub(super) const LEN: usize = 44;

    pub(super) fn parse(data: &CmData, at: usize) -> CmPath {
        let label_and_rate = bytes::u32(data, at + 36);
        CmPath {
            local_lid: bytes::u16(data, at),
            remote_lid: bytes::u16(data, at + 2),
            local_gid: super::private(data, at + 4),
            remote_gid: super::private(data, at + 20),
            flow_label: label_and_rate >> 12,
            packet_rate: (label_and_rate & 0x3F) as u8,
            traffic_class: data[at + 40],
            hop_limit: data[at + 41],
            service_level: data[at + 42] >> 4,
            is_subnet_local: data[at + 42] & 0x08 != 0,
            local_ack_timeout: data[at + 43] >> 3,
        }
    }

    pub(super) fn emit(&self, data: &mut CmData, at: usize) {
        let label_and_rate = (self.flow_label & 0xF_FFFF) << 12 | u32::from(self.packet_rate & 0x3F);
        bytes::put(data, at, self.local_lid.to_be_bytes());
        bytes::put(data, at + 2, self.remote_lid.to_be_bytes());
        bytes::put(data, at + 4, self.local_gid);
        bytes::put(data, at + 20, self.remote_gid);
        bytes::put(data, at + 36, label_and_rate.to_be_bytes());
        let service_level = (self.service_level & 0x0F) << 4 | u8::from(self.is_subnet_local) << 3;
        let ack_timeout = (self.local_ack_timeout & 0x1F) << 3;
        bytes::put(data, at + 40, [self.traffic_class, self.hop_limit, service_level, ack_timeout]);
    }
}
