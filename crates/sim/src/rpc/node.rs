//! A node: an endpoint on a UD queue pair of an RNIC, and a driver between them, which does the same as the
//! real one.

use super::packet::{Network, Packet, emit, gid, node_of};
use crate::fabric::{Host, Priorities, Time};
use highwire_rnic::{Arrival, Rnic, RnicConfig};
use highwire_rpc::{Config, Endpoint, GRH_BYTES, Node, Received};
use highwire_stdx::{Instant, Rng};
use highwire_verbs::{
    Access, CompletionOp, CompletionStatus, LocalKey, Memory, MemoryLost, Operation, Pd, PostError, QpAttr,
    QpCaps, QpConfig, QpState, RecvWr, RegionAttr, SendFlags, SendWr, Service, Sge,
};
use highwire_wire::{Headers, Psn, Qpn};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The key of every node's memory.
const KEY: LocalKey = LocalKey(0x0001_0000);
/// A place for a datagram and its GRH.
const PLACE_BYTES: usize = 4096 + 64;
/// Sends that may wait.
const SENDS: u32 = 256;

/// A node that may not run.
pub(super) struct RpcHost {
    node: u16,
    receives: u32,
    lives: u32,
    rng: Rng,
    network: Rc<RefCell<Network>>,
    life: Option<Life>,
    /// Datagrams that leave late, by when.
    late: BTreeMap<(Time, u64), Packet>,
    /// Late datagrams that are due while the port is busy.
    due: VecDeque<Packet>,
    held: u64,
    clock: Clock,
}

/// The state of a running node.
struct Life {
    endpoint: Endpoint,
    rnic: Rnic,
    qpn: Qpn,
    memory: Bytes,
    next_send: usize,
    last: Instant,
}

/// A clock that drifts.
#[derive(Clone, Copy, Debug)]
struct Clock {
    parts_per_million: i64,
    since: Time,
    showed_ns: u64,
}

impl Clock {
    fn at(&self, now: Time) -> Instant {
        let passed = now.since(self.since).as_ps() / 1000;
        let skew = i128::from(passed) * i128::from(self.parts_per_million) / 1_000_000;
        Instant::from_nanos(self.showed_ns + (i128::from(passed) + skew).max(0) as u64)
    }

    /// When it will show `instant`, rounded up.
    fn until(&self, instant: Instant) -> Time {
        let left = i128::from(instant.as_nanos().saturating_sub(self.showed_ns));
        let passed = left * 1_000_000 / i128::from(1_000_000 + self.parts_per_million).max(1) + 1;
        Time::from_ps(self.since.as_ps().saturating_add((passed as u64).saturating_mul(1000)))
    }
}

/// A node's memory: receives, then sends.
struct Bytes(Vec<u8>);

impl<'a> Memory<&'a [u8]> for Bytes {
    fn place(&mut self, addr: u64, payload: &'a [u8]) -> Result<(), MemoryLost> {
        self.write(addr, payload)
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), MemoryLost> {
        let start = addr as usize;
        self.0.get_mut(start..start + bytes.len()).ok_or(MemoryLost)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Datagrams carry no atomics.
    fn compare_swap(&mut self, _addr: u64, _compare: u64, _swap: u64) -> Result<u64, MemoryLost> {
        Err(MemoryLost)
    }

    fn fetch_add(&mut self, _addr: u64, _add: u64) -> Result<u64, MemoryLost> {
        Err(MemoryLost)
    }
}

impl RpcHost {
    pub(super) fn new(node: u16, receives: u32, rng: Rng, network: Rc<RefCell<Network>>) -> RpcHost {
        RpcHost {
            node,
            receives,
            lives: 0,
            rng,
            network,
            life: None,
            late: BTreeMap::new(),
            due: VecDeque::new(),
            held: 0,
            clock: Clock { parts_per_million: 0, since: Time::ZERO, showed_ns: 0 },
        }
    }

    pub(super) fn start(&mut self, now: Time, change: &dyn Fn(&mut Config)) {
        self.lives += 1;
        let instant = self.clock.at(now);
        let mut config = Config::new(Node(self.node), u64::from(self.lives) << 8 | 1);
        change(&mut config);
        let qkey = config.qkey;
        let mut rnic = Rnic::new(RnicConfig::new(gid(self.node)), self.rng.fork(u64::from(self.lives)));
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq());
        let places = self.receives as usize + 2 * SENDS as usize;
        let memory = Bytes(vec![0; places * PLACE_BYTES]);
        let region =
            RegionAttr { addr: 0, length: memory.0.len() as u64, iova: 0, access: Access::LOCAL_WRITE };
        rnic.regions_mut().register_as(KEY.0, pd, region).expect("the table is empty");
        let qpn = create(&mut rnic, instant, pd, cq, self.receives, qkey);
        let endpoint = Endpoint::new(config);
        let next_send = self.receives as usize;
        let mut life = Life { endpoint, rnic, qpn, memory, next_send, last: instant };
        (0..self.receives).for_each(|index| life.post_receive(index));
        self.network.borrow_mut().set_address(self.node, qpn);
        self.life = Some(life);
    }

    pub(super) fn stop(&mut self) {
        self.life = None;
        self.late.clear();
        self.due.clear();
    }

    pub(super) fn set_drift(&mut self, now: Time, parts_per_million: i64) {
        let showed_ns = self.clock.at(now).as_nanos();
        self.clock = Clock { parts_per_million, since: now, showed_ns };
    }

    pub(super) fn with_endpoint<R>(&mut self, now: Time, act: impl FnOnce(&mut Endpoint) -> R) -> Option<R> {
        let instant = self.clock.at(now);
        let life = self.life.as_mut()?;
        life.endpoint.handle_timeout(instant);
        let result = act(&mut life.endpoint);
        life.turn(instant);
        Some(result)
    }
}

fn create(rnic: &mut Rnic, now: Instant, pd: Pd, cq: highwire_verbs::CqId, receives: u32, qkey: u32) -> Qpn {
    let caps = QpCaps {
        max_send_wr: SENDS,
        max_recv_wr: receives,
        max_send_sge: 1,
        max_recv_sge: 1,
        ..QpCaps::default()
    };
    let config =
        QpConfig { service: Service::Ud, pd, send_cq: cq, recv_cq: cq, srq: None, caps, signal_all: false };
    let qpn = rnic.create_qp(config).expect("the RNIC is empty");
    let steps = [
        QpAttr { qkey: Some(qkey), ..QpAttr::to_state(QpState::Init) },
        QpAttr::to_state(QpState::Rtr),
        QpAttr { sq_psn: Some(Psn::new(0)), ..QpAttr::to_state(QpState::Rts) },
    ];
    for attr in &steps {
        rnic.modify_qp(now, qpn, attr).expect("the attributes are complete");
    }
    qpn
}

impl Life {
    fn post_receive(&mut self, index: u32) {
        let addr = (index as usize * PLACE_BYTES) as u64;
        let sges = [Sge { addr, length: (4096 + GRH_BYTES) as u32, lkey: KEY }];
        let posted =
            self.rnic.post_recv(self.last, self.qpn, &RecvWr { wr_id: u64::from(index), sges: &sges });
        debug_assert_eq!(posted, Ok(()), "a place is posted once");
    }

    /// A turn of the driver, as in the real one: sweep, resume, transmit.
    fn turn(&mut self, now: Instant) {
        self.last = now;
        while let Some((_, completion)) = self.rnic.poll_completion() {
            if completion.operation != CompletionOp::Receive || completion.status != CompletionStatus::Success
            {
                continue;
            }
            let index = completion.wr_id as u32;
            let place = &self.memory.0[index as usize * PLACE_BYTES..][..completion.byte_len as usize];
            let (grh, bytes) = place.split_at(GRH_BYTES);
            let received = Received {
                immediate: completion.immediate,
                source_qpn: completion.source_qpn,
                grh: Some(grh),
                bytes,
            };
            self.endpoint.handle_receive(now, &received);
            self.post_receive(index);
        }
        while self.rnic.poll_event().is_some() {}
        self.endpoint.run(now);
        let first_send = self.memory.0.len() / PLACE_BYTES - 2 * SENDS as usize;
        let (rnic, memory, next, qpn) = (&mut self.rnic, &mut self.memory.0, &mut self.next_send, self.qpn);
        self.endpoint.transmit(|outgoing| {
            let addr = *next * PLACE_BYTES;
            let (head, body, tail) = (outgoing.head, outgoing.body, outgoing.tail);
            memory[addr..][..head.len()].copy_from_slice(head);
            memory[addr + head.len()..][..body.len()].copy_from_slice(body);
            memory[addr + head.len() + body.len()..][..tail.len()].copy_from_slice(tail);
            let sges = [Sge { addr: addr as u64, length: outgoing.len() as u32, lkey: KEY }];
            let wr = SendWr {
                wr_id: 0,
                operation: Operation::SendImm(outgoing.immediate),
                flags: SendFlags::default(),
                sges: &sges,
                datagram: Some(outgoing.to),
            };
            let posted = rnic.post_send(now, qpn, &wr);
            if posted.is_ok() {
                *next += 1;
                if *next * PLACE_BYTES >= memory.len() {
                    *next = first_send;
                }
            }
            posted != Err(PostError::QueueFull)
        });
    }
}

impl Host<Packet> for RpcHost {
    fn handle_packet(&mut self, now: Time, packet: Packet) {
        let instant = self.clock.at(now);
        let Some(life) = &mut self.life else { return };
        let network = Rc::clone(&self.network);
        let network = network.borrow();
        let Some(payload) = network.payload(packet.payload) else { return };
        let Ok((headers, _)) = Headers::parse(&packet.headers) else { return };
        let arrival =
            Arrival { source: gid(packet.source), destination: gid(packet.destination), traffic_class: 0 };
        life.rnic.handle_packet(instant, &arrival, &headers, payload, &mut life.memory);
        drop(network);
        life.turn(instant);
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(entry) = self.late.first_entry()
            && entry.key().0 <= now
        {
            self.due.push_back(entry.remove());
        }
        let instant = self.clock.at(now);
        if let Some(life) = &mut self.life {
            life.rnic.handle_timeout(instant);
            life.endpoint.handle_timeout(instant);
            life.turn(instant);
        }
    }

    fn poll_transmit(&mut self, now: Time, _open: Priorities) -> Option<Packet> {
        if let Some(packet) = self.due.pop_front() {
            return Some(packet);
        }
        let instant = self.clock.at(now);
        loop {
            let life = self.life.as_mut()?;
            let Some(out) = life.rnic.poll_transmit(instant) else {
                // Completed sends make room for waiting ones.
                if !life.endpoint.has_output() {
                    return None;
                }
                life.turn(instant);
                life.rnic.next_to_send()?;
                continue;
            };
            let destination = node_of(out.address.gid)?;
            let mut network = self.network.borrow_mut();
            let spans = out.payload.spans();
            let memory = &life.memory.0;
            let bytes = spans.flat_map(|span| &memory[span.addr as usize..][..span.length as usize]).copied();
            let packet = Packet {
                source: self.node,
                destination,
                headers: emit(out.headers),
                length: out.payload.len() as u16,
                payload: network.store(bytes),
            };
            let fate = network.fate(self.node, destination, &mut self.rng);
            if let Some(later_ns) = fate.later_ns {
                self.held += 1;
                let at = Time::from_ps(now.as_ps() + later_ns * 1000);
                self.late.insert((at, self.held), packet);
            }
            if fate.passes {
                return Some(packet);
            }
        }
    }

    fn poll_timeout(&self) -> Time {
        let late = self.late.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let Some(life) = &self.life else { return late };
        let due = [life.rnic.poll_timeout(), life.endpoint.poll_timeout()].into_iter().flatten().min();
        // A worker that only yields comes back a microsecond later.
        let again = highwire_stdx::Duration::from_micros(1);
        let ready = life.endpoint.has_work().then(|| life.last + again);
        let due = due.into_iter().chain(ready).min();
        due.map_or(Time::NEVER, |at| self.clock.until(at)).min(late)
    }
}
