//! The way to all peers: datagrams, in trains, through the lane's socket.
//!
//! A packet is laid out in the batch in place, and sealed when its train is known.

use super::layout::{WriteError, write};
use super::paths::Paths;
use super::room::Room;
use super::sharing::Sharing;
use super::{Groups, Offered, Way};
use crate::counters::DriverCounters;
use crate::memory::HostMemory;
use highwire_broker::Doorman;
use highwire_link::{Link, Order, Packet, Path, ReserveError, RxBatch, TxBatch};
use highwire_rnic::Outgoing;
use highwire_stdx::Instant;
use highwire_verbs::Gid;
use highwire_wire::{Qpn, UDP_PORT};
use std::net::SocketAddr;

/// A look at the socket costs several times a look at shared memory. After the socket has been silent for [`WARM_TURNS`],
/// only one in so many turns looks at it: idle turns look more often than turns that found packets, since a
/// peer may wait for the answer to those.
const BUSY_TURNS_SKIPPED: u32 = 256;
const IDLE_TURNS_SKIPPED: u32 = 32;
const WARM_TURNS: u32 = 4096;

/// One lane's socket, with its batches.
pub(crate) struct Udp {
    link: Box<dyn Link + Send>,
    tx: TxBatch,
    paths: Paths,
    sharing: Sharing,
    room: Room,
    /// The multicast groups that its queue pairs join.
    pub(crate) groups: Groups,
    pub(crate) pace: Pace,
    /// Packets in the batch that should leave with this turn.
    urgent: u32,
}

/// How often the socket is looked at.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Turns since the last look.
    skipped: u32,
    /// Turns for which every one still looks.
    warmth: u32,
}

impl Pace {
    /// Notes traffic on the socket.
    #[inline]
    pub(crate) fn warm_up(&mut self) {
        self.warmth = WARM_TURNS;
    }

    /// Makes the next turn look at the socket.
    pub(crate) fn hurry(&mut self) {
        self.skipped = u32::MAX;
    }

    /// Whether this turn looks at the socket; `shm_is_busy` if the turn found packets in shared memory.
    #[inline]
    pub(crate) fn is_due(&mut self, shm_is_busy: bool, reads_all: bool) -> bool {
        self.warmth = self.warmth.saturating_sub(1);
        let may_skip = (shm_is_busy || self.warmth == 0) && !reads_all;
        let most = if shm_is_busy { BUSY_TURNS_SKIPPED } else { IDLE_TURNS_SKIPPED };
        if may_skip && self.skipped < most {
            self.skipped += 1;
            return false;
        }
        self.skipped = 0;
        true
    }
}

impl Udp {
    /// `doorman` is the part of the broker's client that knows the sockets of the processes with which this one shares the address
    /// `own`.
    pub(crate) fn new(link: Box<dyn Link + Send>, own: Gid, doorman: Option<Doorman>, groups: Groups) -> Udp {
        Udp {
            link,
            tx: TxBatch::new(),
            paths: Paths::default(),
            sharing: Sharing::new(doorman.is_some()),
            room: Room::new(own, doorman),
            groups,
            pace: Pace::default(),
            urgent: 0,
        }
    }

    /// Takes a train that has arrived; returns the number of its packets.
    pub(crate) fn receive(&mut self, now: Instant, rx: &mut RxBatch) -> usize {
        self.link.receive(now, rx)
    }

    /// Whether a packet that came through the socket is undamaged.
    #[inline]
    pub(crate) fn verify(&mut self, packet: &Packet<'_>) -> bool {
        // The socket hides the identification that the ICRC covers; the packet's place in the train is a good
        // guess.
        self.verify_between(packet.source, self.link.local(), packet.train_index, packet.bytes)
    }

    /// The same for a packet between two addresses.
    #[inline]
    pub(crate) fn verify_between(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        train_index: u16,
        bytes: &[u8],
    ) -> bool {
        let path = self.paths.between(source, destination);
        path.and_then(|path| path.verify_unknown_id(train_index, bytes)).is_some()
    }

    /// Whether datagrams wait unread at the socket of a queue pair's owner on this machine.
    #[cold]
    pub(crate) fn is_unread(&self, gid: Gid, qpn: Qpn) -> bool {
        self.room.is_unread(gid, qpn)
    }

    /// Whether the socket has refused a part of the batch.
    pub(crate) fn is_blocked(&self) -> bool {
        self.tx.is_blocked()
    }

    /// In which trains a packet for a queue pair may travel.
    #[inline]
    pub(super) fn class_of(&mut self, now: Instant, gid: Gid, qpn: Qpn) -> u8 {
        self.sharing.class_of(now, gid, qpn)
    }

    /// Takes a packet that is laid out already, but for its ICRC.
    pub(super) fn push(&mut self, path: Path, packet: &[u8]) -> Result<(), ReserveError> {
        self.tx.push(path, packet, Order::Strict)?;
        self.urgent += 1;
        Ok(())
    }

    /// Sends the batch, if it is not empty. Without `all`, a batch of nothing but acknowledgements is kept;
    /// then this returns true.
    #[inline]
    pub(super) fn flush(&mut self, now: impl FnOnce() -> Instant, all: bool) -> bool {
        let is_empty = self.tx.is_empty();
        if is_empty && self.link.poll_timeout().is_none() {
            return false;
        }
        if !all && self.urgent == 0 && !self.tx.is_blocked() && !is_empty {
            return true;
        }
        self.transmit(now());
        false
    }

    /// Hands the batch to the link; false if the link could not take all of it.
    fn transmit(&mut self, now: Instant) -> bool {
        self.urgent = 0;
        self.paths.transmit(&mut *self.link, &mut self.tx, now)
    }

    /// Whether the peer whose turn it is to be looked at has room for more.
    #[cold]
    fn has_room(&mut self, now: Instant, counters: &mut DriverCounters) -> bool {
        // Noted packets must be at the peer's socket before that is looked at.
        self.transmit(now);
        let is_full = self.room.is_full(now);
        counters.waited_for_room += u64::from(is_full);
        !is_full
    }

    pub(super) fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.link.counters(each);
    }
}

impl Way for Udp {
    #[inline]
    fn takes_more(&mut self, now: Instant, counters: &mut DriverCounters) -> bool {
        (!self.tx.is_blocked() || self.transmit(now)) && (!self.room.is_due() || self.has_room(now, counters))
    }

    #[inline]
    fn offer(
        &mut self,
        now: Instant,
        outgoing: &Outgoing<'_>,
        memory: &HostMemory,
        counters: &mut DriverCounters,
    ) -> Offered {
        let (mut gid, qpn) = (outgoing.address.gid, outgoing.headers.bth.dest_qpn);
        if qpn == Qpn::MULTICAST {
            gid = self.groups.reachable(gid);
            self.pace.warm_up();
        }
        let path = Path {
            peer: SocketAddr::new(gid.to_ip(), UDP_PORT),
            class: self.class_of(now, gid, qpn),
            traffic_class: outgoing.address.traffic_class,
        };
        let mut written = write(&mut self.tx, path, outgoing, memory);
        if written == Err(WriteError::Reserve(ReserveError::Full)) {
            self.transmit(now);
            written = write(&mut self.tx, path, outgoing, memory);
        }
        self.room.note(gid, qpn, outgoing.payload.len() as usize);
        match written {
            Ok(()) => self.urgent += u32::from(outgoing.order == highwire_rnic::Order::Strict),
            // Lost, as on a wire: the requester's timeout repeats it.
            Err(WriteError::Reserve(_)) => counters.dropped_link_full += 1,
            Err(WriteError::Memory(_)) => return Offered::Unread,
        }
        Offered::Taken
    }

    fn deadline(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_how_often_the_socket_is_looked_at() {
        let page: Vec<&str> = include_str!("../../../../../docs/host.md").split_whitespace().collect();
        let says = |sentence: String| page.join(" ").contains(&sentence);
        assert!(says(format!("left out {BUSY_TURNS_SKIPPED} times in a row at most")));
        assert!(says(format!("silent for {WARM_TURNS} turns, {IDLE_TURNS_SKIPPED} times")));
    }

    /// Turns until the one that looks at the socket, that one included.
    fn turns(pace: &mut Pace, shm_is_busy: bool) -> u32 {
        (1..).find(|_| pace.is_due(shm_is_busy, false)).unwrap_or_default()
    }

    #[test]
    fn a_silent_socket_is_looked_at_seldom_and_one_with_traffic_every_time() {
        let mut pace = Pace::default();
        assert_eq!(turns(&mut pace, false), IDLE_TURNS_SKIPPED + 1);
        assert_eq!(turns(&mut pace, true), BUSY_TURNS_SKIPPED + 1);
        assert!(pace.is_due(true, true), "everything is to be read");
        pace.hurry();
        assert!(pace.is_due(false, false));
        pace.warm_up();
        for _ in 1..WARM_TURNS {
            assert!(pace.is_due(false, false));
        }
        assert_eq!(turns(&mut pace, false), IDLE_TURNS_SKIPPED + 1, "it has cooled down");
        pace.warm_up();
        assert_eq!(turns(&mut pace, true), BUSY_TURNS_SKIPPED + 1, "shared memory has more to say");
    }
}
