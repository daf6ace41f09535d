//! The multicast groups of a lane: a socket for each, bound to the group's address.
//!
//! A datagram to a group always takes the network, loopback included: the kernel hands a copy to every socket that has joined,
//! in every process and every lane, the sender's own among them. One socket per lane and group, however many queue pairs
//! are attached, so no queue pair gets a datagram twice.

use crate::sys::{self, Epoll};
use highwire_link::{Datagram, receive_datagram, tell_traffic_class};
use highwire_verbs::Gid;
use highwire_wire::UDP_PORT;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;

/// Datagrams taken from one group in one turn.
const DATAGRAMS_PER_TURN: usize = 64;
/// The longest RoCE packet, and some.
const DATAGRAM_BYTES_MAX: usize = 8192;

/// The groups of a lane.
pub(crate) struct Groups {
    own: IpAddr,
    /// Readable when one of the groups' sockets is; the lane's sleeper watches it.
    epoll: Epoll,
    pub(crate) joined: Joined,
}

/// The groups that the lane is in. Taken out while arrivals are handled.
#[derive(Default)]
pub(crate) struct Joined {
    groups: Vec<Group>,
    buffer: Box<[u8]>,
}

struct Group {
    gid: Gid,
    socket: UdpSocket,
}

impl Groups {
    pub(crate) fn new(own: IpAddr, epoll: Epoll) -> Groups {
        Groups { own, epoll, joined: Joined::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.joined.groups.is_empty()
    }

    /// The group as the device's own family of addresses has it.
    pub(crate) fn reachable(&self, group: Gid) -> Gid {
        Gid::from_ip(group_address(group, self.own))
    }

    pub(crate) fn has_joined(&self, gid: Gid) -> bool {
        self.joined.groups.iter().any(|group| group.gid == gid)
    }

    pub(crate) fn join(&mut self, gid: Gid) -> io::Result<()> {
        if self.joined.buffer.is_empty() {
            self.joined.buffer = vec![0; DATAGRAM_BYTES_MAX].into();
        }
        let socket = sys::group_socket(gid.to_ip(), UDP_PORT, self.own)?;
        tell_traffic_class(socket.as_fd(), gid.to_ip().is_ipv6())?;
        self.epoll.watch(&socket)?;
        self.joined.groups.push(Group { gid, socket });
        Ok(())
    }
}

impl Joined {
    /// Leaves the groups that are no longer wanted. A closed socket leaves the epoll by itself.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(Gid) -> bool) {
        self.groups.retain(|group| is_wanted(group.gid));
    }

    /// Takes the datagrams that have arrived.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(Gid, &Datagram, &[u8])) {
        for group in &self.groups {
            for _ in 0..DATAGRAMS_PER_TURN {
                let Ok(datagram) = receive_datagram(group.socket.as_fd(), &mut self.buffer) else { break };
                take(group.gid, &datagram, &self.buffer[..datagram.bytes]);
            }
        }
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
