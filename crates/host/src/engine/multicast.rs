//! Joins queue pairs to multicast groups, and takes the groups' datagrams.

use super::Engine;
use crate::memory::Bytes;
use highwire_link::Datagram;
use highwire_rnic::{Arrival, AttachError};
use highwire_verbs::Gid;
use highwire_wire::{Qpn, UDP_PORT, parse_packet_with_icrc};
use std::io;
use std::net::SocketAddr;

/// Why a queue pair was not attached to a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MulticastError {
    /// The RNIC refused.
    #[error(transparent)]
    Refused(AttachError),
    /// The system did not let us join the group.
    #[error("cannot join the multicast group: {0}")]
    Join(#[source] io::Error),
}

impl Engine {
    /// Attaches a queue pair of this lane to a group.
    pub(crate) fn attach(&mut self, qpn: Qpn, group: Gid) -> Result<(), MulticastError> {
        if !group.is_multicast() {
            return Err(MulticastError::Refused(AttachError::NotGroup));
        }
        let gid = self.ways.udp.groups.reachable(group);
        let is_new = !self.ways.udp.groups.has_joined(gid);
        self.rnic.attach_multicast(qpn, gid).map_err(MulticastError::Refused)?;
        if is_new && let Err(error) = self.ways.udp.groups.join(gid) {
            self.rnic.detach_multicast(qpn, gid);
            return Err(MulticastError::Join(error));
        }
        Ok(())
    }

    /// Takes it out again; false if it was not in it.
    pub(crate) fn detach(&mut self, qpn: Qpn, group: Gid) -> bool {
        let was_in = self.rnic.detach_multicast(qpn, self.ways.udp.groups.reachable(group));
        self.leave_empty_groups();
        was_in
    }

    /// Leaves the groups that no queue pair is attached to any more.
    pub(crate) fn leave_empty_groups(&mut self) {
        let mut joined = std::mem::take(&mut self.ways.udp.groups.joined);
        joined.retain(|group| self.wants_group(group));
        self.ways.udp.groups.joined = joined;
    }

    /// Takes the packets that have arrived for groups; returns their number.
    #[cold]
    pub(super) fn receive_groups(&mut self) -> u32 {
        let mut packets = 0;
        let mut joined = std::mem::take(&mut self.ways.udp.groups.joined);
        joined.receive(|group, datagram, bytes| {
            packets += 1;
            self.handle_group_packet(group, datagram, bytes);
        });
        self.ways.udp.groups.joined = joined;
        if packets > 0 {
            self.ways.udp.pace.warm_up();
        }
        packets
    }

    fn handle_group_packet(&mut self, group: Gid, datagram: &Datagram, bytes: &[u8]) {
        let &Datagram { source, traffic_class, .. } = datagram;
        let destination = SocketAddr::new(group.to_ip(), UDP_PORT);
        if !self.ways.udp.verify_between(source, destination, 0, bytes) {
            self.counters.dropped_bad_icrc += 1;
            return;
        }
        let parsed = parse_packet_with_icrc(bytes);
        // A datagram to a group's address that names one queue pair is not meant for all of them.
        let Some((headers, payload, _)) =
            parsed.as_ref().ok().filter(|(headers, ..)| headers.bth.dest_qpn == Qpn::MULTICAST)
        else {
            self.counters.dropped_malformed += 1;
            return;
        };
        if let Some(source_qpn) = self.sender_of_frame(group, headers) {
            return self.handle_frame(source, source_qpn, &bytes[payload.clone()]);
        }
        let arrival = Arrival { source: Gid::from_ip(source.ip()), destination: group, traffic_class };
        let now = self.now();
        let payload = Bytes::of(&bytes[payload.clone()]);
        self.rnic.handle_packet(now, &arrival, headers, payload, &mut self.memory);
    }
}
