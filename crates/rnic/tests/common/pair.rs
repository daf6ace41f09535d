//! Two RNICs with one connected queue pair each, for most scenarios.

use super::faults::{Rule, Seen, Verdict};
use super::memory::Bytes;
use super::net::{Link, Net};
use super::node::{Buffer, End, connect, gid};
use highwire_rnic::{Arrival, Counter, TransportConfig};
use highwire_stdx::{Duration, Rng};
use highwire_verbs::{
    Access, Address, AsyncEvent, Completion, Datagram, Gid, Mtu, Operation, PostError, QpAttr, QpCaps,
    QpConfig, QpState, Recovery, RecvWr, SendFlags, SendWr, Service, SrqId,
};
use highwire_wire::{Headers, Psn};
use std::cell::RefCell;
use std::rc::Rc;

/// The first node.
pub const A: usize = 0;
/// The second node.
pub const B: usize = 1;

/// The configuration of a pair.
#[derive(Clone, Copy)]
pub struct Setup {
    pub service: Service,
    /// How A recovers, and B.
    pub recovery: [Recovery; 2],
    pub mtu: Mtu,
    pub transport: TransportConfig,
    pub link: Link,
    pub psn: [u32; 2],
    pub caps: QpCaps,
    pub with_srq: bool,
    pub signal_all: bool,
    pub rd_atomic: u8,
    /// How many READs and atomics each end accepts at once, if not as many as the other may send.
    pub granted_rd_atomic: Option<u8>,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub access: Access,
    /// Whether B stays in RTR, where it answers and sends no requests.
    pub is_passive: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            service: Service::Rc,
            recovery: [Recovery::GoBackN; 2],
            mtu: Mtu::B1024,
            transport: TransportConfig::default(),
            link: Link::default(),
            psn: [0x123, 0xFF_FFF0],
            caps: QpCaps::default(),
            with_srq: false,
            signal_all: false,
            rd_atomic: 4,
            granted_rd_atomic: None,
            timeout: 8,
            retry_count: 7,
            rnr_retry: 7,
            access: Access::ALL,
            is_passive: false,
        }
    }
}

impl Setup {
    pub fn of(service: Service) -> Setup {
        Setup { service, ..Setup::default() }
    }

    pub fn with(recovery: Recovery) -> Setup {
        Setup { recovery: [recovery; 2], ..Setup::default() }
    }
}

/// Two RNICs, a queue pair and a buffer on each.
pub struct Pair {
    pub net: Net<Bytes>,
    pub ends: [End; 2],
    pub buffers: [Buffer; 2],
    pub srqs: [Option<SrqId>; 2],
    pub service: Service,
}

/// Bytes of each side's buffer.
pub const BUFFER: u64 = 1 << 18;
pub const QKEY: u32 = 0x1111_2222;

impl Pair {
    pub fn new(setup: Setup) -> Pair {
        let memories = vec![Bytes::new(1 << 19), Bytes::new(1 << 19)];
        let mut net = Net::new(memories, setup.link, setup.transport, 7);
        let mut srqs = [None; 2];
        let mut ends = [End { node: 0, qpn: highwire_wire::Qpn::default() }; 2];
        let mut buffers = Vec::new();
        for (index, node) in net.nodes.iter_mut().enumerate() {
            if setup.with_srq {
                srqs[index] = Some(node.rnic.create_srq(node.pd, 64, 4).expect("an SRQ"));
            }
            let config = QpConfig {
                service: setup.service,
                pd: node.pd,
                send_cq: node.cq,
                recv_cq: node.cq,
                srq: srqs[index],
                caps: setup.caps,
                signal_all: setup.signal_all,
            };
            ends[index] = End { node: index, qpn: node.rnic.create_qp(config).expect("a queue pair") };
            let buffer = node.register(BUFFER, Access::ALL | Access::WINDOW_BIND);
            let mut rng = Rng::new(index as u64 + 1);
            rng.fill(node.memory.slice_mut(buffer.addr..buffer.addr + BUFFER));
            buffers.push(buffer);
        }
        let mut pair = Pair { net, ends, buffers: [buffers[0], buffers[1]], srqs, service: setup.service };
        for index in [A, B] {
            pair.connect(index, &setup);
        }
        pair
    }

    /// Connects the queue pair of a side with that of the other.
    pub fn connect(&mut self, index: usize, setup: &Setup) {
        let attr = QpAttr {
            access: Some(setup.access),
            qkey: (setup.service == Service::Ud).then_some(QKEY),
            path_mtu: Some(setup.mtu),
            rq_psn: Some(Psn::new(setup.psn[1 - index])),
            sq_psn: (index == A || !setup.is_passive).then_some(Psn::new(setup.psn[index])),
            max_dest_rd_atomic: Some(setup.granted_rd_atomic.unwrap_or(setup.rd_atomic)),
            max_rd_atomic: Some(setup.rd_atomic),
            min_rnr_timer: Some(1),
            timeout: Some(setup.timeout),
            retry_count: Some(setup.retry_count),
            rnr_retry: Some(setup.rnr_retry),
            recovery: Some(setup.recovery[index]),
            ..QpAttr::default()
        };
        let (end, peer) = (self.ends[index], self.ends[1 - index]);
        let node = &mut self.net.nodes[index];
        connect(node, end.qpn, peer, self.net.now, &attr, setup.service == Service::Ud);
        node.rnic.set_irn_accepted(end.qpn, setup.recovery[1 - index] == Recovery::Irn);
    }

    /// A work request of side `side` with `length` bytes from `offset` of its buffer.
    pub fn try_post(
        &mut self,
        side: usize,
        wr_id: u64,
        operation: Operation,
        offset: u64,
        length: u32,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let sges = [self.buffers[side].sge(offset, length)];
        let datagram = (self.service == Service::Ud).then(|| self.datagram_to(1 - side));
        let wr = SendWr { wr_id, operation, flags, sges: &sges, datagram };
        self.post_wr(side, &wr)
    }

    pub fn datagram_to(&self, side: usize) -> Datagram {
        Datagram { address: Address::new(gid(side)), qpn: self.ends[side].qpn, qkey: QKEY }
    }

    pub fn post_wr(&mut self, side: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        let qpn = self.ends[side].qpn;
        let result = self.net.nodes[side].rnic.post_send(self.net.now, qpn, wr);
        self.net.drain();
        result
    }

    /// As `try_post`, signaled, and asserts success.
    pub fn post(&mut self, side: usize, wr_id: u64, operation: Operation, offset: u64, length: u32) {
        self.try_post(side, wr_id, operation, offset, length, SendFlags::SIGNALED).expect("a sound request");
    }

    /// A receive of side `side` into `length` bytes from `offset` of its buffer.
    pub fn receive(&mut self, side: usize, wr_id: u64, offset: u64, length: u32) {
        let sges = [self.buffers[side].sge(offset, length)];
        let wr = RecvWr { wr_id, sges: &sges };
        let rnic = &mut self.net.nodes[side].rnic;
        match self.srqs[side] {
            Some(srq) => rnic.post_srq_recv(srq, &wr),
            None => rnic.post_recv(self.net.now, self.ends[side].qpn, &wr),
        }
        .expect("a sound receive");
        self.net.drain();
    }

    pub fn run(&mut self) {
        self.net.run();
    }

    pub fn run_for_us(&mut self, us: u64) {
        self.net.run_for(Duration::from_micros(us));
    }

    pub fn completions(&mut self, side: usize) -> Vec<Completion> {
        self.net.nodes[side].take_completions()
    }

    /// `wr_id` and status of every completion, as text.
    pub fn outcomes(&mut self, side: usize) -> Vec<String> {
        self.completions(side).iter().map(|c| format!("{} {:?}", c.wr_id, c.status)).collect()
    }

    pub fn count(&self, side: usize, counter: Counter) -> u64 {
        self.net.nodes[side].rnic.counters().value(counter)
    }

    pub fn state(&self, side: usize) -> QpState {
        self.net.nodes[side].rnic.qp(self.ends[side].qpn).expect("the queue pair").state()
    }

    /// `length` bytes from `offset` of a side's buffer.
    pub fn bytes(&self, side: usize, offset: u64, length: u64) -> Vec<u8> {
        let addr = self.buffers[side].addr + offset;
        self.net.nodes[side].memory.slice(addr..addr + length).to_vec()
    }

    pub fn word(&self, side: usize, offset: u64) -> u64 {
        self.net.nodes[side].memory.word(self.buffers[side].addr + offset)
    }

    pub fn set_word(&mut self, side: usize, offset: u64, value: u64) {
        let addr = self.buffers[side].addr + offset;
        self.net.nodes[side].memory.slice_mut(addr..addr + 8).copy_from_slice(&value.to_ne_bytes());
    }

    /// Adds a rule about packets.
    pub fn rule(&mut self, rule: impl FnMut(&Seen<'_>, &mut Rng) -> Verdict + 'static) {
        self.net.rules.push(Box::new(rule) as Rule);
    }

    /// Drops matching packets of side `from`, by their number among those that match, from zero.
    pub fn drop_nth(
        &mut self,
        from: usize,
        numbers: &'static [u32],
        matches: impl Fn(&Seen<'_>) -> bool + 'static,
    ) {
        let mut seen_so_far = 0;
        self.rule(move |seen, _| {
            if seen.from != from || !matches(seen) {
                return Verdict::PASS;
            }
            seen_so_far += 1;
            Verdict::drop_if(numbers.contains(&(seen_so_far - 1)))
        });
    }

    /// Hands a packet to a side as if it had come from `source`.
    pub fn inject(&mut self, side: usize, source: Gid, headers: &Headers, payload: &[u8]) {
        let arrival = Arrival { source, destination: gid(side), traffic_class: 0 };
        let node = &mut self.net.nodes[side];
        node.rnic.handle_packet(self.net.now, &arrival, headers, payload, &mut node.memory);
        self.net.drain();
    }

    /// The log of every packet that passes from now on: its sender, its opcode, and its PSN counted from the
    /// side's first.
    pub fn watch(&mut self) -> Rc<RefCell<Vec<String>>> {
        let log = Rc::new(RefCell::new(Vec::new()));
        let copy = Rc::clone(&log);
        self.rule(move |seen, _| {
            let name = ["A", "B"][seen.from];
            copy.borrow_mut().push(format!(
                "{name} {} {}",
                seen.headers.bth.opcode,
                seen.headers.bth.psn.value()
            ));
            Verdict::PASS
        });
        log
    }

    /// Changes the state of a side's queue pair.
    pub fn modify(&mut self, side: usize, attr: &QpAttr) {
        let qpn = self.ends[side].qpn;
        self.net.nodes[side].rnic.modify_qp(self.net.now, qpn, attr).expect("a change that may be made");
        self.net.drain();
    }

    /// Asynchronous events of a side, as text.
    pub fn events(&mut self, side: usize) -> Vec<AsyncEvent> {
        self.net.nodes[side].events.drain(..).collect()
    }
}
