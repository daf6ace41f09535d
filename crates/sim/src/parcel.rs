//! A packet on the fabric: the hosts' messages, with a length in place of payload.

use highwire_fabric::{HostId, Packet};
use highwire_wire::{Bth, Headers, ICRC_LEN, IrnEth, Opcode, Reth};

use crate::scenario::HeaderBytes;
use crate::tcp::{Ack, Segment};

/// A packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parcel {
    pub(crate) body: Body,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    /// On the wire.
    pub(crate) bytes: u32,
    pub(crate) payload: u16,
    /// What the sender adds to the source port of this packet.
    pub(crate) entropy: u16,
    pub(crate) priority: u8,
    pub(crate) is_ecn_capable: bool,
    pub(crate) is_marked: bool,
    /// A switch had no room for its payload: the headers alone go on.
    pub(crate) is_trimmed: bool,
}

/// Its contents.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// For an RNIC: the wire format from the BTH on, which is half as large as the parsed headers.
    Roce([u8; Parcel::HEADERS_LEN]),
    /// To a TCP connection's receiver, by its place at the destination.
    Segment { connection: u32, segment: Segment },
    /// To a TCP connection's sender.
    Ack { connection: u32, ack: Ack },
}

impl Parcel {
    /// The longest headers of a WRITE and its answers, IRN's among them.
    pub(crate) const HEADERS_LEN: usize = Bth::LEN + IrnEth::LEN + Reth::LEN;

    /// Whether it carries a flow's data; otherwise it is an acknowledgement or a CNP.
    #[inline]
    pub(crate) fn is_data(&self) -> bool {
        self.payload > 0
    }
}

impl Packet for Parcel {
    #[inline]
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }

    #[inline]
    fn destination(&self) -> HostId {
        HostId(self.destination)
    }

    /// As a 5-tuple: the UDP source port stands for the queue pair.
    #[inline]
    fn flow_hash(&self) -> u64 {
        let ends = u64::from(self.source) << 32 | u64::from(self.destination);
        let port = match &self.body {
            Body::Roce(headers) => u32::from_be_bytes([0, headers[5], headers[6], headers[7]]),
            Body::Segment { connection, .. } => 2 * connection + 1,
            Body::Ack { connection, .. } => 2 * connection,
        };
        let port = u64::from(port) | u64::from(self.entropy) << 32;
        ends ^ port.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[inline]
    fn priority(&self) -> u8 {
        self.priority
    }

    #[inline]
    fn is_ecn_capable(&self) -> bool {
        self.is_ecn_capable
    }

    #[inline]
    fn mark_congestion(&mut self) {
        self.is_marked = true;
    }

    /// What is left is a frame without payload. TCP has no use for it, and a packet that is hardly longer is dropped whole.
    fn trim(&mut self) -> bool {
        let left = (BARE_BYTES + AETH_BYTES).max(self.bytes.saturating_sub(u32::from(self.payload) + 3));
        if self.is_trimmed || !matches!(self.body, Body::Roce(_)) || self.payload == 0 || left >= self.bytes {
            return false;
        }
        (self.bytes, self.is_trimmed) = (left, true);
        true
    }
}

/// Ethernet with FCS, IPv4, UDP.
const LOWER_BYTES: u32 = 18 + 20 + 8;
/// The same, BTH and ICRC: the paper's 62 bytes.
const BARE_BYTES: u32 = LOWER_BYTES + 12 + ICRC_LEN as u32;
/// Ethernet with FCS, IPv4, TCP without options.
const TCP_BYTES: u32 = 18 + 20 + 20;
/// iWARP's framing: MPA's length and CRC, and the header of a tagged DDP segment.
const FRAMING_BYTES: u32 = 2 + 14 + 4;
/// An AETH.
const AETH_BYTES: u32 = 4;
/// A CNP's reserved bytes.
const CNP_BYTES: u32 = 16;

impl HeaderBytes {
    /// The bytes of a RoCE packet on a link.
    #[inline]
    pub(crate) fn wire_bytes(&self, headers: &Headers, payload: u32) -> u32 {
        let extra = if payload > 0 { self.extra } else { 0 };
        let whole = if self.is_encoded {
            let encoded = headers.encoded_len() as u32 + u32::from(headers.bth.pad_count);
            LOWER_BYTES + ICRC_LEN as u32 + encoded
        } else if payload > 0 {
            BARE_BYTES
        } else if headers.bth.opcode == Opcode::Cnp {
            BARE_BYTES + CNP_BYTES
        } else {
            BARE_BYTES + AETH_BYTES
        };
        whole + payload + extra + self.gap
    }

    /// The bytes of a TCP segment with data on a link. The paper's model is a TCP without iWARP's framing.
    pub(crate) fn segment_bytes(&self, payload: u32) -> u32 {
        let framing = if self.is_encoded { FRAMING_BYTES + ((payload + 2).wrapping_neg() & 3) } else { 0 };
        TCP_BYTES + framing + payload + self.extra + self.gap
    }

    /// The bytes of a TCP segment without data on a link.
    pub(crate) fn tcp_ack_bytes(&self, ack: &Ack) -> u32 {
        TCP_BYTES + ack.option_bytes() + self.gap
    }

    /// The bytes of a packet of a WRITE on a link, in IRN's format or RoCE's, which `begins` a message or
    /// not.
    pub(crate) fn write_bytes(&self, is_irn: bool, begins: bool, payload: u32) -> u32 {
        let (pad, extension) = match (self.is_encoded, is_irn, begins) {
            (false, ..) => (0, 0),
            (true, true, _) => (payload.wrapping_neg() & 3, IrnEth::LEN + Reth::LEN),
            (true, false, true) => (payload.wrapping_neg() & 3, Reth::LEN),
            (true, false, false) => (payload.wrapping_neg() & 3, 0),
        };
        BARE_BYTES + extension as u32 + pad + payload + self.extra + self.gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_fabric::Fabric;

    #[test]
    fn a_packet_in_flight_stays_far_below_two_hundred_bytes() {
        struct Nobody;
        impl highwire_fabric::Host<Parcel> for Nobody {
            fn handle_packet(&mut self, _: highwire_fabric::Time, _: Parcel) {}
            fn handle_timeout(&mut self, _: highwire_fabric::Time) {}
            fn poll_transmit(
                &mut self,
                _: highwire_fabric::Time,
                _: highwire_fabric::Priorities,
            ) -> Option<Parcel> {
                None
            }
            fn poll_timeout(&self) -> highwire_fabric::Time {
                highwire_fabric::Time::NEVER
            }
        }
        let bytes = Fabric::<Parcel, Nobody>::bytes_per_packet();
        assert!(bytes <= 104, "{bytes}");
    }
}
