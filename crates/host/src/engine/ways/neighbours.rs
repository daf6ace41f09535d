//! Neighbours: the peers on this host that shared memory reaches, and the rings that lead to them.
//!
//! A GID is looked up for its first packet. If no engine has it, it is looked up again after a while. A
//! neighbour that has gone is forgotten, and its packets take the network, where they time out.

use super::stillness::Stillness;
use crate::memory::HostMemory;
use crate::sys;
use highwire_link::shm::{
    Access, ChannelConfig, EngineName, Inbox, LocalEngine, PeerEngine, PublishedQueuePair, PublishedReceives,
    Receiver, SendError, ShmSender,
};
use highwire_rnic::{Order, Outgoing, QpSnapshot};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{Gid, MemoryLost};
use highwire_wake::world::may_switch;
use highwire_wire::{Bth, Qpn};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// A GID that no neighbour had is looked up again after this time.
const ABSENT_FOR: Duration = Duration::from_millis(500);
/// One that has refused our channel cannot open it, and packets in it were lost.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Packets that wait for room in one ring; more are lost, as in a switch.
const BACKLOG_PACKETS_MAX: usize = 4096;
/// So many packets may wait for room in rings before the engine takes no more from the RNIC: unlike a wire, a
/// ring need not drop.
const BACKLOG_PACKETS_ENOUGH: usize = 1024;

pub(crate) struct Neighbours {
    pub(crate) inbox: Inbox,
    local: Arc<LocalEngine>,
    lane: u32,
    known: Vec<Known>,
    recent: usize,
    /// Rings that something was put into since they were last flushed, as places in `known` and of a lane.
    unflushed: Vec<(usize, usize)>,
    /// There are others among these packets than acknowledgements that may wait.
    has_urgent: bool,
    backlogged: usize,
    /// Sends the empty datagrams that wake a sleeping engine which has no bell.
    bell: UdpSocket,
    /// How often a neighbour was woken.
    rung: u64,
}

/// The account of a GID, or of a part of it if processes share it.
struct Known {
    gid: Gid,
    /// Which bits of a queue pair number say whether its owner is this one, and what they are.
    shard_mask: u32,
    shard: u32,
    /// `None` until the given time: not on this host.
    peer: Result<Arc<PeerEngine>, Instant>,
    /// It has refused a channel, and is not to be looked up at once.
    has_refused: bool,
    /// By the peer's lane.
    rings: Vec<Option<Ring>>,
}

struct Ring {
    sender: ShmSender,
    backlog: VecDeque<Box<[u8]>>,
    /// When a packet last left the backlog, as seen at the last look, and whether one has left since that look.
    stillness: Stillness,
    has_moved: bool,
    is_unflushed: bool,
}

/// The result of sending a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    Yes,
    /// The peer is not on this host.
    NotHere,
    /// It was for a peer on this host and is lost.
    Lost,
    /// The memory of its payload is not there any more.
    Unread,
}

/// The length of a datagram that only wakes: too short for a packet.
pub(crate) const BELL_BYTES: usize = 8;

/// The DSCP of a packet in a ring, where there is no IP header: in the six reserved bits of its BTH (IBTA §9.2), right of
/// F and B. A traffic class without its two bits for ECN.
#[inline]
pub(crate) fn traffic_class_of(bth: &Bth) -> u8 {
    bth.reserved6 << 2
}

#[inline]
fn mark_traffic_class(packet: &mut [u8], traffic_class: u8) {
    // The byte is written only for queue pairs that ask for a traffic class.
    if traffic_class != 0 {
        packet[BTH_MARKS] |= traffic_class >> 2;
    }
}

/// Where F, B and the reserved bits lie in a packet.
pub(super) const BTH_MARKS: usize = 4;

impl Known {
    #[inline]
    fn is(&self, gid: Gid, qpn: Qpn) -> bool {
        self.gid == gid && qpn.value() & self.shard_mask == self.shard
    }
}

impl Neighbours {
    pub(crate) fn new(local: &Arc<LocalEngine>, lane: u32, bell: UdpSocket) -> Neighbours {
        Neighbours {
            inbox: Inbox::new(local, lane),
            local: Arc::clone(local),
            lane,
            known: Vec::new(),
            recent: 0,
            unflushed: Vec::new(),
            has_urgent: false,
            backlogged: 0,
            bell,
            rung: 0,
        }
    }

    /// Whether packets for a queue pair go into an existing ring in which no packet waits for room.
    #[inline]
    pub(crate) fn has_ring(&mut self, gid: Gid, qpn: Qpn) -> bool {
        let Some(at) = self.find(gid, qpn) else { return false };
        let rings = &self.known[at].rings;
        let lane = qpn.value() as usize % rings.len().max(1);
        rings.get(lane).is_some_and(|ring| ring.as_ref().is_some_and(|ring| ring.backlog.is_empty()))
    }

    /// Whether a ring has packets that its reader cannot see yet, or was not woken for.
    #[inline]
    pub(crate) fn is_unflushed(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// Sends a packet, if its destination is on this host.
    #[inline]
    pub(crate) fn send(&mut self, now: Instant, outgoing: &Outgoing<'_>, memory: &HostMemory) -> Sent {
        let headers = outgoing.headers.encoded_len();
        let payload = outgoing.payload.len() as usize;
        let bytes = headers + payload + usize::from(outgoing.headers.bth.pad_count);
        self.has_urgent |= outgoing.order == Order::Strict;
        let fill = |out: &mut [u8]| {
            outgoing.headers.emit(out);
            mark_traffic_class(out, outgoing.address.traffic_class);
            memory.copy_out(&outgoing.payload, &mut out[headers..headers + payload])?;
            out[headers + payload..].fill(0);
            Ok(())
        };
        self.put(now, (outgoing.address.gid, outgoing.headers.bth.dest_qpn), bytes, fill)
    }

    /// Sends a packet, BTH to padding, that is laid out already.
    pub(super) fn send_bytes(
        &mut self,
        now: Instant,
        (gid, qpn): (Gid, Qpn),
        traffic_class: u8,
        packet: &[u8],
    ) -> Sent {
        self.has_urgent = true;
        self.put(now, (gid, qpn), packet.len(), |out| {
            out.copy_from_slice(packet);
            mark_traffic_class(out, traffic_class);
            Ok(())
        })
    }

    #[inline]
    fn put(
        &mut self,
        now: Instant,
        (gid, qpn): (Gid, Qpn),
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), MemoryLost> + Copy,
    ) -> Sent {
        let Some((at, lane)) = self.ring_to(now, gid, qpn) else { return Sent::NotHere };
        let Some(ring) = &mut self.known[at].rings[lane] else { return Sent::NotHere };
        if !ring.backlog.is_empty() {
            return self.keep(at, lane, bytes, fill);
        }
        // A lone packet is seen at once, and so is the first of several; those behind it come in groups.
        if ring.is_unflushed {
            ring.sender.begin_batch();
        }
        match ring.sender.try_fill(bytes, fill) {
            Ok(Err(MemoryLost)) => Sent::Unread,
            Ok(Ok(())) => {
                if !std::mem::replace(&mut ring.is_unflushed, true) {
                    self.unflushed.push((at, lane));
                }
                Sent::Yes
            }
            Err(SendError::Full) => self.keep(at, lane, bytes, fill),
            Err(SendError::TooLong) => Sent::Lost,
            Err(SendError::Closed) => {
                self.forget(at);
                Sent::NotHere
            }
        }
    }

    /// The ring's sending end towards a queue pair on this host, for operations without packets.
    #[inline]
    pub(crate) fn sender_to(&mut self, now: Instant, gid: Gid, qpn: Qpn) -> Option<&mut ShmSender> {
        let (at, lane) = self.ring_to(now, gid, qpn)?;
        self.known[at].rings[lane].as_mut().map(|ring| &mut ring.sender)
    }

    /// Whether the owner of a queue pair on this host has dealt with everything that was sent to it.
    #[inline]
    pub(crate) fn is_drained(&mut self, now: Instant, gid: Gid, qpn: Qpn) -> bool {
        let Some((at, lane)) = self.ring_to(now, gid, qpn) else { return false };
        self.known[at].rings[lane]
            .as_ref()
            .is_some_and(|ring| ring.backlog.is_empty() && !ring.sender.is_unheard())
    }

    /// Whether the owner of a queue pair on this host lives, and has yet to look at the packets sent to it:
    /// then it has not been running.
    #[cold]
    pub(crate) fn is_unheard(&self, gid: Gid, qpn: Qpn) -> bool {
        let Some(known) = self.known.iter().find(|known| known.is(gid, qpn)) else { return false };
        let Ok(peer) = &known.peer else { return false };
        let lane = qpn.value() as usize % known.rings.len().max(1);
        let Some(Some(ring)) = known.rings.get(lane) else { return false };
        (!ring.backlog.is_empty() || ring.sender.is_unheard()) && peer.check_alive()
    }

    /// Moves waiting packets into the rings, and wakes the peers that sleep. Without `all`, a peer is not woken for
    /// acknowledgements alone; then this returns true.
    #[inline]
    pub(crate) fn flush(&mut self, all: bool) -> bool {
        if self.backlogged > 0 {
            self.send_backlog();
        }
        if !all && !self.has_urgent {
            return self.show();
        }
        self.has_urgent = false;
        while let Some((at, lane)) = self.unflushed.pop() {
            let Some(known) = self.known.get_mut(at) else { continue };
            let Some(Some(ring)) = known.rings.get_mut(lane) else { continue };
            ring.is_unflushed = false;
            may_switch();
            let receiver = ring.sender.flush();
            self.rung += u64::from(receiver != Receiver::Awake);
            if receiver == Receiver::Asleep {
                let address = SocketAddr::new(known.gid.to_ip(), highwire_wire::UDP_PORT);
                // Where processes share an address, it takes a number to find the right one.
                let whom = u64::from(known.shard).to_be_bytes();
                let ring: &[u8] = if known.shard_mask == 0 { &[] } else { &whom };
                // The datagram may be lost; the peer's own timers wake it, too.
                let _ = self.bell.send_to(ring, address);
            }
        }
        false
    }

    /// Shows the packets to their peers; whether some of these sleep.
    fn show(&mut self) -> bool {
        let Neighbours { known, unflushed, .. } = self;
        unflushed.retain(|&(at, lane)| {
            let ring = known.get_mut(at).and_then(|known| known.rings.get_mut(lane)?.as_mut());
            ring.is_some_and(|ring| {
                ring.is_unflushed = ring.sender.show();
                ring.is_unflushed
            })
        });
        !unflushed.is_empty()
    }

    /// Whether it takes no look at the registry to send there.
    #[inline]
    pub(crate) fn knows(&self, gid: Gid, qpn: Qpn) -> bool {
        self.known.get(self.recent).is_some_and(|known| known.is(gid, qpn) && !known.rings.is_empty())
    }

    pub(crate) fn has_backlog(&self) -> bool {
        self.backlogged > 0
    }

    /// Whether packets should stay where they are until rings have room.
    #[inline]
    pub(super) fn is_congested(&mut self, now: Instant) -> bool {
        self.backlogged > BACKLOG_PACKETS_ENOUGH && self.has_congested_ring(now)
    }

    #[cold]
    fn has_congested_ring(&mut self, now: Instant) -> bool {
        let mut is_congested = false;
        for known in &mut self.known {
            let Ok(peer) = &known.peer else { continue };
            let rings = known.rings.iter_mut().flatten();
            for ring in rings.filter(|ring| ring.backlog.len() > BACKLOG_PACKETS_ENOUGH) {
                if std::mem::take(&mut ring.has_moved) {
                    ring.stillness.on_moved(now);
                }
                is_congested |= ring.stillness.is_waited_for(now, || sys::wants_to_run(peer.pid()));
            }
        }
        is_congested
    }

    /// Tells neighbours that a queue pair is broken. One that is at work right now may finish.
    #[cold]
    pub(crate) fn close(&self, qpn: Qpn, qp: &QpSnapshot) {
        let entry = PublishedQueuePair {
            pd: qp.config.pd.0,
            access: Access(0),
            peer_qpn: qp.remote_qpn.value(),
            peer_gid: qp.address.gid.0,
            ready: false,
            receives: PublishedReceives::default(),
        };
        // If the entry does not fit, it was not published before either.
        let _ = self.local.publish_queue_pair(qpn.value(), &entry);
    }

    /// Other engines on this host that it has met and that live, as far as it knows.
    pub(crate) fn count(&self) -> usize {
        let own = self.local.name();
        self.known.iter().filter(|known| known.peer.as_ref().is_ok_and(|peer| peer.name() != own)).count()
    }

    /// How often neighbours that slept were woken, so far.
    pub(super) fn rung(&self) -> u64 {
        self.rung
    }

    /// Housekeeping: forgets peers that are gone and were not noticed.
    pub(crate) fn reap(&mut self) {
        self.inbox.reap();
        for at in 0..self.known.len() {
            if self.known[at].peer.as_ref().is_ok_and(|peer| !peer.check_alive()) {
                self.forget(at);
            }
        }
    }

    #[inline]
    fn ring_to(&mut self, now: Instant, gid: Gid, qpn: Qpn) -> Option<(usize, usize)> {
        let at = match self.find(gid, qpn) {
            Some(at) => at,
            None => self.meet(gid),
        };
        let known = &mut self.known[at];
        if known.rings.is_empty() && !self.look_up(now, at, qpn) {
            return None;
        }
        let known = &self.known[at];
        let lane = qpn.value() as usize % known.rings.len();
        if known.rings[lane].is_none() && !self.attach(now, at, lane) {
            return None;
        }
        Some((at, lane))
    }

    /// Where in `known` a queue pair's owner is; the latest one is looked at first.
    #[inline]
    fn find(&mut self, gid: Gid, qpn: Qpn) -> Option<usize> {
        if self.known.get(self.recent).is_none_or(|known| !known.is(gid, qpn)) {
            self.recent = self.known.iter().position(|known| known.is(gid, qpn))?;
        }
        Some(self.recent)
    }

    fn meet(&mut self, gid: Gid) -> usize {
        let peer = Err(Instant::ZERO);
        self.known.push(Known { gid, shard_mask: 0, shard: 0, peer, has_refused: false, rings: Vec::new() });
        self.recent = self.known.len() - 1;
        self.recent
    }

    /// The name that the owner of a queue pair has, if it is on this host.
    pub(crate) fn name_of(&self, ip: IpAddr, qpn: Qpn) -> EngineName {
        let is_shared = self.local.registry().is_shared(ip);
        EngineName::shared(ip, if is_shared { qpn.value() as u8 } else { 0 })
    }

    /// Looks for the living engine that has this GID, or the part of it that a queue pair belongs to.
    fn look_up(&mut self, now: Instant, at: usize, qpn: Qpn) -> bool {
        let known = &mut self.known[at];
        if known.peer.as_ref().is_err_and(|again| *again > now) {
            return false;
        }
        if std::mem::take(&mut known.has_refused) {
            known.peer = Err(now + REFUSED_FOR);
            return false;
        }
        let ip = known.gid.to_ip();
        let is_shared = self.local.registry().is_shared(ip);
        known.shard_mask = if is_shared { 0xFF } else { 0 };
        known.shard = qpn.value() & known.shard_mask;
        match self.local.registry().lookup(EngineName::shared(ip, known.shard as u8)) {
            Ok(peer) => {
                known.rings = (0..peer.lanes()).map(|_| None).collect();
                known.peer = Ok(Arc::new(peer));
                true
            }
            Err(_) => {
                known.peer = Err(now + ABSENT_FOR);
                false
            }
        }
    }

    #[cold]
    fn attach(&mut self, now: Instant, at: usize, lane: usize) -> bool {
        let known = &mut self.known[at];
        let Ok(peer) = &known.peer else { return false };
        match peer.attach(&self.local, self.lane, lane as u32, &ChannelConfig::default()) {
            Ok(sender) => {
                known.rings[lane] = Some(Ring {
                    sender,
                    backlog: VecDeque::new(),
                    stillness: Stillness::new(now),
                    has_moved: false,
                    is_unflushed: false,
                });
                true
            }
            Err(_) => {
                // The network reaches the peer as well.
                known.peer = Err(now + ABSENT_FOR);
                known.rings.clear();
                false
            }
        }
    }

    /// Keeps a packet until its ring has room.
    #[cold]
    fn keep(
        &mut self,
        at: usize,
        lane: usize,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), MemoryLost>,
    ) -> Sent {
        let Some(ring) = &mut self.known[at].rings[lane] else { return Sent::Lost };
        if ring.backlog.len() >= BACKLOG_PACKETS_MAX {
            return Sent::Lost;
        }
        let mut packet = vec![0; bytes].into_boxed_slice();
        if fill(&mut packet).is_err() {
            return Sent::Unread;
        }
        // The time without movement counts from the first packet that waits.
        ring.has_moved |= ring.backlog.is_empty();
        ring.backlog.push_back(packet);
        self.backlogged += 1;
        if !std::mem::replace(&mut ring.is_unflushed, true) {
            self.unflushed.push((at, lane));
        }
        Sent::Yes
    }

    #[cold]
    fn send_backlog(&mut self) {
        let mut gone = None;
        for (at, known) in self.known.iter_mut().enumerate() {
            for (lane, ring) in known.rings.iter_mut().enumerate() {
                let Some(ring) = ring else { continue };
                while let Some(packet) = ring.backlog.front() {
                    match ring.sender.try_send(packet.len(), |out| out.copy_from_slice(packet)) {
                        Ok(()) => {
                            ring.backlog.pop_front();
                            ring.has_moved = true;
                            self.backlogged -= 1;
                            if !std::mem::replace(&mut ring.is_unflushed, true) {
                                self.unflushed.push((at, lane));
                            }
                        }
                        Err(SendError::Full) => break,
                        Err(SendError::Closed | SendError::TooLong) => {
                            gone = Some(at);
                            break;
                        }
                    }
                }
            }
        }
        if let Some(at) = gone {
            self.forget(at);
        }
    }

    /// Drops the rings to a peer, and looks it up again when next there is a packet for it.
    #[cold]
    fn forget(&mut self, at: usize) {
        let known = &mut self.known[at];
        self.backlogged -= known.rings.iter().flatten().map(|ring| ring.backlog.len()).sum::<usize>();
        known.has_refused = known.rings.iter().flatten().any(|ring| ring.sender.is_refused());
        known.rings.clear();
        known.peer = Err(Instant::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_link::shm::{EngineConfig, Registry};
    use highwire_verbs::{Address, Gather};
    use highwire_wire::{Ext, Headers, Opcode, Psn};

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 1, 1, last])
    }

    fn send(neighbours: &mut Neighbours, order: Order) {
        #[allow(unsafe_code)]
        // SAFETY: it is handed no addresses.
        let memory = unsafe { HostMemory::new() };
        let address = Address::new(Gid::from_ip(address(2)));
        let headers = Headers::new(Opcode::RcSendOnly, Qpn::GSI, Psn::new(1), Ext::None);
        let (qpn, payload) = (Qpn::GSI, Gather::EMPTY);
        let packet = Outgoing { qpn, address: &address, headers: &headers, payload, order, path: 0 };
        assert_eq!(neighbours.send(Instant::ZERO, &packet, &memory), Sent::Yes);
    }

    #[test]
    fn a_neighbour_that_sleeps_is_woken_for_packets_and_not_for_acknowledgements_that_may_wait() {
        let root = std::env::temp_dir().join(format!("highwire-woken-{}", std::process::id()));
        let registry = Registry::open_at(&root).expect("a registry");
        let claim = |last| registry.claim(address(last), &EngineConfig::default()).expect("an engine");
        let (here, there) = (Arc::new(claim(1)), Arc::new(claim(2)));
        let bell = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut neighbours = Neighbours::new(&here, 0, bell);
        let mut inbox = Inbox::new(&there, 0);
        let mut flush = |inbox: &mut Inbox, orders: &[Order], all: bool| {
            orders.iter().for_each(|order| send(&mut neighbours, *order));
            let keeps = neighbours.flush(all);
            assert_eq!(keeps, neighbours.is_unflushed());
            (keeps, inbox.silence(), inbox.receive(8, |_, _| ()))
        };
        const ACKS: [Order; 2] = [Order::Free; 2];
        assert_eq!(flush(&mut inbox, &ACKS, false), (false, false, 2), "it is awake");
        assert!(inbox.prepare_sleep());
        assert_eq!(flush(&mut inbox, &ACKS, false), (true, false, 2), "it would see them");
        assert_eq!(flush(&mut inbox, &[], false), (true, false, 0), "it still sleeps");
        assert_eq!(flush(&mut inbox, &[], true), (false, true, 0), "their time has come");
        assert!(inbox.prepare_sleep());
        assert_eq!(flush(&mut inbox, &ACKS, false), (true, false, 2));
        let both = [Order::Free, Order::Strict];
        assert_eq!(flush(&mut inbox, &both, false), (false, true, 2), "a packet wakes it");
        assert!(inbox.prepare_sleep());
        assert_eq!(flush(&mut inbox, &ACKS, false), (true, false, 2), "the one before is forgotten");
        inbox.awake();
        assert_eq!(flush(&mut inbox, &[], false), (false, false, 0), "it has woken by itself");
        assert_eq!(neighbours.rung(), 2);
        drop((neighbours, inbox, here, there));
        let _ = std::fs::remove_dir_all(root);
    }
}
