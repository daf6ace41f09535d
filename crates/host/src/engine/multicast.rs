//! The multicast groups of a lane: a socket for each, bound to the group's address.
//!
//! A datagram to a group always takes the network, loopback included: the kernel hands a copy to every socket that has joined,
//! in every process and every lane, the sender's own among them. One socket per lane and group, however many queue pairs
//! are attached, so no queue pair gets a datagram twice.

use super::Engine;
use super::receive::UDP_WARM_TURNS;
use crate::memory::Bytes;
use crate::sys::{self, Epoll};
use highwire_link::{Datagram, receive_datagram, tell_traffic_class};
use highwire_rnic::{Arrival, AttachError};
use highwire_verbs::Gid;
use highwire_wire::{Qpn, UDP_PORT, parse_packet_with_icrc};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// Datagrams taken from one group in one turn.
const DATAGRAMS_PER_TURN: usize = 64;
/// The longest RoCE packet, and some.
const DATAGRAM_BYTES_MAX: usize = 8192;

/// The groups of a lane.
pub(crate) struct Groups {
    own: IpAddr,
    /// Readable when one of the groups is: what the lane's sleeper watches.
    epoll: Epoll,
    joined: Vec<Group>,
    buffer: Box<[u8]>,
}

struct Group {
    gid: Gid,
    socket: UdpSocket,
}

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

impl Groups {
    pub(crate) fn new(own: IpAddr, epoll: Epoll) -> Groups {
        Groups { own, epoll, joined: Vec::new(), buffer: Box::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.joined.is_empty()
    }

    /// The group as the device's own family of addresses has it.
    pub(super) fn reachable(&self, group: Gid) -> Gid {
        Gid::from_ip(group_address(group, self.own))
    }
}

/// Where datagrams for a group are sent. A device of IPv4 cannot reach a group of IPv6: there a group of IPv4 stands for it, the
/// same for all Highwires (239.192.0.0/14 is an organisation's own, RFC 2365).
fn group_address(group: Gid, own: IpAddr) -> IpAddr {
    match (group.to_ip(), own) {
        (IpAddr::V6(group), IpAddr::V4(_)) => {
            let hash = group
                .octets()
                .iter()
                .fold(0x811C_9DC5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
            let [_, b, c, d] = hash.to_be_bytes();
            Ipv4Addr::new(239, 192 | b & 3, c, d).into()
        }
        (group, _) => group,
    }
}

impl Engine {
    /// Attaches a queue pair of this lane to a group.
    pub(crate) fn attach(&mut self, qpn: Qpn, group: Gid) -> Result<(), MulticastError> {
        if !group.is_multicast() {
            return Err(MulticastError::Refused(AttachError::NotGroup));
        }
        let gid = self.groups.reachable(group);
        let is_new = !self.groups.has_joined(gid);
        self.rnic.attach_multicast(qpn, gid).map_err(MulticastError::Refused)?;
        if is_new && let Err(error) = self.groups.join(gid) {
            self.rnic.detach_multicast(qpn, gid);
            return Err(MulticastError::Join(error));
        }
        Ok(())
    }

    /// Takes it out again; false if it was not in it.
    pub(crate) fn detach(&mut self, qpn: Qpn, group: Gid) -> bool {
        let was_in = self.rnic.detach_multicast(qpn, self.groups.reachable(group));
        self.leave_empty_groups();
        was_in
    }

    /// Leaves the groups that no queue pair is attached to any more.
    pub(crate) fn leave_empty_groups(&mut self) {
        let mut joined = std::mem::take(&mut self.groups.joined);
        // A closed socket leaves the epoll by itself.
        joined.retain(|group| self.wants_group(group.gid));
        self.groups.joined = joined;
    }

    /// Takes the packets that have arrived for groups; returns their number.
    #[cold]
    pub(super) fn receive_groups(&mut self) -> u32 {
        let mut packets = 0;
        let mut groups = std::mem::take(&mut self.groups.joined);
        let mut buffer = std::mem::take(&mut self.groups.buffer);
        for group in &mut groups {
            for _ in 0..DATAGRAMS_PER_TURN {
                let Ok(datagram) = receive_datagram(group.socket.as_fd(), &mut buffer) else { break };
                packets += 1;
                self.handle_group_packet(group.gid, &datagram, &buffer[..datagram.bytes]);
            }
        }
        (self.groups.joined, self.groups.buffer) = (groups, buffer);
        if packets > 0 {
            self.turn.udp_warmth = UDP_WARM_TURNS;
        }
        packets
    }

    fn handle_group_packet(&mut self, group: Gid, datagram: &Datagram, bytes: &[u8]) {
        let &Datagram { source, traffic_class, .. } = datagram;
        let path = self.paths.between(source, SocketAddr::new(group.to_ip(), UDP_PORT));
        if path.and_then(|path| path.verify_unknown_id(0, bytes)).is_none() {
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

impl Groups {
    pub(super) fn has_joined(&self, gid: Gid) -> bool {
        self.joined.iter().any(|group| group.gid == gid)
    }

    pub(super) fn join(&mut self, gid: Gid) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; DATAGRAM_BYTES_MAX].into();
        }
        let socket = sys::group_socket(gid.to_ip(), UDP_PORT, self.own)?;
        tell_traffic_class(socket.as_fd(), gid.to_ip().is_ipv6())?;
        self.epoll.watch(&socket)?;
        self.joined.push(Group { gid, socket });
        Ok(())
    }
}
