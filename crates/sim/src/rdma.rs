//! A host's RNIC: queue pairs as flows need them, packets in and out, and an independent check of the
//! transport.
//!
//! Connections are made without a handshake, as in the paper: both ends know each other's numbers from the scenario. A flow's
//! receiver learns of it by its first packet. Memory is one region whose addresses encode flow and offset, so
//! that the address of placed data tells its flow.

mod watch;

use highwire_fabric::{Nearness, Priorities, Time, prefetch};
use highwire_rnic::{Arrival, Counter, Hop, Rnic, RnicConfig};
use highwire_stdx::{Instant, Rng};
use highwire_verbs::{
    Access, Address, CompletionStatus, CqId, Gid, Length, LocalKey, Memory, MemoryLost, Operation, Pd,
    PostError, QpAttr, QpCaps, QpConfig, QpState, Recovery, RegionAttr, Remote, RemoteKey, SendFlags, SendWr,
    Service, Sge,
};
use highwire_wire::{Headers, Psn, Qpn};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use crate::ledger::Ledger;
use crate::parcel::{Body, Parcel};
use crate::scenario::{AckPriority, Entropy, QueuePairs};
use crate::stamped::Trail;
use crate::world::{Share, World};
use watch::Watch;

/// A host's RNIC and its connections.
#[derive(Debug)]
pub(crate) struct Rdma {
    rnic: Rnic,
    pd: Pd,
    cq: CqId,
    /// The queue pairs on which this host sends, by [`crate::world::Route::requester`], and those on which it
    /// receives.
    requesters: Vec<Requester>,
    responders: Vec<Responder>,
    /// Receivers of flows that are over, and until when they are kept to acknowledge repetitions.
    over: VecDeque<(Time, u32)>,
    /// Per connection whose send queue is full, flows that wait for a place in it.
    held: BTreeMap<u32, VecDeque<u32>>,
    /// The source port of the last packet, where each packet has one of its own.
    ports: u16,
    /// Per connection on which this host receives, what the switches on the way of the last data packet saw; the next
    /// acknowledgement carries it back. Only with telemetry.
    trails: BTreeMap<u32, Trail>,
    hops: Vec<Hop>,
    /// The connection of the last control packet.
    answered: u32,
    /// Data packets sent, repetitions among them, and control packets sent.
    pub(crate) data_packets: u64,
    pub(crate) control_packets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Requester {
    peer: u32,
    remote: u32,
    watch: Watch,
}

#[derive(Clone, Copy, Debug)]
struct Responder {
    peer: u32,
    remote: u32,
    is_open: bool,
}

/// The key of every host's memory.
const KEY: u32 = 0x0001_0000;
/// Numbers below are not for queue pairs; above, even ones send and odd ones receive.
const QPN_BASE: u32 = 16;
/// Most connections of one host.
const CONNECTIONS_MAX: usize = (1 << 23) - 64;

/// The memory of a host: remembers the last place that was written.
struct Placed {
    flow: u32,
    bytes: u32,
}

impl Memory<Length> for Placed {
    #[inline]
    fn place(&mut self, addr: u64, payload: Length) -> Result<(), MemoryLost> {
        self.flow = (addr >> 32) as u32;
        self.bytes += payload.0;
        Ok(())
    }

    fn write(&mut self, _addr: u64, _bytes: &[u8]) -> Result<(), MemoryLost> {
        Ok(())
    }

    fn compare_swap(&mut self, _addr: u64, compare: u64, _swap: u64) -> Result<u64, MemoryLost> {
        Ok(compare)
    }

    fn fetch_add(&mut self, _addr: u64, _add: u64) -> Result<u64, MemoryLost> {
        Ok(0)
    }
}

fn gid(host: u32) -> Gid {
    Gid::from_ip(IpAddr::V4(Ipv4Addr::from(0x0A00_0000 | host)))
}

/// The first PSN of a connection: both ends compute it, and some begin just below the wrap.
fn first_psn(world: &World, source: u32, requester: u32) -> Psn {
    let name = u64::from(source) << 32 | u64::from(requester);
    let mixed = (world.seed ^ name).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Psn::new((mixed >> 40) as u32)
}

const fn sending(requester: u32) -> Qpn {
    Qpn::new(QPN_BASE + 2 * requester)
}

const fn receiving(responder: u32) -> Qpn {
    Qpn::new(QPN_BASE + 2 * responder + 1)
}

/// Whether a queue pair of this number sends, and the connection's place.
const fn place_of(qpn: Qpn) -> (bool, usize) {
    let number = qpn.value() - QPN_BASE;
    (number.is_multiple_of(2), (number / 2) as usize)
}

impl Rdma {
    pub(crate) fn new(host: u32, world: &World, share: &Share) -> Rdma {
        assert!(share.requesters.len().max(share.responders.len()) < CONNECTIONS_MAX, "too many connections");
        let mut config = RnicConfig::new(gid(host));
        config.transport = world.transport;
        config.transport.link_rate = share.link_rate.as_bps();
        config.egress_quantum = world.scheme.turn_packets.max(1);
        let mut rnic = Rnic::new(config, Rng::new(world.seed ^ u64::from(host) << 20));
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq());
        let region = RegionAttr { addr: 0, length: 1 << 63, iova: 0, access: Access::ALL };
        rnic.regions_mut().register_as(KEY, pd, region).expect("the table is empty");
        let requester = |(at, &(peer, remote)): (usize, &(u32, u32))| Requester {
            peer,
            remote,
            watch: Watch::new(first_psn(world, host, at as u32)),
        };
        let responder = |&(peer, remote): &(u32, u32)| Responder { peer, remote, is_open: false };
        Rdma {
            rnic,
            pd,
            cq,
            requesters: share.requesters.iter().enumerate().map(requester).collect(),
            responders: share.responders.iter().map(responder).collect(),
            over: VecDeque::new(),
            held: BTreeMap::new(),
            ports: (host as u16).wrapping_mul(0x79B9),
            trails: BTreeMap::new(),
            hops: Vec::new(),
            answered: 0,
            data_packets: 0,
            control_packets: 0,
        }
    }

    /// Starts a flow: a WRITE on a queue pair of its own, or behind others.
    pub(crate) fn start(&mut self, ledger: &mut Ledger, now: Time, flow: u32) {
        let world = &ledger.world;
        let route = world.flows[flow as usize];
        let qpn = sending(route.requester);
        if self.rnic.qp(qpn).is_none() {
            self.open_requester(world, now.instant(), route.requester);
        }
        let sge = Sge { addr: 0, length: route.bytes, lkey: LocalKey(KEY) };
        let remote = Remote { va: u64::from(flow) << 32, rkey: RemoteKey(KEY) };
        let wr = SendWr {
            wr_id: u64::from(flow),
            operation: Operation::Write(remote),
            flags: SendFlags { signaled: true, ..SendFlags::default() },
            sges: &[sge],
            datagram: None,
        };
        match self.rnic.post_send(now.instant(), qpn, &wr) {
            Ok(()) => {}
            // As an application does that keeps its own account of the queue.
            Err(PostError::QueueFull) => self.held.entry(route.requester).or_default().push_back(flow),
            Err(error) => ledger.fail(now, format!("flow {flow} could not be posted: {error}")),
        }
    }

    fn create(&mut self, world: &World, qpn: Qpn) {
        let max_send_wr = match world.scheme.queue_pairs {
            QueuePairs::PerFlow => 1,
            QueuePairs::PerPair => Rnic::QUEUE_MAX,
        };
        let caps = QpCaps { max_send_wr, max_recv_wr: 1, ..QpCaps::default() };
        let (pd, cq) = (self.pd, self.cq);
        let config = QpConfig {
            service: Service::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            caps,
            signal_all: false,
        };
        self.rnic.create_qp_numbered(qpn, config).expect("each connection has a number of its own");
    }

    fn modify(&mut self, now: Instant, qpn: Qpn, attr: &QpAttr) {
        self.rnic.modify_qp(now, qpn, attr).expect("attributes are complete and in order");
    }

    fn to_rtr(world: &World, peer: u32, remote: Qpn, psn: Psn) -> QpAttr {
        QpAttr {
            address: Some(Address::new(gid(peer))),
            remote_qpn: Some(remote),
            path_mtu: Some(world.mtu),
            rq_psn: Some(psn),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(1),
            ..QpAttr::to_state(QpState::Rtr)
        }
    }

    fn open_requester(&mut self, world: &World, now: Instant, at: u32) {
        let Requester { peer, remote, .. } = self.requesters[at as usize];
        let (qpn, psn) = (sending(at), self.requesters[at as usize].watch.first());
        self.create(world, qpn);
        self.modify(now, qpn, &QpAttr { access: Some(Access::NONE), ..QpAttr::to_state(QpState::Init) });
        self.modify(now, qpn, &Rdma::to_rtr(world, peer, receiving(remote), psn));
        let attr = QpAttr {
            sq_psn: Some(psn),
            timeout: Some(0),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            recovery: Some(world.recovery),
            ..QpAttr::to_state(QpState::Rts)
        };
        self.modify(now, qpn, &attr);
    }

    fn open_responder(&mut self, world: &World, now: Instant, at: u32) {
        let Responder { peer, remote, .. } = self.responders[at as usize];
        self.responders[at as usize].is_open = true;
        let (qpn, psn) = (receiving(at), first_psn(world, peer, remote));
        self.create(world, qpn);
        self.modify(now, qpn, &QpAttr { access: Some(Access::ALL), ..QpAttr::to_state(QpState::Init) });
        self.modify(now, qpn, &Rdma::to_rtr(world, peer, sending(remote), psn));
        self.rnic.set_irn_accepted(qpn, world.recovery == Recovery::Irn);
    }

    pub(crate) fn handle_packet(
        &mut self,
        ledger: &mut Ledger,
        now: Time,
        headers: &[u8; Parcel::HEADERS_LEN],
        parcel: &Parcel,
        trail: Option<&Trail>,
    ) {
        let instant = now.instant();
        let (headers, _) = Headers::parse(headers).expect("a host sent it");
        let (is_sender, at) = place_of(headers.bth.dest_qpn);
        let arrival = Arrival {
            source: gid(parcel.source),
            destination: gid(parcel.destination),
            traffic_class: if parcel.is_marked { Arrival::CONGESTION_EXPERIENCED } else { 0 },
        };
        let payload = Length(u32::from(parcel.payload));
        let mut placed = Placed { flow: 0, bytes: 0 };
        if is_sender {
            let world = &ledger.world;
            self.requesters[at].watch.on_answer(instant, &headers, world.recovery, world.rto_min);
            if let Some(trail) = trail {
                trail.hops(&mut self.hops);
            }
            if trail.is_some() && !self.hops.is_empty() {
                self.rnic.note_telemetry(instant, headers.bth.dest_qpn, &self.hops);
            }
            self.rnic.handle_packet(instant, &arrival, &headers, payload, &mut placed);
            return self.complete(ledger, now);
        }
        if !self.responders[at].is_open {
            self.open_responder(&ledger.world, instant, at as u32);
        }
        if let Some(trail) = trail {
            self.trails.insert(at as u32, *trail);
        }
        if parcel.is_trimmed {
            return self.rnic.handle_trimmed(instant, &arrival, &headers);
        }
        self.rnic.handle_packet(instant, &arrival, &headers, payload, &mut placed);
        if placed.bytes > 0 && ledger.on_placed(now, placed.flow, placed.bytes) {
            self.retire(ledger, now, at as u32);
        }
    }

    /// A flow has been received. Its queue pair stays for a while, to acknowledge repetitions; queue pairs
    /// that have stayed long enough are destroyed.
    fn retire(&mut self, ledger: &Ledger, now: Time, at: u32) {
        while self.rnic.poll_event().is_some() {}
        if ledger.world.scheme.queue_pairs == QueuePairs::PerPair {
            return;
        }
        self.over.push_back((now + ledger.world.linger, at));
        while let Some(&(until, at)) = self.over.front()
            && until <= now
        {
            self.over.pop_front();
            let _ = self.rnic.destroy_qp(receiving(at));
        }
    }

    fn complete(&mut self, ledger: &mut Ledger, now: Time) {
        while let Some((_, completion)) = self.rnic.poll_completion() {
            let flow = completion.wr_id as u32;
            if completion.status != CompletionStatus::Success {
                ledger.fail(now, format!("flow {flow} failed: {:?}", completion.status));
                continue;
            }
            ledger.on_acknowledged(now, flow);
            let requester = ledger.world.flows[flow as usize].requester;
            if let Some(next) = self.held.get_mut(&requester).and_then(VecDeque::pop_front) {
                self.start(ledger, now, next);
            }
            if ledger.world.scheme.queue_pairs == QueuePairs::PerFlow {
                let _ = self.rnic.destroy_qp(sending(requester));
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, ledger: &mut Ledger, now: Time) {
        self.rnic.handle_timeout(now.instant());
        self.complete(ledger, now);
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Time {
        self.rnic.poll_timeout().map_or(Time::NEVER, Time::from_instant)
    }

    /// Prefetches the memory of the RNIC, then of the queue pair that sends next.
    #[inline]
    pub(crate) fn look_ahead(&self, nearness: Nearness<'_, Parcel>) {
        let qp = match nearness {
            Nearness::Near => return prefetch(self),
            Nearness::Next(None) => self.rnic.next_to_send(),
            Nearness::Next(Some(parcel)) => match &parcel.body {
                Body::Roce(headers) => {
                    self.rnic.qp(Qpn::new(u32::from_be_bytes([0, headers[5], headers[6], headers[7]])))
                }
                _ => None,
            },
        };
        if let Some(qp) = qp {
            prefetch(qp);
        }
    }

    #[inline]
    pub(crate) fn poll_transmit(
        &mut self,
        ledger: &mut Ledger,
        now: Time,
        open: Priorities,
    ) -> Option<Parcel> {
        let world = &ledger.world;
        let ack_priority = match world.scheme.ack_priority {
            AckPriority::AsData => 0,
            AckPriority::Above => 1,
        };
        if !open.contains(0) {
            return None;
        }
        let out = self.rnic.poll_transmit(now.instant())?;
        let (is_data, at) = place_of(out.qpn);
        let (headers, payload, path) = (out.headers, out.payload.len(), out.path);
        let psn = headers.bth.psn;
        let mut encoded = [0; Parcel::HEADERS_LEN];
        headers.emit(&mut encoded);
        let spreads = is_data && world.scheme.entropy == Entropy::PerPacket;
        let destination = if is_data { self.requesters[at].peer } else { self.responders[at].peer };
        let parcel = Parcel {
            source: ledger.host,
            destination,
            bytes: world.scheme.headers.wire_bytes(headers, payload),
            payload: payload as u16,
            priority: if is_data { 0 } else { ack_priority },
            is_ecn_capable: is_data && world.uses_ecn,
            is_marked: false,
            is_trimmed: false,
            entropy: if spreads { self.entropy() } else { path },
            body: Body::Roce(encoded),
        };
        if is_data {
            self.data_packets += 1;
            self.note_sent(ledger, now, at, psn);
        } else {
            self.control_packets += 1;
            self.answered = at as u32;
        }
        Some(parcel)
    }

    /// What a packet that is about to leave carries of the switches on the way of another one.
    pub(crate) fn trail_of(&mut self, parcel: &Parcel) -> Trail {
        let trail = if parcel.is_data() { None } else { self.trails.remove(&self.answered) };
        trail.unwrap_or(Trail::EMPTY)
    }

    /// A source port for the next packet: each of them comes as often as any other.
    fn entropy(&mut self) -> u16 {
        self.ports = self.ports.wrapping_add(0x9E37);
        self.ports
    }

    #[inline]
    fn note_sent(&mut self, ledger: &mut Ledger, now: Time, at: usize, psn: Psn) {
        let (cap, rto_min) = (ledger.world.cap, ledger.world.rto_min);
        if let Err(problem) = self.requesters[at].watch.on_sent(now.instant(), psn, cap, rto_min) {
            ledger.fail(now, format!("connection {at}: {problem}"));
        }
        if ledger.world.scheme.queue_pairs == QueuePairs::PerFlow {
            ledger.sends[at].sent += 1;
        }
    }

    /// Data packets that were repetitions, by this side's own count.
    pub(crate) fn retransmitted(&self) -> u64 {
        self.requesters.iter().map(|r| u64::from(r.watch.repeated())).sum()
    }

    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.rnic.counters().value(counter)
    }
}
