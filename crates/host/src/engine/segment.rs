//! Frames of the Ethernet segment: the lane is in the segment's group while any rule wants frames.

use super::Engine;
use crate::error::SteerError;
use crate::memory::Bytes;
use highwire_rnic::{ArrivedFrame, FlowCounts, FlowId};
use highwire_verbs::{FlowRule, Gid, SEGMENT_GROUP, SEGMENT_QKEY};
use highwire_wire::{Ext, Headers, Layers, Opcode, Qpn};
use std::net::SocketAddr;

impl Engine {
    /// Adds a steering rule for a queue pair of this lane.
    pub(crate) fn add_flow(&mut self, qpn: Qpn, rule: FlowRule) -> Result<FlowId, SteerError> {
        let id = self.rnic.add_flow(qpn, rule).map_err(SteerError::Refused)?;
        let gid = self.ways.udp.groups.reachable(SEGMENT_GROUP);
        if !self.ways.udp.groups.has_joined(gid)
            && let Err(error) = self.ways.udp.groups.join(gid)
        {
            self.rnic.remove_flow(id);
            return Err(SteerError::Join(error));
        }
        Ok(id)
    }

    /// Takes it away, and says how much it has matched.
    pub(crate) fn remove_flow(&mut self, id: FlowId) -> Option<FlowCounts> {
        let counts = self.rnic.remove_flow(id);
        self.leave_empty_groups();
        counts
    }

    /// Whether any queue pair or flow here wants a group's datagrams.
    pub(super) fn wants_group(&self, group: Gid) -> bool {
        self.rnic.has_group(group)
            || self.rnic.has_flows() && group == self.ways.udp.groups.reachable(SEGMENT_GROUP)
    }

    /// The queue pair that sent a frame in this packet, if it carries one.
    pub(super) fn sender_of_frame(&self, group: Gid, headers: &Headers) -> Option<Qpn> {
        match headers.ext {
            Ext::Deth(deth)
                if headers.bth.opcode == Opcode::UdSendOnly
                    && deth.qkey == SEGMENT_QKEY
                    && group == self.ways.udp.groups.reachable(SEGMENT_GROUP) =>
            {
                Some(deth.source_qpn)
            }
            _ => None,
        }
    }

    pub(super) fn handle_frame(&mut self, source: SocketAddr, source_qpn: Qpn, bytes: &[u8]) {
        let Ok(layers) = Layers::parse(bytes) else {
            self.counters.dropped_malformed += 1;
            return;
        };
        let now = self.now();
        let frame = ArrivedFrame { source: Gid::from_ip(source.ip()), source_qpn, layers: &layers };
        self.rnic.handle_frame(now, &frame, Bytes::of(bytes), &mut self.memory);
    }
}
