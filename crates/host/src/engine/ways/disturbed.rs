//! Shared memory with faults and captures, for packets that no network carries.
//!
//! Packets are laid out as for a wire and go through the same decorators, which end in an [`Outbox`] instead of a socket.
//! The sender checks the ICRC of what comes out, because a receiver does not check packets from a ring: a packet that a fault
//! has damaged ends here and is counted; the others go on into the neighbours' rings without their ICRC.

use super::Offered;
use super::layout::{WriteError, write};
use super::neighbours::{BTH_MARKS, Neighbours, Sent};
use super::paths::Paths;
use crate::counters::DriverCounters;
use crate::memory::HostMemory;
use crate::packet_faults::PacketFaults;
use highwire_link::{
    CaptureFile, Link, Order, Path, ReserveError, RxBatch, Seal, TrainLimits, Transmitted, TxBatch,
};
use highwire_rnic::Outgoing;
use highwire_stdx::Instant;
use highwire_verbs::Gid;
use highwire_wire::{Bth, ICRC_LEN, Qpn, UDP_PORT, parse_packet_with_icrc};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The reserved bits of the BTH that hold the DSCP in a ring.
const RESERVED_BITS: u8 = 0x3F;

/// The faults and captures between the RNIC and the rings of one lane.
pub(crate) struct Disturbed {
    tx: TxBatch,
    paths: Paths,
    link: Box<dyn Link + Send>,
    outbox: Outbox,
    capture: Option<CaptureFile>,
    deafness: Option<PacketFaults>,
    unheard: u64,
    /// An arrival with its ICRC, while it is recorded.
    arrival: Vec<u8>,
    /// Management datagrams that the decorators let through.
    mads: Vec<(SocketAddr, Vec<u8>)>,
    recorded: u64,
    lost: u64,
}

/// The innermost link: keeps the packets that the decorators let through.
#[derive(Clone)]
pub(crate) struct Outbox {
    local: SocketAddr,
    kept: Arc<Mutex<Kept>>,
}

/// Sealed packets, end to end, with where each goes, its traffic class, and how long it is.
#[derive(Default)]
struct Kept {
    packets: Vec<(SocketAddr, u8, usize)>,
    bytes: Vec<u8>,
}

impl Disturbed {
    /// Packets from `local` go through the decorators that `decorate` puts around the outbox; arrivals are
    /// recorded in `capture`.
    pub(crate) fn new(
        local: SocketAddr,
        capture: Option<CaptureFile>,
        deafness: Option<PacketFaults>,
        decorate: impl FnOnce(Outbox) -> Box<dyn Link + Send>,
    ) -> Disturbed {
        let outbox = Outbox { local, kept: Arc::default() };
        Disturbed {
            tx: TxBatch::new(),
            paths: Paths::default(),
            link: decorate(outbox.clone()),
            outbox,
            capture,
            deafness,
            unheard: 0,
            arrival: Vec::new(),
            mads: Vec::new(),
            recorded: 0,
            lost: 0,
        }
    }

    /// Takes one packet on its way into `rings`.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        outgoing: &Outgoing<'_>,
        memory: &HostMemory,
        rings: &mut Neighbours,
        counters: &mut DriverCounters,
    ) -> Offered {
        let peer = SocketAddr::new(outgoing.address.gid.to_ip(), UDP_PORT);
        let path = Path { traffic_class: outgoing.address.traffic_class, ..peer.into() };
        let mut written = write(&mut self.tx, path, outgoing, memory);
        if written == Err(WriteError::Reserve(ReserveError::Full)) {
            self.flush(now, rings, counters);
            written = write(&mut self.tx, path, outgoing, memory);
        }
        match written {
            Ok(()) => {}
            Err(WriteError::Reserve(_)) => counters.dropped_link_full += 1,
            Err(WriteError::Memory(_)) => return Offered::Unread,
        }
        Offered::Taken
    }

    /// Takes one packet that is laid out already, but for its ICRC.
    ///
    /// # Errors
    /// [`ReserveError::Full`] until the next flush.
    pub(super) fn take_laid_out(&mut self, path: Path, packet: &[u8]) -> Result<(), ReserveError> {
        self.tx.push(path, packet, Order::Strict)
    }

    /// The management datagrams of the last flushes, which the network is to carry.
    pub(super) fn take_mads(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.mads)
    }

    /// Whether there is anything to flush, now or at some time.
    pub(super) fn is_busy(&self) -> bool {
        !self.tx.is_empty() || !self.mads.is_empty() || self.link.poll_timeout().is_some()
    }

    /// When a packet that is held back is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }

    /// Puts the packets that were taken, and those held back until now, into the rings, unless a fault has
    /// removed them.
    pub(super) fn flush(&mut self, now: Instant, rings: &mut Neighbours, counters: &mut DriverCounters) {
        let paths = &mut self.paths;
        // An outbox is never full.
        let _ = paths.transmit(&mut *self.link, &mut self.tx, now);
        let local = self.outbox.local;
        let mut kept = self.outbox.kept();
        let Kept { packets, bytes } = &mut *kept;
        let mut rest = bytes.as_slice();
        for (destination, traffic_class, len) in packets.drain(..) {
            let packet;
            (packet, rest) = rest.split_at(len);
            // Without a common family there is no header around the packet, and no ICRC.
            let Some(path) = paths.between(local, destination) else {
                counters.dropped_unreachable += 1;
                continue;
            };
            if !path.verify(0, packet) {
                counters.dropped_bad_icrc += 1;
                continue;
            }
            // A flipped bit that the ICRC does not cover is as harmless here as on a wire.
            let Ok((headers, ..)) = parse_packet_with_icrc(packet) else {
                counters.dropped_malformed += 1;
                continue;
            };
            if headers.bth.dest_qpn == Qpn::GSI {
                self.mads.push((destination, packet.to_vec()));
                continue;
            }
            let gid = Gid::from_ip(destination.ip());
            let body = &packet[..len - ICRC_LEN];
            match rings.send_bytes(now, (gid, headers.bth.dest_qpn), traffic_class, body) {
                Sent::Yes => {}
                Sent::Lost | Sent::Unread => counters.dropped_link_full += 1,
                Sent::NotHere => counters.dropped_unreachable += 1,
            }
        }
        bytes.clear();
    }

    /// Whether a packet that came out of a ring is lost before anything else; it is counted.
    pub(crate) fn loses_arrival<'a>(&mut self, bytes: impl FnOnce() -> &'a [u8]) -> bool {
        let is_lost = self.deafness.as_ref().is_some_and(|faults| faults.loses(bytes));
        self.unheard += u64::from(is_lost);
        is_lost
    }

    /// Records a packet that came out of a ring, with the ICRC that it would have had.
    pub(crate) fn record(&mut self, now: Instant, source: IpAddr, packet: &[u8]) {
        let Some(capture) = &self.capture else { return };
        let ends = (SocketAddr::new(source, UDP_PORT), self.outbox.local);
        let path = self.paths.between(ends.0, ends.1).filter(|_| packet.len() >= Bth::LEN);
        let is_recorded = path.is_some_and(|path| {
            self.arrival.clear();
            self.arrival.extend_from_slice(packet);
            // On a wire the class is in the IP header, and these bits, which no ICRC covers, are zero.
            let traffic_class = (packet[BTH_MARKS] & RESERVED_BITS) << 2;
            self.arrival[BTH_MARKS] &= !RESERVED_BITS;
            self.arrival.extend_from_slice(&path.icrc(0, packet).to_le_bytes());
            capture.record(now, ends, traffic_class, &self.arrival)
        });
        self.recorded += u64::from(is_recorded);
        self.lost += u64::from(!is_recorded);
    }

    pub(super) fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.link.counters(each);
        if self.deafness.is_some() {
            each("fault_unheard_in_rings", self.unheard);
        }
        if self.capture.is_some() {
            each("capture_recorded", self.recorded);
            each("capture_lost", self.lost);
        }
    }
}

impl Outbox {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Only the thread that runs the lane takes this lock, through one of two handles.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link for Outbox {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn train_limits(&self) -> TrainLimits {
        TrainLimits::SINGLE
    }

    fn transmit(&mut self, _now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted {
        let mut kept = self.kept();
        batch.take_each(self.local, seal, |destination, traffic_class, packet| {
            kept.packets.push((destination, traffic_class, packet.len()));
            kept.bytes.extend_from_slice(packet);
        });
        Transmitted::All
    }

    fn receive(&mut self, _now: Instant, _batch: &mut RxBatch) -> usize {
        0
    }

    fn counters(&self, _each: &mut dyn FnMut(&'static str, u64)) {}
}
