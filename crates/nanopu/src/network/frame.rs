//! A packet as the fabric carries it: small and plain, with its payload inside.

use highwire_fabric::{self as fabric, HostId};

use super::{address, host_of};
use crate::packet::{Ecn, HEADER_BYTES, Packet, SEGMENT_BYTES, TRIMMED_BYTES, flag};

/// The priority of data, unless its packets name another.
pub const DATA_PRIORITY: u8 = 0;
/// The least priority of control packets and of data without its payload.
pub const CONTROL_PRIORITY: u8 = 1;

/// A packet on the fabric.
#[derive(Clone, Copy)]
pub struct Frame {
    source: HostId,
    destination: HostId,
    flags: u8,
    source_context: u16,
    destination_context: u16,
    message_bytes: u16,
    packet_offset: u8,
    pull_offset: u16,
    message: u16,
    buffer: u16,
    buffer_class: u8,
    priority: u8,
    grant_priority: u8,
    ecn: Ecn,
    payload_bytes: u16,
    payload: [u8; SEGMENT_BYTES],
}

/// A packet type that a fabric with nanoPUs can carry: it holds frames, and perhaps other packets.
pub trait Carrier: fabric::Packet {
    /// A frame as such a packet.
    fn from_frame(frame: Frame) -> Self;

    /// The frame in it, if it is one.
    fn frame(&self) -> Option<&Frame>;
}

impl Carrier for Frame {
    fn from_frame(frame: Frame) -> Frame {
        frame
    }

    fn frame(&self) -> Option<&Frame> {
        Some(self)
    }
}

impl Frame {
    /// The packet as a frame; `None` if its destination is no host's address.
    pub fn new(packet: &Packet) -> Option<Frame> {
        let mut payload = [0; SEGMENT_BYTES];
        payload.get_mut(..packet.payload.len())?.copy_from_slice(&packet.payload);
        Some(Frame {
            source: host_of(packet.source)?,
            destination: host_of(packet.destination)?,
            flags: packet.flags,
            source_context: packet.source_context,
            destination_context: packet.destination_context,
            message_bytes: packet.message_bytes,
            packet_offset: packet.packet_offset,
            pull_offset: packet.pull_offset,
            message: packet.message,
            buffer: packet.buffer,
            buffer_class: packet.buffer_class,
            priority: packet.priority,
            grant_priority: packet.grant_priority,
            ecn: packet.ecn,
            payload_bytes: packet.payload.len() as u16,
            payload,
        })
    }

    /// The packet that it carries.
    pub fn packet(&self) -> Packet {
        Packet {
            source: address(self.source),
            destination: address(self.destination),
            flags: self.flags,
            source_context: self.source_context,
            destination_context: self.destination_context,
            message_bytes: self.message_bytes,
            packet_offset: self.packet_offset,
            pull_offset: self.pull_offset,
            message: self.message,
            buffer: self.buffer,
            buffer_class: self.buffer_class,
            priority: self.priority,
            grant_priority: self.grant_priority,
            ecn: self.ecn,
            payload: self.payload[..usize::from(self.payload_bytes)].to_vec(),
        }
    }

    fn is_trimmed(&self) -> bool {
        self.flags & flag::CHOP != 0
    }
}

impl fabric::Packet for Frame {
    /// Whole words, as the interface of 64 bits has them.
    fn wire_bytes(&self) -> u32 {
        let bytes = match self.is_trimmed() {
            true => TRIMMED_BYTES,
            false => HEADER_BYTES + usize::from(self.payload_bytes),
        };
        bytes.next_multiple_of(8) as u32
    }

    fn destination(&self) -> HostId {
        self.destination
    }

    fn flow_hash(&self) -> u64 {
        let hosts = u64::from(self.source.0) << 32 | u64::from(self.destination.0);
        let contexts = u64::from(self.source_context) << 16 | u64::from(self.destination_context);
        hosts ^ contexts.rotate_left(20)
    }

    fn priority(&self) -> u8 {
        let is_data = self.flags & flag::DATA != 0 && !self.is_trimmed();
        if is_data { self.priority } else { self.priority.max(CONTROL_PRIORITY) }
    }

    fn is_ecn_capable(&self) -> bool {
        self.ecn == Ecn::Capable
    }

    fn mark_congestion(&mut self) {
        self.ecn = Ecn::Marked;
    }

    fn trim(&mut self) -> bool {
        let can = self.flags & flag::DATA != 0 && !self.is_trimmed() && self.payload_bytes > 8;
        if can {
            self.flags |= flag::CHOP;
            self.payload_bytes = 0;
        }
        can
    }
}
