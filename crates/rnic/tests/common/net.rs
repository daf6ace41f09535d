//! The network and the time: a world's work for its RNICs, on one thread and without a clock.

use super::faults::{Rule, Seen, Verdict};
use super::memory::Store;
use super::node::{Node, gid};
use highwire_rnic::{Arrival, TransportConfig};
use highwire_stdx::{Duration, Instant, Rng, Slab};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The properties of every link.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub latency: Duration,
    /// Bits per second; `None`: unlimited.
    pub rate: Option<u64>,
    /// Arrivals come together at multiples of this, as they do to a host that takes them in batches.
    pub quantum: Duration,
}

impl Default for Link {
    fn default() -> Link {
        Link { latency: Duration::from_micros(5), rate: None, quantum: Duration::from_nanos(1) }
    }
}

/// Bytes of a packet on the wire besides headers and payload.
const FRAME_BYTES: u32 = 14 + 20 + 8 + 4 + 4;

enum Event<P> {
    Arrive { from: usize, to: usize, marked: bool, packet: P },
    Wake { node: usize },
}

/// RNICs, links between all of them, and the time.
pub struct Net<S: Store> {
    pub now: Instant,
    pub nodes: Vec<Node<S>>,
    pub link: Link,
    pub rules: Vec<Rule>,
    /// A hash of everything observable.
    pub hash: u64,
    /// Everything observable as text, if the test wants it.
    pub trace: Option<Vec<String>>,
    pub packets: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    rng: Rng,
    /// Each event's time, order, and place in `events`.
    queue: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    events: Slab<Event<S::Packet>>,
    next_id: u64,
}

impl<S: Store> Net<S> {
    pub fn new(memories: Vec<S>, link: Link, transport: TransportConfig, seed: u64) -> Net<S> {
        let nodes = memories.into_iter().enumerate();
        Net {
            now: Instant::ZERO,
            nodes: nodes.map(|(i, memory)| Node::new(i, memory, transport, seed)).collect(),
            link,
            rules: Vec::new(),
            hash: 0xCBF2_9CE4_8422_2325,
            trace: None,
            packets: 0,
            duplicated: 0,
            rng: Rng::new(seed ^ 0x4E45_5457),
            queue: BinaryHeap::new(),
            events: Slab::default(),
            next_id: 0,
        }
    }

    /// Adds a number to the log.
    pub fn note(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
    }

    pub fn tell(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.3} us  {}", self.now.as_nanos() as f64 / 1e3, text()));
        }
    }

    /// The time of the next event.
    pub fn next_time(&self) -> Option<Instant> {
        let packet = self.queue.peek().map(|Reverse((at, ..))| *at);
        let timers = self.nodes.iter().filter_map(|node| node.rnic.poll_timeout());
        packet.into_iter().chain(timers).min().map(|at| at.max(self.now))
    }

    /// Runs the next events; `false` if there will never be one.
    pub fn step(&mut self) -> bool {
        let Some(at) = self.next_time() else { return false };
        self.advance_to(at);
        true
    }

    /// Lets the time pass up to `at`, but not beyond the next event.
    pub fn advance_to(&mut self, at: Instant) {
        self.now = self.now.max(at);
        while let Some(&Reverse((due, _, slot))) = self.queue.peek()
            && due <= self.now
        {
            self.queue.pop();
            match self.events.remove(slot).expect("every entry has its event") {
                Event::Arrive { from, to, marked, packet } => self.arrive(from, to, marked, &packet),
                Event::Wake { node } => self.nodes[node].is_wake_set = false,
            }
        }
        for node in &mut self.nodes {
            if node.rnic.poll_timeout().is_some_and(|due| due <= self.now) {
                node.rnic.handle_timeout(self.now);
            }
        }
        self.drain();
    }

    fn arrive(&mut self, from: usize, to: usize, ecn_marked: bool, packet: &S::Packet) {
        let traffic_class = if ecn_marked { Arrival::CONGESTION_EXPERIENCED } else { 0 };
        let arrival = Arrival { source: gid(from), destination: gid(to), traffic_class };
        let node = &mut self.nodes[to];
        let survived = node.memory.deliver(&mut node.rnic, self.now, &arrival, packet);
        node.rejected += u64::from(!survived);
        self.note(self.now.as_nanos() << 3 | (to as u64) << 1 | u64::from(survived));
    }

    /// Polls every node until it is empty.
    pub fn drain(&mut self) {
        for index in 0..self.nodes.len() {
            self.transmit(index);
            while let Some((_, completion)) = self.nodes[index].rnic.poll_completion() {
                self.tell(|| format!("{index}   {completion:?}"));
                self.note(completion.wr_id << 8 | completion.status as u64);
                self.nodes[index].completions.push_back(completion);
            }
            while let Some(event) = self.nodes[index].rnic.poll_event() {
                self.tell(|| format!("{index}   {event:?}"));
                self.nodes[index].events.push_back(event);
            }
        }
    }

    fn transmit(&mut self, index: usize) {
        let mut burst = 0;
        loop {
            let node = &mut self.nodes[index];
            if self.link.rate.is_some() && node.egress_free > self.now {
                if !node.is_wake_set {
                    node.is_wake_set = true;
                    let at = node.egress_free;
                    self.push(at, Event::Wake { node: index });
                }
                return;
            }
            let Some(out) = node.rnic.poll_transmit(self.now) else { return };
            let to = (0..16).find(|i| gid(*i) == out.address.gid).expect("a node's address");
            let (headers, length) = (*out.headers, out.headers.encoded_len() as u32 + out.payload.len());
            let packet = node.memory.emit(&out, gid(index));
            let wire_bytes = u64::from(length + u32::from(headers.bth.pad_count) + FRAME_BYTES);
            let serialised = self.link.rate.map_or(0, |rate| wire_bytes * 8_000_000_000 / rate);
            node.egress_free = self.now + Duration::from_nanos(serialised);
            burst += 1;
            assert!(burst < 1_000_000, "node {index} sends for ever at {:?}", self.now);
            let sent = self.now + Duration::from_nanos(serialised);
            self.carry(index, to, &headers, length, packet, sent);
        }
    }

    fn carry(
        &mut self,
        from: usize,
        to: usize,
        headers: &highwire_wire::Headers,
        length: u32,
        mut packet: S::Packet,
        sent: Instant,
    ) {
        self.packets += 1;
        let seen = Seen { now: self.now, from, to, headers, length };
        let mut verdict = Verdict::PASS;
        let mut rules = std::mem::take(&mut self.rules);
        for rule in &mut rules {
            verdict.add(rule(&seen, &mut self.rng));
        }
        self.rules = rules;
        self.tell(|| {
            let fate = if verdict == Verdict::PASS { String::new() } else { format!("   {verdict:?}") };
            format!("{from}->{to} {headers} +{length}{fate}")
        });
        let bth = &headers.bth;
        self.note(
            u64::from(bth.opcode.to_u8()) << 32 | u64::from(bth.psn.value()) << 1 | u64::from(verdict.drop),
        );
        if verdict.drop || to >= self.nodes.len() {
            return;
        }
        if verdict.corrupt {
            S::corrupt(&mut packet, &mut self.rng);
        }
        if verdict.forge {
            S::forge(&mut packet, &mut self.rng);
        }
        let quantum = self.link.quantum.as_nanos().max(1);
        let at = (sent + self.link.latency + verdict.delay).as_nanos().next_multiple_of(quantum);
        let at = Instant::from_nanos(at);
        if verdict.duplicate {
            self.duplicated += 1;
            let again = at + Duration::from_nanos(self.rng.below(2 * self.link.latency.as_nanos() + 1));
            self.push(again, Event::Arrive { from, to, marked: verdict.mark, packet: packet.clone() });
        }
        self.push(at, Event::Arrive { from, to, marked: verdict.mark, packet });
    }

    fn push(&mut self, at: Instant, event: Event<S::Packet>) {
        let id = self.next_id;
        self.next_id += 1;
        let slot = self.events.insert(event);
        self.queue.push(Reverse((at, id, slot)));
    }

    /// Runs while `go_on` allows it, for at most `limit` of virtual time.
    pub fn run_while(&mut self, limit: Duration, mut go_on: impl FnMut(&mut Net<S>) -> bool) {
        let end = self.now + limit;
        self.drain();
        let (mut last, mut still) = (self.now, 0);
        while go_on(self) {
            match self.next_time() {
                Some(at) if at <= end => self.advance_to(at),
                _ => return,
            }
            still = if self.now == last { still + 1 } else { 0 };
            last = self.now;
            assert!(still < 10_000, "the time stands still at {:?}", self.now);
        }
    }

    /// Runs for that long.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        self.run_while(span, |_| true);
        self.now = end;
    }

    /// Runs until there is no event left, or for at most ten minutes of virtual time.
    pub fn run(&mut self) {
        self.run_while(Duration::from_secs(600), |_| true);
    }
}
