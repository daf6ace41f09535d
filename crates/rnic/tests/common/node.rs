//! One RNIC with its memory and its completions and events.

use super::memory::{BASE, Bytes};
use highwire_rnic::{Rnic, RnicConfig, TransportConfig};
use highwire_stdx::{Instant, Rng};
use highwire_verbs::{
    Access, Address, AsyncEvent, Completion, CqId, Gid, LocalKey, Pd, QpAttr, QpState, RegionAttr, Sge,
};
use highwire_wire::Qpn;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// An RNIC and its surroundings.
pub struct Node<S> {
    pub rnic: Rnic,
    pub memory: S,
    pub pd: Pd,
    pub cq: CqId,
    pub completions: VecDeque<Completion>,
    pub events: VecDeque<AsyncEvent>,
    /// Packets that its link rejected.
    pub rejected: u64,
    /// When its link can take the next packet.
    pub(super) egress_free: Instant,
    pub(super) is_wake_set: bool,
    /// Every registered buffer.
    pub buffers: Vec<Buffer>,
    /// The first free byte of the arena.
    next_addr: u64,
}

/// One queue pair of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub node: usize,
    pub qpn: Qpn,
}

/// The GID of node number `index`.
pub fn gid(index: usize) -> Gid {
    Gid::from_ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)))
}

/// Bytes between two registered ranges that must stay untouched.
const GUARD: u64 = 64;

impl<S> Node<S> {
    pub fn new(index: usize, memory: S, transport: TransportConfig, seed: u64) -> Node<S> {
        let config = RnicConfig { transport, ..RnicConfig::new(gid(index)) };
        let mut rnic = Rnic::new(config, Rng::new(seed ^ (index as u64) << 32));
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq());
        Node {
            rnic,
            memory,
            pd,
            cq,
            completions: VecDeque::new(),
            events: VecDeque::new(),
            rejected: 0,
            egress_free: Instant::ZERO,
            is_wake_set: false,
            buffers: Vec::new(),
            next_addr: BASE + GUARD,
        }
    }

    /// A range of the arena, with a guard behind it.
    pub fn allocate(&mut self, length: u64) -> u64 {
        let addr = self.next_addr.next_multiple_of(8);
        self.next_addr = addr + length + GUARD;
        addr
    }

    /// Every completion so far.
    pub fn take_completions(&mut self) -> Vec<Completion> {
        self.completions.drain(..).collect()
    }
}

/// A registered range: `addr` is its place, `iova` its address for keys.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub addr: u64,
    pub iova: u64,
    pub length: u64,
    pub key: LocalKey,
}

impl Buffer {
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.iova + offset, length, lkey: self.key }
    }

    pub fn remote(&self, offset: u64) -> highwire_verbs::Remote {
        highwire_verbs::Remote { va: self.iova + offset, rkey: highwire_verbs::RemoteKey(self.key.0) }
    }
}

impl Node<Bytes> {
    /// Registers a new range under an address of its own.
    pub fn register(&mut self, length: u64, access: Access) -> Buffer {
        let addr = self.allocate(length);
        let end = (addr + length - BASE + GUARD) as usize;
        if self.memory.bytes.len() < end {
            self.memory.bytes.resize(end.next_power_of_two(), 0xEE);
        }
        let iova = addr + 0x5_0000_0000;
        let attr = RegionAttr { addr, length, iova, access };
        let key = self.rnic.regions_mut().register(self.pd, attr).expect("a sound region");
        let range = addr..addr + length;
        if access.contains(Access::LOCAL_WRITE) {
            self.memory.writable.push(range);
        } else {
            self.memory.readable.push(range);
        }
        let buffer = Buffer { addr, iova, length, key };
        self.buffers.push(buffer);
        buffer
    }

    /// Takes a range back; from now on no packet may change it.
    pub fn deregister(&mut self, buffer: &Buffer) {
        assert!(self.try_deregister(buffer), "a window is bound to it");
    }

    /// Deregisters a range, unless a window is bound to it.
    pub fn try_deregister(&mut self, buffer: &Buffer) -> bool {
        if self.rnic.regions_mut().deregister(buffer.key).is_err() {
            return false;
        }
        self.memory.writable.retain(|r| r.start != buffer.addr);
        self.memory.readable.retain(|r| r.start != buffer.addr);
        true
    }

    /// Copies inline data to a place that only the driver knows.
    pub fn copy_inline(&mut self, data: &[u8]) -> Sge {
        let addr = self.allocate(data.len() as u64);
        let end = (addr - BASE) as usize + data.len() + GUARD as usize;
        if self.memory.bytes.len() < end {
            self.memory.bytes.resize(end.next_power_of_two(), 0xEE);
        }
        self.memory.readable.push(addr..addr + data.len() as u64);
        self.memory.slice_mut(addr..addr + data.len() as u64).copy_from_slice(data);
        Sge { addr, length: data.len() as u32, lkey: LocalKey(0) }
    }
}

/// Brings a queue pair from RESET to RTS, or no further than RTR if no PSN is given to send from.
pub fn connect<S>(node: &mut Node<S>, qpn: Qpn, peer: End, now: Instant, attr: &QpAttr, service_is_ud: bool) {
    let state = |state| QpAttr { state: Some(state), ..QpAttr::default() };
    let init = if service_is_ud {
        QpAttr { qkey: attr.qkey, ..state(QpState::Init) }
    } else {
        QpAttr { access: attr.access, ..state(QpState::Init) }
    };
    let rtr = QpAttr {
        address: Some(Address::new(gid(peer.node))),
        remote_qpn: Some(peer.qpn),
        path_mtu: attr.path_mtu,
        rq_psn: attr.rq_psn,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        ..state(QpState::Rtr)
    };
    let rts = QpAttr {
        sq_psn: attr.sq_psn,
        timeout: attr.timeout,
        retry_count: attr.retry_count,
        rnr_retry: attr.rnr_retry,
        max_rd_atomic: attr.max_rd_atomic,
        recovery: attr.recovery,
        ..state(QpState::Rts)
    };
    for step in [Some(init), Some(rtr), attr.sq_psn.map(|_| rts)].into_iter().flatten() {
        node.rnic.modify_qp(now, qpn, &step).expect("the attributes are complete");
    }
}
