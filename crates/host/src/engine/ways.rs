//! The ways that packets take out of a lane: rings to neighbours, and datagrams to all other peers.
//!
//! Every packet is offered to the [`Ways`]. The shared-memory way comes first; a packet whose peer it does
//! not reach takes the network. Each way has its own faults and captures.

mod disturbed;
mod groups;
mod layout;
mod neighbours;
mod paths;
mod room;
mod sharing;
mod shm;
mod stillness;
mod udp;

pub(crate) use disturbed::Disturbed;
pub(crate) use groups::Groups;
pub(crate) use neighbours::Neighbours;
pub(super) use neighbours::{BELL_BYTES, Sent, traffic_class_of};
pub(crate) use shm::Shm;
pub(crate) use udp::Udp;

use crate::counters::DriverCounters;
use crate::memory::HostMemory;
use highwire_link::{Path, ReserveError};
use highwire_rnic::Outgoing;
use highwire_stdx::Instant;
use highwire_verbs::{Gid, MemoryLost};
use highwire_wire::{Qpn, UDP_PORT};
use std::net::SocketAddr;

/// The result of offering a packet to a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offered {
    /// It leaves with the next flush at the latest, or has been lost as on a wire, and counted.
    Taken,
    /// This way does not reach its peer.
    Elsewhere,
    /// The memory of its payload is not there any more.
    Unread,
}

/// One way out of a lane.
pub(crate) trait Way {
    /// Whether packets may be offered now. Otherwise they stay in the RNIC, where they are not lost.
    fn takes_more(&mut self, now: Instant, counters: &mut DriverCounters) -> bool;

    /// Takes a packet, if the way leads to its peer.
    fn offer(
        &mut self,
        now: Instant,
        outgoing: &Outgoing<'_>,
        memory: &HostMemory,
        counters: &mut DriverCounters,
    ) -> Offered;

    /// When it wants to be flushed again, even if nothing is offered until then.
    fn deadline(&self) -> Option<Instant>;
}

/// All ways out of a lane.
pub(crate) struct Ways {
    pub(super) shm: Option<Shm>,
    pub(super) udp: Udp,
    /// Peers that shared memory does not reach are unreachable.
    is_shm_only: bool,
}

/// What a flush keeps for the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    Nothing,
    /// A batch of nothing but acknowledgements for the network.
    Acks,
    /// The same, and neighbours that sleep are not woken for such.
    AcksAndBells,
}

impl Ways {
    pub(crate) fn new(shm: Option<Shm>, udp: Udp, is_shm_only: bool) -> Ways {
        Ways { shm, udp, is_shm_only }
    }

    /// Whether the RNIC should be asked for another packet.
    #[inline]
    pub(super) fn takes_more(&mut self, now: Instant, counters: &mut DriverCounters) -> bool {
        self.udp.takes_more(now, counters)
            && self.shm.as_mut().is_none_or(|shm| shm.takes_more(now, counters))
    }

    /// Sends a packet on the way that leads to its peer.
    ///
    /// # Errors
    /// The memory of its payload is not there any more.
    #[inline]
    pub(super) fn offer(
        &mut self,
        now: Instant,
        outgoing: &Outgoing<'_>,
        memory: &HostMemory,
        counters: &mut DriverCounters,
    ) -> Result<(), MemoryLost> {
        // A group's datagrams are for other machines as well.
        if outgoing.headers.bth.dest_qpn != Qpn::MULTICAST {
            let near = self.shm.as_mut().map(|shm| shm.offer(now, outgoing, memory, counters));
            match near {
                Some(Offered::Taken) => return Ok(()),
                Some(Offered::Unread) => return Err(MemoryLost),
                Some(Offered::Elsewhere) => self.udp.pace.warm_up(),
                None => {}
            }
            if self.is_shm_only {
                counters.dropped_unreachable += 1;
                return Ok(());
            }
        }
        match self.udp.offer(now, outgoing, memory, counters) {
            Offered::Taken | Offered::Elsewhere => Ok(()),
            Offered::Unread => Err(MemoryLost),
        }
    }

    /// Sends a management datagram, which is laid out already, to queue pair 1 of an address.
    ///
    /// # Errors
    /// [`ReserveError::Full`] until the next flush.
    pub(super) fn offer_mad(&mut self, now: Instant, to: Gid, packet: &[u8]) -> Result<(), ReserveError> {
        let path = Path {
            class: self.udp.class_of(now, to, Qpn::GSI),
            ..SocketAddr::new(to.to_ip(), UDP_PORT).into()
        };
        // Faults and captures see management datagrams too, which then take the network all the same.
        match self.shm.as_mut().and_then(Shm::disturbed) {
            Some(disturbed) => disturbed.take_laid_out(path, packet),
            None => self.udp.push(path, packet),
        }
    }

    /// Sends waiting packets; true if some were kept, or the bell for them. `now` is called if time matters.
    #[inline]
    pub(super) fn flush(
        &mut self,
        mut now: impl FnMut() -> Instant,
        keep: Keep,
        counters: &mut DriverCounters,
    ) -> bool {
        let mut keeps = false;
        if let Some(shm) = &mut self.shm {
            keeps = shm.flush(&mut now, keep != Keep::AcksAndBells, counters);
            for (to, packet) in shm.disturbed().map(Disturbed::take_mads).unwrap_or_default() {
                // Datagrams for queue pair 1 take no neighbour's ring: all processes of an address share that
                // queue pair.
                let path = Path { class: Qpn::GSI.value() as u8, ..to.into() };
                counters.dropped_link_full += u64::from(self.udp.push(path, &packet).is_err());
            }
        }
        self.udp.flush(now, keep == Keep::Nothing) | keeps
    }

    /// Whether something waits that a flush may send now.
    pub(super) fn are_blocked(&self) -> bool {
        self.udp.is_blocked() || self.shm.as_ref().is_some_and(|shm| shm.rings.has_backlog())
    }

    /// Whether the owner of a queue pair on this machine lives, and has yet to take the packets sent to it:
    /// then it has not been running. Sockets, which take a system call or several to look at, are looked at
    /// before a requester gives up.
    #[cold]
    pub(super) fn is_unread(&self, gid: Gid, qpn: Qpn, gives_up: bool) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.rings.is_unheard(gid, qpn))
            || gives_up && self.udp.is_unread(gid, qpn)
    }

    /// When a way wants to be flushed again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.udp.deadline(), self.shm.as_ref().and_then(Way::deadline)].into_iter().flatten().min()
    }

    pub(super) fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.udp.counters(each);
        if let Some(shm) = &self.shm {
            shm.counters(each);
        }
    }
}
