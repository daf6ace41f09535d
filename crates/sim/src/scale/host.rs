//! A node: an RNIC behind a card's pipeline, and threads that do one thing again and again.

use super::nic::Contexts;
use super::{Nic, Operation, Setting};
use crate::fabric::{Host, HostId, Priorities, Time};
use highwire_rnic::{Arrival, Rnic, RnicConfig};
use highwire_stdx::Rng;
use highwire_verbs::{
    Access, Address, Completion, CompletionOp, CompletionStatus, CqId, Datagram, Gid, Length, LocalKey,
    Memory, MemoryLost, Mtu, Operation as Verb, Pd, QpAttr, QpCaps, QpConfig, QpState, RecvWr, RegionAttr,
    Remote, RemoteKey, SendFlags, SendWr, Service, Sge,
};
use highwire_wire::{Headers, Psn, Qpn};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

const KEY: u32 = 0x0001_0000;
const QKEY: u32 = 7;
/// Numbers below are not for queue pairs.
const QPN_BASE: u32 = 16;
/// Ethernet with FCS, IPv4, UDP, ICRC.
const FRAME_BYTES: u32 = 18 + 20 + 8 + 4;
const HEADERS_LEN: usize = 40;
/// Bytes of the GRH in front of a received datagram.
const GRH_BYTES: u32 = 40;
const REQUEST: u32 = 0;
const RESPONSE: u32 = 1;
/// READs that a queue pair may have under way: as many as cards have.
const READS_MAX: u8 = 16;

/// A packet on the fabric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    source: u32,
    destination: u32,
    headers: [u8; HEADERS_LEN],
    headers_len: u8,
    payload: u16,
}

impl crate::fabric::Packet for Packet {
    fn wire_bytes(&self) -> u32 {
        FRAME_BYTES + u32::from(self.headers_len) + u32::from(self.payload.next_multiple_of(4))
    }

    fn destination(&self) -> HostId {
        HostId(self.destination)
    }

    fn flow_hash(&self) -> u64 {
        u64::from(self.source) << 32 | u64::from(self.destination)
    }
}

/// Memory without contents: bytes do not matter here.
struct Nothing;

impl Memory<Length> for Nothing {
    fn place(&mut self, _addr: u64, _payload: Length) -> Result<(), MemoryLost> {
        Ok(())
    }

    fn write(&mut self, _addr: u64, _bytes: &[u8]) -> Result<(), MemoryLost> {
        Ok(())
    }

    fn compare_swap(&mut self, _addr: u64, _compare: u64, _swap: u64) -> Result<u64, MemoryLost> {
        Err(MemoryLost)
    }

    fn fetch_add(&mut self, _addr: u64, _add: u64) -> Result<u64, MemoryLost> {
        Err(MemoryLost)
    }
}

/// The pipeline's work.
#[derive(Clone, Copy, Debug)]
enum Work {
    In(Packet),
    Out(Packet),
}

pub(super) struct ScaleHost {
    node: u32,
    nodes: u32,
    threads: u32,
    window: u32,
    bytes: u32,
    operation: Operation,
    nic: Nic,
    rng: Rng,
    rnic: Rnic,
    pd: Pd,
    cq: CqId,
    contexts: Contexts,
    /// Until when it is busy, and with what.
    current: Option<(Time, Work)>,
    received: VecDeque<Packet>,
    ready: VecDeque<Packet>,
    was_in: bool,
    ended: u64,
}

/// Of each node.
pub(super) fn queue_pairs(setting: &Setting, operation: Operation) -> u32 {
    match operation {
        Operation::Read | Operation::RcRpc => setting.threads * (setting.nodes - 1),
        Operation::UdRpc => setting.threads,
    }
}

fn gid(node: u32) -> Gid {
    Gid::from_ip(IpAddr::V4(Ipv4Addr::from(0x0A00_0000 | (node + 1))))
}

impl ScaleHost {
    pub(super) fn new(node: u32, setting: &Setting, operation: Operation, mut rng: Rng) -> ScaleHost {
        let mut rnic = Rnic::new(RnicConfig::new(gid(node)), rng.fork(1));
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq());
        let region = RegionAttr { addr: 0, length: 1 << 40, iova: 0, access: Access::ALL };
        rnic.regions_mut().register_as(KEY, pd, region).expect("the table is empty");
        ScaleHost {
            node,
            nodes: setting.nodes,
            threads: setting.threads,
            window: setting.window,
            bytes: setting.bytes,
            operation,
            nic: setting.nic,
            rng,
            rnic,
            pd,
            cq,
            contexts: Contexts::default(),
            current: None,
            received: VecDeque::new(),
            ready: VecDeque::new(),
            was_in: false,
            ended: 0,
        }
    }

    /// Operations that have ended, packets that found their context, and those that did not.
    pub(super) fn counted(&self) -> (u64, u64, u64) {
        (self.ended, self.contexts.hits, self.contexts.misses)
    }

    /// The queue pair of a thread for a peer; both ends compute each other's.
    fn qpn(&self, thread: u32, peer: u32) -> Qpn {
        match self.operation {
            Operation::UdRpc => Qpn::new(QPN_BASE + thread),
            _ => Qpn::new(QPN_BASE + thread * self.nodes + peer),
        }
    }

    fn thread_of(&self, qpn: Qpn) -> u32 {
        let place = qpn.value() - QPN_BASE;
        if self.operation == Operation::UdRpc { place } else { place / self.nodes }
    }

    /// Opens its queue pairs, and begins.
    pub(super) fn begin(&mut self, now: Time) {
        for thread in 0..self.threads {
            match self.operation {
                Operation::UdRpc => self.open(now, thread, self.node),
                _ => self.open_all(now, thread),
            }
        }
        for thread in 0..self.threads {
            (0..self.window).for_each(|_| self.next(now, thread));
        }
        self.turn(now);
    }

    fn open_all(&mut self, now: Time, thread: u32) {
        for peer in (0..self.nodes).filter(|&peer| peer != self.node).collect::<Vec<_>>() {
            self.open(now, thread, peer);
        }
    }

    fn open(&mut self, now: Time, thread: u32, peer: u32) {
        let is_ud = self.operation == Operation::UdRpc;
        let qpn = self.qpn(thread, peer);
        // Over datagrams all peers may ask this thread at once; over a connection, one peer.
        let askers = if is_ud { self.nodes } else { 2 };
        let caps = QpCaps {
            // A response may overtake the acknowledgement of its request.
            max_send_wr: 2 * self.window * askers,
            max_recv_wr: self.window * askers,
            max_send_sge: 1,
            max_recv_sge: 1,
            ..QpCaps::default()
        };
        let service = if is_ud { Service::Ud } else { Service::Rc };
        let (pd, cq) = (self.pd, self.cq);
        let config = QpConfig { service, pd, send_cq: cq, recv_cq: cq, srq: None, caps, signal_all: false };
        self.rnic.create_qp_numbered(qpn, config).expect("each has a number of its own");
        let steps = match is_ud {
            true => [
                QpAttr { qkey: Some(QKEY), ..QpAttr::to_state(QpState::Init) },
                QpAttr::to_state(QpState::Rtr),
                QpAttr { sq_psn: Some(Psn::new(0)), ..QpAttr::to_state(QpState::Rts) },
            ],
            false => [
                QpAttr { access: Some(Access::ALL), ..QpAttr::to_state(QpState::Init) },
                QpAttr {
                    address: Some(Address::new(gid(peer))),
                    remote_qpn: Some(self.qpn(thread, self.node)),
                    path_mtu: Some(Mtu::B1024),
                    rq_psn: Some(Psn::new(0)),
                    max_dest_rd_atomic: Some(READS_MAX),
                    min_rnr_timer: Some(1),
                    ..QpAttr::to_state(QpState::Rtr)
                },
                QpAttr {
                    sq_psn: Some(Psn::new(0)),
                    timeout: Some(0),
                    retry_count: Some(7),
                    rnr_retry: Some(7),
                    max_rd_atomic: Some(READS_MAX),
                    ..QpAttr::to_state(QpState::Rts)
                },
            ],
        };
        for attr in &steps {
            self.rnic.modify_qp(now.instant(), qpn, attr).expect("the attributes are complete");
        }
        // Connecting the queue pair has brought its context into the card, if there is room.
        let _ = self.contexts.cost(&self.nic, qpn);
        if self.operation != Operation::Read {
            (0..caps.max_recv_wr).for_each(|_| self.receive(now, qpn));
        }
    }

    fn receive(&mut self, now: Time, qpn: Qpn) {
        let sges = [Sge { addr: 0, length: self.bytes + GRH_BYTES, lkey: LocalKey(KEY) }];
        let posted = self.rnic.post_recv(now.instant(), qpn, &RecvWr { wr_id: 0, sges: &sges });
        debug_assert_eq!(posted, Ok(()), "as many as were taken");
    }

    /// A thread's next operation, with a node drawn at random.
    fn next(&mut self, now: Time, thread: u32) {
        let draw = self.rng.below(u64::from(self.nodes) - 1) as u32;
        let peer = if draw >= self.node { draw + 1 } else { draw };
        match self.operation {
            Operation::Read => {
                let remote = Remote { va: 0, rkey: RemoteKey(KEY) };
                self.post(now, self.qpn(thread, peer), Verb::Read(remote), None);
            }
            _ => self.send(now, thread, peer, REQUEST),
        }
    }

    fn send(&mut self, now: Time, thread: u32, peer: u32, what: u32) {
        // A thread talks to the threads of its own number.
        let to = Datagram { address: Address::new(gid(peer)), qpn: self.qpn(thread, peer), qkey: QKEY };
        let datagram = (self.operation == Operation::UdRpc).then_some(&to);
        self.post(now, self.qpn(thread, peer), Verb::SendImm(what), datagram);
    }

    fn post(&mut self, now: Time, qpn: Qpn, operation: Verb, datagram: Option<&Datagram>) {
        let sges = [Sge { addr: 0, length: self.bytes, lkey: LocalKey(KEY) }];
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        let wr = SendWr { wr_id: 0, operation, flags, sges: &sges, datagram: datagram.copied() };
        let posted = self.rnic.post_send(now.instant(), qpn, &wr);
        assert_eq!(posted, Ok(()), "queues hold what may be under way");
    }

    fn complete(&mut self, now: Time) {
        while let Some((_, completion)) = self.rnic.poll_completion() {
            self.on_completion(now, &completion);
        }
        while self.rnic.poll_event().is_some() {}
    }

    fn on_completion(&mut self, now: Time, completion: &Completion) {
        assert_eq!(completion.status, CompletionStatus::Success, "nothing is lost on this network");
        let (qpn, thread) = (completion.qpn, self.thread_of(completion.qpn));
        match completion.operation {
            CompletionOp::Read => {
                self.ended += 1;
                self.next(now, thread);
            }
            CompletionOp::Receive => {
                self.receive(now, qpn);
                if completion.immediate == RESPONSE {
                    self.ended += 1;
                    self.next(now, thread);
                } else {
                    let peer = self.peer_of(completion);
                    self.send(now, thread, peer, RESPONSE);
                }
            }
            _ => {}
        }
    }

    /// The source of the packet that was just received, or the connection's other end.
    fn peer_of(&self, completion: &Completion) -> u32 {
        match (self.operation, &self.current) {
            (Operation::UdRpc, Some((_, Work::In(packet)))) => packet.source,
            _ => (completion.qpn.value() - QPN_BASE) % self.nodes,
        }
    }

    /// Ends the pipeline's finished work and begins the next: received packets and packets to send take
    /// turns.
    fn turn(&mut self, now: Time) {
        loop {
            if let Some((done, work)) = self.current {
                if done > now {
                    return;
                }
                match work {
                    Work::In(packet) => self.deliver(now, &packet),
                    Work::Out(packet) => self.ready.push_back(packet),
                }
                self.current = None;
            }
            let work = match self.was_in {
                true => self.outgoing(now).or_else(|| self.incoming()),
                false => self.incoming().or_else(|| self.outgoing(now)),
            };
            let Some((work, qpn)) = work else { return };
            self.was_in = matches!(work, Work::In(_));
            let cost = self.contexts.cost(&self.nic, qpn);
            self.current = Some((now + cost, work));
        }
    }

    fn incoming(&mut self) -> Option<(Work, Qpn)> {
        let packet = self.received.pop_front()?;
        let (headers, _) = Headers::parse(&packet.headers[..usize::from(packet.headers_len)]).ok()?;
        Some((Work::In(packet), headers.bth.dest_qpn))
    }

    fn outgoing(&mut self, now: Time) -> Option<(Work, Qpn)> {
        let out = self.rnic.poll_transmit(now.instant())?;
        let mut bytes = [0; highwire_wire::MAX_HEADERS_LEN];
        let length = out.headers.emit(&mut bytes);
        let mut headers = [0; HEADERS_LEN];
        headers[..length].copy_from_slice(&bytes[..length]);
        let peer = u32::from(out.address.gid.to_ipv4()?) & 0x00FF_FFFF;
        let packet = Packet {
            source: self.node,
            destination: peer - 1,
            headers,
            headers_len: length as u8,
            payload: out.payload.len() as u16,
        };
        Some((Work::Out(packet), out.qpn))
    }

    fn deliver(&mut self, now: Time, packet: &Packet) {
        let Ok((headers, _)) = Headers::parse(&packet.headers[..usize::from(packet.headers_len)]) else {
            return;
        };
        let arrival =
            Arrival { source: gid(packet.source), destination: gid(packet.destination), traffic_class: 0 };
        let payload = Length(u32::from(packet.payload));
        self.rnic.handle_packet(now.instant(), &arrival, &headers, payload, &mut Nothing);
        self.complete(now);
    }
}

impl Host<Packet> for ScaleHost {
    fn handle_packet(&mut self, now: Time, packet: Packet) {
        self.received.push_back(packet);
        self.turn(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.rnic.handle_timeout(now.instant());
        self.complete(now);
        self.turn(now);
    }

    fn poll_transmit(&mut self, now: Time, _open: Priorities) -> Option<Packet> {
        self.turn(now);
        self.ready.pop_front()
    }

    fn poll_timeout(&self) -> Time {
        let busy = self.current.map_or(Time::NEVER, |(done, _)| done);
        self.rnic.poll_timeout().map_or(Time::NEVER, Time::from_instant).min(busy)
    }
}
