//! Endpoints, a network between them that misbehaves by seed, and the time: all on one thread.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use highwire_rpc::{Config, Endpoint, GRH_BYTES, Node, Received, RequestType, Running, Worker};
use highwire_stdx::{Duration, Instant, Rng};
use highwire_verbs::{Address, Datagram, Gid};
use highwire_wire::Qpn;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};

/// The faults that the network applies to datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplication: f64,
    pub reordering: f64,
}

impl Faults {
    pub const NONE: Faults = Faults { loss: 0.0, duplication: 0.0, reordering: 0.0 };
    pub const ROUGH: Faults = Faults { loss: 0.1, duplication: 0.1, reordering: 0.2 };
}

#[derive(Clone)]
struct Datagrams {
    to: usize,
    from: usize,
    qpn: Qpn,
    immediate: u32,
    bytes: Vec<u8>,
}

/// Which datagrams are dropped, by sender, receiver, immediate and bytes.
pub type DropRule = Box<dyn FnMut(usize, usize, u32, &[u8]) -> bool>;

pub struct Net {
    pub now: Instant,
    pub endpoints: Vec<Option<Endpoint>>,
    pub faults: Faults,
    pub drop_if: Option<DropRule>,
    /// A hash of everything that was sent.
    pub hash: u64,
    pub sent: u64,
    rng: Rng,
    queue: BTreeMap<(Instant, u64), Datagrams>,
    id: u64,
    lives: Vec<u32>,
}

pub const ECHO: RequestType = RequestType(1);
pub const COUNT: RequestType = RequestType(2);
const LATENCY: Duration = Duration::from_micros(2);

fn gid(index: usize) -> Gid {
    Gid::from_ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)))
}

impl Net {
    /// `count` endpoints that know each other, with an echo each.
    pub fn new(count: usize, seed: u64, change: impl Fn(&mut Config)) -> Net {
        let mut net = Net {
            now: Instant::from_nanos(1),
            endpoints: Vec::new(),
            faults: Faults::NONE,
            drop_if: None,
            hash: 0,
            sent: 0,
            rng: Rng::new(seed),
            queue: BTreeMap::new(),
            id: 0,
            lives: vec![0; count],
        };
        for index in 0..count {
            net.endpoints.push(None);
            net.start(index, &change);
        }
        net
    }

    /// Starts a node, for the first time or again.
    pub fn start(&mut self, index: usize, change: impl Fn(&mut Config)) {
        self.lives[index] += 1;
        let incarnation = u64::from(self.lives[index]) * 1000 + index as u64 + 1;
        let mut config = Config::new(Node(index as u16), incarnation);
        change(&mut config);
        let mut endpoint = Endpoint::new(config);
        for other in (0..self.lives.len()).filter(|&other| other != index) {
            endpoint.add_peer(Node(other as u16), self.address(other)).expect("another node");
        }
        endpoint.register(ECHO, |request, response| response.write(request.bytes));
        self.endpoints[index] = Some(endpoint);
        let to = self.address(index);
        for (other, endpoint) in self.endpoints.iter_mut().enumerate().filter(|(other, _)| *other != index) {
            let _ = other;
            if let Some(endpoint) = endpoint {
                endpoint.add_peer(Node(index as u16), to).expect("another node");
            }
        }
    }

    pub fn stop(&mut self, index: usize) {
        self.endpoints[index] = None;
    }

    fn qpn(&self, index: usize) -> Qpn {
        Qpn::new(100 + index as u32 + 16 * self.lives[index])
    }

    fn address(&self, index: usize) -> Datagram {
        Datagram { address: Address::new(gid(index)), qpn: self.qpn(index), qkey: 0 }
    }

    pub fn endpoint(&mut self, index: usize) -> &mut Endpoint {
        self.endpoints[index].as_mut().expect("it runs")
    }

    pub fn spawn<F>(&mut self, index: usize, work: impl FnOnce(Worker) -> F) -> Running<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.endpoint(index).spawn(work).expect("there is room for a worker")
    }

    fn carry(&mut self, from: usize, to: usize, immediate: u32, bytes: Vec<u8>, qpn: Qpn) {
        self.sent += 1;
        let sum = bytes
            .iter()
            .fold(u64::from(immediate), |sum, &b| sum.wrapping_mul(31).wrapping_add(u64::from(b)));
        self.hash =
            (self.hash ^ sum ^ self.now.as_nanos()).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
        if self.drop_if.as_mut().is_some_and(|rule| rule(from, to, immediate, &bytes)) {
            return;
        }
        let faults = self.faults;
        let copies = 1 + u64::from(self.rng.chance(faults.duplication));
        for _ in 0..copies {
            if self.rng.chance(faults.loss) {
                continue;
            }
            let mut at = self.now + LATENCY;
            if self.rng.chance(faults.reordering) {
                at += Duration::from_nanos(self.rng.below(20_000_000));
            }
            self.id += 1;
            self.queue.insert((at, self.id), Datagrams { to, from, qpn, immediate, bytes: bytes.clone() });
        }
    }

    /// Delivers a datagram of any bytes to an endpoint.
    pub fn inject(&mut self, to: usize, from: usize, immediate: u32, bytes: &[u8]) {
        let (now, qpn) = (self.now, self.qpn(from));
        self.endpoint(to)
            .handle_receive(now, &Received { immediate, source_qpn: qpn, grh: Some(&grh(from)), bytes });
        self.drain();
    }

    pub fn drain(&mut self) {
        for index in 0..self.endpoints.len() {
            let qpn = self.qpn(index);
            let Some(endpoint) = &mut self.endpoints[index] else { continue };
            endpoint.handle_timeout(self.now);
            endpoint.run(self.now);
            let mut out = Vec::new();
            endpoint.transmit(|outgoing| {
                let bytes = [outgoing.head, outgoing.body, outgoing.tail].concat();
                out.push((usize::from(outgoing.node.0), outgoing.immediate, bytes));
                true
            });
            for (to, immediate, bytes) in out {
                self.carry(index, to, immediate, bytes, qpn);
            }
        }
    }

    /// Runs the next events; false if there will never be one.
    pub fn step(&mut self) -> bool {
        self.drain();
        if self.endpoints.iter().flatten().any(Endpoint::has_work) {
            return true;
        }
        let packet = self.queue.first_key_value().map(|((at, _), _)| *at);
        let timers = self.endpoints.iter().flatten().filter_map(Endpoint::poll_timeout);
        let Some(at) = packet.into_iter().chain(timers).min() else { return false };
        self.now = self.now.max(at);
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= self.now
        {
            let datagram = entry.remove();
            // A node that has started again has another queue pair.
            if datagram.qpn != self.qpn(datagram.from) && self.rng.chance(0.5) {
                continue;
            }
            let now = self.now;
            if let Some(endpoint) = &mut self.endpoints[datagram.to] {
                endpoint.handle_receive(
                    now,
                    &Received {
                        immediate: datagram.immediate,
                        source_qpn: datagram.qpn,
                        grh: Some(&grh(datagram.from)),
                        bytes: &datagram.bytes,
                    },
                );
            }
        }
        self.drain();
        true
    }

    /// Runs until a worker has its result.
    #[track_caller]
    pub fn until<T>(&mut self, running: &Running<T>) -> T {
        for _ in 0..5_000_000 {
            if let Some(value) = running.take() {
                return value;
            }
            assert!(self.step() || running.is_done(), "nothing happens any more at {:?}", self.now);
        }
        panic!("it takes for ever");
    }

    /// Runs for a while.
    pub fn run_for(&mut self, length: Duration) {
        let end = self.now + length;
        while self.now < end && self.step() {}
    }
}

/// The 40 bytes in front of a node's datagram.
pub fn grh(from: usize) -> [u8; GRH_BYTES] {
    let mut grh = [0; GRH_BYTES];
    grh[20] = 0x45;
    grh[32..36].copy_from_slice(&[10, 0, 0, from as u8 + 1]);
    let sum: u32 = grh[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    grh[30..32].copy_from_slice(&(!((folded & 0xFFFF) + (folded >> 16)) as u16).to_be_bytes());
    grh
}
