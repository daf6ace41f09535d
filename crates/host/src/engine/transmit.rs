//! From the RNIC into a link: lay the packet out in place, and seal it when its train is known.

use super::Engine;
use super::neighbours::Sent;
use super::receive::UDP_WARM_TURNS;
use highwire_link::{Link, Order, Path, Place, ReserveError, Transmitted, TxBatch};
use highwire_rnic::Outgoing;
use highwire_stdx::Instant;
use highwire_verbs::MemoryLost;
use highwire_wire::{ICRC_LEN, PathIcrc, Qpn, UDP_PORT};
use std::net::SocketAddr;

/// Packets taken from the RNIC in one turn, so that the engine also gets round to receiving.
const PACKETS_PER_TURN: u32 = 512;

/// Paths that one lane remembers the ICRC's beginning of.
const PATHS_MAX: usize = 64;

/// The beginnings of ICRCs, by the two addresses; the latest one is looked at first.
#[derive(Default)]
pub(super) struct Paths {
    known: Vec<(SocketAddr, SocketAddr, PathIcrc)>,
    recent: usize,
}

impl Paths {
    /// The path between two sockets; `None` for a mixture of IPv4 and IPv6.
    #[inline]
    pub(super) fn between(&mut self, source: SocketAddr, destination: SocketAddr) -> Option<&PathIcrc> {
        let is_it = |(s, d, _): &(SocketAddr, SocketAddr, PathIcrc)| *s == source && *d == destination;
        if !self.known.get(self.recent).is_some_and(is_it) {
            self.recent = match self.known.iter().position(is_it) {
                Some(index) => index,
                None => self.learn(source, destination)?,
            };
        }
        Some(&self.known[self.recent].2)
    }

    #[cold]
    fn learn(&mut self, source: SocketAddr, destination: SocketAddr) -> Option<usize> {
        let path = PathIcrc::between((source.ip(), source.port()), (destination.ip(), destination.port()))?;
        if self.known.len() == PATHS_MAX {
            self.known.clear();
        }
        self.known.push((source, destination, path));
        Some(self.known.len() - 1)
    }
}

impl Engine {
    /// Takes packets from the RNIC until it has none, or the link takes no more.
    pub(super) fn drain_transmit(&mut self) {
        let now = self.now();
        self.turn.more_to_send = true;
        for _ in 0..PACKETS_PER_TURN {
            if self.tx.is_blocked() && !transmit(&mut *self.udp, &mut self.tx, &mut self.paths, now) {
                return;
            }
            if self.neighbours.as_mut().is_some_and(|neighbours| neighbours.is_congested(now)) {
                return;
            }
            if self.room.is_due() && !self.has_room(now) {
                return;
            }
            let Some(outgoing) = self.rnic.poll_transmit(now) else {
                self.turn.more_to_send = false;
                return;
            };
            let own_qpn = outgoing.qpn;
            let is_for_group = outgoing.headers.bth.dest_qpn == Qpn::MULTICAST;
            if let (Some(disturbed), Some(neighbours), false) =
                (&mut self.disturbed, &mut self.neighbours, is_for_group)
            {
                let mut taken = disturbed.take(&outgoing, &self.memory);
                if taken == Err(WriteError::Reserve(ReserveError::Full)) {
                    disturbed.flush(now, &mut self.paths, neighbours, &mut self.counters);
                    taken = disturbed.take(&outgoing, &self.memory);
                }
                match taken {
                    Ok(()) => {}
                    Err(WriteError::Reserve(_)) => self.counters.dropped_link_full += 1,
                    Err(WriteError::Memory(MemoryLost)) => self.rnic.fail_transmit(now, own_qpn),
                }
                continue;
            }
            if let Some(neighbours) = self.neighbours.as_mut().filter(|_| !is_for_group) {
                match neighbours.send(now, &outgoing, &self.memory) {
                    Sent::Yes => continue,
                    Sent::Lost => {
                        self.counters.dropped_link_full += 1;
                        continue;
                    }
                    Sent::Unread => {
                        self.rnic.fail_transmit(now, own_qpn);
                        continue;
                    }
                    Sent::NotHere => self.turn.udp_warmth = UDP_WARM_TURNS,
                }
            }
            if self.is_shm_only && !is_for_group {
                self.counters.dropped_unreachable += 1;
                continue;
            }
            let (mut gid, qpn) = (outgoing.address.gid, outgoing.headers.bth.dest_qpn);
            if is_for_group {
                gid = self.groups.reachable(gid);
                self.turn.udp_warmth = UDP_WARM_TURNS;
            }
            let path = Path {
                peer: SocketAddr::new(gid.to_ip(), UDP_PORT),
                class: self.sharing.class_of(now, gid, qpn),
                traffic_class: outgoing.address.traffic_class,
            };
            let mut written = write(&mut self.tx, path, &outgoing, &self.memory);
            if written == Err(WriteError::Reserve(ReserveError::Full)) {
                transmit(&mut *self.udp, &mut self.tx, &mut self.paths, now);
                self.turn.urgent = 0;
                written = write(&mut self.tx, path, &outgoing, &self.memory);
            }
            self.room.note(gid, qpn, outgoing.payload.len() as usize);
            match written {
                Ok(()) => self.turn.urgent += u32::from(outgoing.order == highwire_rnic::Order::Strict),
                // Lost, as on a wire: the requester's timeout repeats it.
                Err(WriteError::Reserve(_)) => self.counters.dropped_link_full += 1,
                Err(WriteError::Memory(MemoryLost)) => self.rnic.fail_transmit(now, own_qpn),
            }
        }
    }

    /// Whether there is room for more at the peer whose turn it is to be looked at.
    #[cold]
    fn has_room(&mut self, now: Instant) -> bool {
        // What was noted is to be at its socket before that is looked at.
        transmit(&mut *self.udp, &mut self.tx, &mut self.paths, now);
        self.turn.urgent = 0;
        if self.room.is_full(now) {
            self.counters.waited_for_room += 1;
            return false;
        }
        true
    }

    /// Sends what waits. Without `all`, a batch of nothing but acknowledgements is kept for the next step.
    #[inline]
    pub(super) fn flush(&mut self, all: bool) {
        if self.disturbed.as_ref().is_some_and(super::Disturbed::is_busy) {
            self.flush_disturbed();
        }
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.flush();
        }
        self.turn.deferred = false;
        if !self.tx.is_empty() || self.udp.poll_timeout().is_some() {
            self.flush_udp(all);
        }
    }

    #[cold]
    fn flush_disturbed(&mut self) {
        let now = self.now();
        if let (Some(disturbed), Some(neighbours)) = (&mut self.disturbed, &mut self.neighbours) {
            disturbed.flush(now, &mut self.paths, neighbours, &mut self.counters);
            // What is for queue pair 1 is for no neighbour's ring: all of an address have it in common.
            for (to, packet) in disturbed.take_mads() {
                let path = Path { class: Qpn::GSI.value() as u8, ..to.into() };
                let taken = self.tx.push(path, &packet, Order::Strict);
                self.turn.urgent += u32::from(taken.is_ok());
                self.counters.dropped_link_full += u64::from(taken.is_err());
            }
        }
    }

    fn flush_udp(&mut self, all: bool) {
        if !all && self.turn.urgent == 0 && !self.tx.is_blocked() && !self.tx.is_empty() {
            self.turn.deferred = true;
            return;
        }
        let now = self.now();
        transmit(&mut *self.udp, &mut self.tx, &mut self.paths, now);
        self.turn.urgent = 0;
    }
}

/// Hands the batch to the link; false if the link could not take all of it.
pub(super) fn transmit(
    link: &mut (dyn Link + Send),
    tx: &mut TxBatch,
    paths: &mut Paths,
    now: Instant,
) -> bool {
    let mut seal = |packet: &mut [u8], place: &Place| seal(paths, packet, place);
    link.transmit(now, tx, &mut seal) == Transmitted::All
}

fn seal(paths: &mut Paths, packet: &mut [u8], place: &Place) {
    let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() else { return };
    if let Some(path) = paths.between(place.source, place.destination) {
        *icrc = path.icrc(place.train_index, body).to_le_bytes();
    }
}

/// Why a packet is not in the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteError {
    Reserve(ReserveError),
    /// Its payload is not there any more.
    Memory(MemoryLost),
}

impl From<ReserveError> for WriteError {
    fn from(error: ReserveError) -> WriteError {
        WriteError::Reserve(error)
    }
}

impl From<MemoryLost> for WriteError {
    fn from(error: MemoryLost) -> WriteError {
        WriteError::Memory(error)
    }
}

/// Writes one packet, without its ICRC, into the batch.
#[inline]
pub(super) fn write(
    tx: &mut TxBatch,
    path: Path,
    outgoing: &Outgoing<'_>,
    memory: &crate::memory::HostMemory,
) -> Result<(), WriteError> {
    let headers = outgoing.headers.encoded_len();
    let payload = outgoing.payload.len() as usize;
    let padding = usize::from(outgoing.headers.bth.pad_count);
    let order = match outgoing.order {
        highwire_rnic::Order::Strict => Order::Strict,
        highwire_rnic::Order::Free => Order::Free,
    };
    let bytes = headers + payload + padding + ICRC_LEN;
    let mut slot = tx.reserve(path, bytes, order)?;
    outgoing.headers.emit(&mut slot);
    memory.copy_out(&outgoing.payload, &mut slot[headers..headers + payload])?;
    slot[headers + payload..bytes].fill(0);
    slot.commit(bytes);
    Ok(())
}
