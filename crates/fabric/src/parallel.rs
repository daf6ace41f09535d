//! One network on several threads, with the same result as on one.
//!
//! The network is cut into parts; each is a [`Fabric`] that has its hosts and switches and runs on its own
//! thread. A packet from one part reaches another no sooner than the shortest delay of a link between them,
//! so all parts may run that far on their own (a *window*), then exchange the packets that crossed, then go
//! on. Events are ordered by time and place, each random generator belongs to one node or wire, and nothing
//! else is shared: the parts do exactly what the whole does.
// The threads hand packets over through locks; each state machine still has one owner.
#![allow(clippy::disallowed_types)]

mod gate;
mod partition;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crate::fabric::Crossing;
use crate::{
    BuildError, Fabric, FabricConfig, Host, HostId, NodeId, Observer, Packet, PortCounters, PortId, Span,
    Tally, Time, Topology, Verdict, Violation, ViolationKind,
};

use gate::{Breaker, Gate};
pub(crate) use partition::Partition;

/// A network that runs on several threads.
pub struct ParallelFabric<P, H, O = ()> {
    parts: Vec<Fabric<P, H, O>>,
    partition: Partition,
    /// How far all may run before they meet.
    lookahead: Span,
    /// Per port with a wire to another part: which part sends, which receives.
    cuts: Vec<(u32, usize, usize)>,
    /// Links change at these times, earliest first. Windows end there, so that a packet that the change loses
    /// lies in the part that loses it.
    changes: Vec<Time>,
    violation: Option<Violation>,
}

impl<P, H, O> ParallelFabric<P, H, O>
where
    P: Packet + Send,
    H: Host<P> + Send,
    O: Observer<P> + Send,
{
    /// A network of this shape and behaviour in as many parts as there are observers; `threads` observers that observe
    /// nothing are `vec![(); threads]`. There are no more parts than hosts.
    ///
    /// # Errors
    /// If the parts do not fit, as [`Fabric::new`].
    ///
    /// # Panics
    /// If there is no observer.
    pub fn new(
        topology: Topology,
        config: FabricConfig,
        mut hosts: Vec<H>,
        observers: Vec<O>,
    ) -> Result<ParallelFabric<P, H, O>, BuildError> {
        if topology.host_count() as usize != hosts.len() {
            return Err(BuildError::HostCount { places: topology.host_count(), hosts: hosts.len() });
        }
        assert!(!observers.is_empty(), "a network has at least one part");
        let partition = Partition::of(&topology, observers.len().min(hosts.len()));
        let mut parts = Vec::new();
        for (me, observer) in observers.into_iter().enumerate().take(partition.parts()) {
            let rest = hosts.split_off(partition.hosts(me).len());
            let mine = std::mem::replace(&mut hosts, rest);
            parts.push(Fabric::part(topology.clone(), config.clone(), mine, observer, &partition, me)?);
        }
        let (ports, lookahead) = parts[0].cut_ports();
        if lookahead == Span::ZERO {
            let right = "threads need a delay between them: at least a byte of header, or longer links";
            return Err(BuildError::OutOfRange("header_bytes", right));
        }
        let owner = |port: PortId| partition.part(parts[0].node_of(port));
        let cuts =
            ports.into_iter().map(|p| (p, owner(PortId(p)), owner(parts[0].peer(PortId(p))))).collect();
        Ok(ParallelFabric { parts, partition, lookahead, cuts, changes: Vec::new(), violation: None })
    }

    /// Runs up to and including `limit`.
    ///
    /// # Errors
    /// As [`Fabric::run_until`]; of several parts' violations the earliest.
    pub fn run_until(&mut self, limit: Time) -> Result<(), Violation> {
        if self.violation.is_none() {
            self.run_windows(limit);
            let violations = self.parts.iter().filter_map(Fabric::violation);
            self.violation = violations.min_by_key(|v| (v.time, v.place.clone())).cloned();
        }
        self.violation.clone().map_or(Ok(()), Err)
    }

    /// Runs until no event is left, and counts everything at the end.
    ///
    /// # Errors
    /// As [`Fabric::run_to_rest`].
    pub fn run_to_rest(&mut self) -> Result<(), Violation> {
        self.run_until(Time::NEVER)?;
        let now = self.now();
        self.parts.iter_mut().for_each(|part| part.advance(now));
        let packets = self.packets_in_flight() as u64;
        if packets > 0 {
            return self.violate("the network".to_owned(), ViolationKind::Deadlock { packets });
        }
        self.verify()
    }

    fn run_windows(&mut self, limit: Time) {
        let count = self.parts.len();
        let rounds = Rounds {
            gate: Gate::new(),
            is_over: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            window_end: AtomicU64::new(0),
            claims: (0..count).map(|_| AtomicU64::new(0)).collect(),
            done: AtomicUsize::new(0),
            parts: self.parts.iter_mut().map(Mutex::new).collect(),
            next: (0..count).map(|_| AtomicU64::new(0)).collect(),
            mail: (0..count * count).map(|_| Mutex::default()).collect(),
            receivers: self.cuts.iter().map(|&(port, _, to)| (port, to)).collect(),
            changes: &self.changes,
            lookahead: self.lookahead,
            limit,
        };
        thread::scope(|scope| {
            for me in 1..count {
                let rounds = &rounds;
                scope.spawn(move || rounds.drive(me));
            }
            rounds.drive(0);
        });
        drop(rounds);
        for part in self.parts.iter_mut().filter(|part| part.violation().is_none() && limit != Time::NEVER) {
            part.advance(limit);
        }
    }

    /// Lets the caller do something to a host between events, as [`Fabric::with_host`].
    pub fn with_host<R>(&mut self, host: HostId, act: impl FnOnce(&mut H, Time) -> R) -> R {
        let part = self.partition.part(NodeId::Host(host.0));
        self.parts[part].with_host(host, act)
    }

    /// As [`Fabric::schedule_link`].
    ///
    /// # Panics
    /// If there is no such link, or `at` lies in the past.
    pub fn schedule_link(&mut self, at: Time, link: usize, is_up: bool) {
        self.parts.iter_mut().for_each(|part| part.schedule_link(at, link, is_up));
        self.changes.push(at);
        self.changes.sort_unstable();
    }

    /// As [`Fabric::set_link_errors`].
    ///
    /// # Panics
    /// If there is no such link, or a probability is none.
    pub fn set_link_errors(&mut self, link: usize, bit_error_rate: f64, packet_loss: f64) {
        self.parts.iter_mut().for_each(|part| part.set_link_errors(link, bit_error_rate, packet_loss));
    }

    /// As [`Fabric::lose_if_by_wire`], with the same losses for any number of threads. There is no rule for
    /// all wires at once, because several threads have no common order of events.
    pub fn lose_if_by_wire(&mut self, rule_of: Option<&dyn Fn(PortId) -> Verdict<P>>) {
        self.parts.iter_mut().for_each(|part| part.lose_if_by_wire(rule_of));
    }

    /// As [`Fabric::verify`], over all parts.
    ///
    /// # Errors
    /// The first difference, or the violation that stopped the run before.
    pub fn verify(&mut self) -> Result<(), Violation> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        self.parts.iter_mut().try_for_each(Fabric::verify)?;
        for &(port, from, to) in &self.cuts {
            let (sent, found) = (self.parts[from].sent(port), self.parts[to].after(port).0);
            if sent != found {
                let place = format!("the link behind {}", self.parts[0].port_name(PortId(port)));
                let kind =
                    ViolationKind::NotConserved { what: "bytes", expected: sent.bytes, found: found.bytes };
                return self.violate(place, kind);
            }
        }
        Ok(())
    }

    fn violate(&mut self, place: String, kind: ViolationKind) -> Result<(), Violation> {
        let violation = Violation { seed: self.parts[0].config().seed, time: self.now(), place, kind };
        Err(self.violation.insert(violation).clone())
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.parts.iter().map(Fabric::now).max().unwrap_or(Time::ZERO)
    }

    /// Its shape.
    pub fn topology(&self) -> &Topology {
        self.parts[0].topology()
    }

    /// Every host, in the order of their numbers.
    pub fn hosts(&self) -> impl Iterator<Item = &H> {
        self.parts.iter().flat_map(Fabric::hosts)
    }

    /// One host.
    pub fn host(&self, host: HostId) -> &H {
        self.parts[self.partition.part(NodeId::Host(host.0))].host(host)
    }

    /// The observers, one per part.
    pub fn observers(&self) -> impl Iterator<Item = &O> {
        self.parts.iter().map(Fabric::observer)
    }

    /// As [`Fabric::event_count`]: the same as on one thread.
    pub fn event_count(&self) -> u64 {
        self.parts.iter().map(Fabric::event_count).sum()
    }

    /// As [`Fabric::fingerprint`]: the same as on one thread.
    pub fn fingerprint(&self) -> u64 {
        self.parts.iter().map(Fabric::fingerprint).fold(0, u64::wrapping_add)
    }

    /// As [`Fabric::packet_hops`].
    pub fn packet_hops(&self) -> u64 {
        self.parts.iter().map(Fabric::packet_hops).sum()
    }

    /// Packets in the network now.
    pub fn packets_in_flight(&self) -> usize {
        self.parts.iter().map(Fabric::packets_in_flight).sum()
    }

    /// The counters of a port.
    pub fn counters(&self, port: PortId) -> PortCounters {
        let mut sum = PortCounters::default();
        self.parts.iter().for_each(|part| sum.merge(&part.counters(port)));
        sum
    }

    /// The sum of all ports' counters.
    pub fn totals(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        self.parts.iter().for_each(|part| sum.merge(&part.totals()));
        sum
    }

    /// Data packets that hosts have put into the network and that have left it into a host.
    pub fn injected_and_delivered(&self) -> (Tally, Tally) {
        let mut sum = (Tally::default(), Tally::default());
        for part in &self.parts {
            let (injected, delivered) = part.injected_and_delivered();
            sum.0.merge(injected);
            sum.1.merge(delivered);
        }
        sum
    }

    /// Bytes that wait for a switch's port at all priorities.
    pub fn queue_bytes(&self, port: PortId) -> u64 {
        self.parts.iter().map(|part| part.queue_bytes(port)).sum()
    }

    /// As [`Fabric::queue_bytes_max`].
    pub fn queue_bytes_max(&self, port: PortId) -> u64 {
        self.parts.iter().map(|part| part.queue_bytes_max(port)).max().unwrap_or(0)
    }

    /// As [`Fabric::is_paused`].
    pub fn is_paused(&self, port: PortId) -> bool {
        self.parts.iter().any(|part| part.is_paused(port))
    }

    /// As [`Fabric::port_name`].
    pub fn port_name(&self, port: PortId) -> String {
        self.parts[0].port_name(port)
    }

    /// How many ports there are, those of hosts included.
    pub fn port_count(&self) -> u32 {
        self.parts[0].port_count()
    }

    /// As [`Fabric::node_of`].
    pub fn node_of(&self, port: PortId) -> NodeId {
        self.parts[0].node_of(port)
    }

    /// As [`Fabric::peer`].
    pub fn peer(&self, port: PortId) -> PortId {
        self.parts[0].peer(port)
    }

    /// Whether nothing will happen any more: no packet moves and no host waits for a deadline.
    pub fn is_at_rest(&self) -> bool {
        self.parts.iter().all(|part| part.next_not_before() == Time::NEVER)
    }

    /// The hosts, in the order of their numbers, and the observers, when all is over.
    pub fn into_parts(self) -> (Vec<H>, Vec<O>) {
        let (mut hosts, mut observers) = (Vec::new(), Vec::new());
        for part in self.parts {
            let (some, observer) = part.into_parts();
            hosts.extend(some);
            observers.push(observer);
        }
        (hosts, observers)
    }
}

/// What the threads of one run share.
///
/// Work goes in phases of two kinds: every part runs to the end of the window, then every part takes in what has come from
/// others. A thread takes its own part first, and then any that nobody has taken: where cores are busy with other work, a
/// thread that is kept off them holds nobody up unless it is in the middle of a part.
struct Rounds<'a, P, H, O> {
    /// The number of the phase: even ones run, odd ones take in.
    gate: Gate,
    is_over: AtomicBool,
    has_failed: AtomicBool,
    window_end: AtomicU64,
    /// Per part, the next phase in which nobody has taken it.
    claims: Vec<AtomicU64>,
    /// Parts that are done in this phase.
    done: AtomicUsize,
    parts: Vec<Mutex<&'a mut Fabric<P, H, O>>>,
    /// Per part, a time at or before its next event.
    next: Vec<AtomicU64>,
    /// Packets from part to part: `mail[to * parts + from]`.
    mail: Vec<Mutex<Vec<Crossing<P>>>>,
    /// Which part receives from a cut port, by port.
    receivers: BTreeMap<u32, usize>,
    changes: &'a [Time],
    lookahead: Span,
    limit: Time,
}

impl<P: Packet, H: Host<P>, O: Observer<P>> Rounds<'_, P, H, O> {
    /// Works on phase after phase until the run is over.
    fn drive(&self, me: usize) {
        let _breaker = Breaker(&self.gate);
        while !self.is_over.load(Ordering::Acquire) {
            let phase = self.gate.phase();
            let count = self.claims.len();
            let mut has_worked = false;
            for part in (0..count).map(|offset| (me + offset) % count) {
                // A thread that comes late knows an old phase, in which nothing is left to take.
                let claim = &self.claims[part];
                if claim.compare_exchange(phase, phase + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    continue;
                }
                has_worked = true;
                self.work(phase, part);
                // AcqRel: the last one sees what all did, and publishes it with the next phase.
                if self.done.fetch_add(1, Ordering::AcqRel) + 1 == count {
                    self.done.store(0, Ordering::Relaxed);
                    self.finish(phase);
                }
            }
            if !has_worked && !self.is_over.load(Ordering::Acquire) {
                self.gate.wait(phase);
            }
        }
    }

    fn work(&self, phase: u64, me: usize) {
        let mut part = self.parts[me].lock().expect("a part whose thread panicked is not taken again");
        if !phase.is_multiple_of(2) {
            for from in 0..self.next.len() {
                self.mail(me, from).drain(..).for_each(|crossing| part.admit(crossing));
            }
            self.next[me].store(part.next_not_before().as_ps(), Ordering::Relaxed);
            return;
        }
        part.start();
        if phase > 0 {
            // The error stays in the part; all threads see it when the phase is over.
            let end = Time::from_ps(self.window_end.load(Ordering::Relaxed));
            let _ = part.run_until(end);
        }
        if part.violation().is_some() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        for crossing in part.departures() {
            let to = self.receivers[&crossing.port];
            self.mail(to, me).push(crossing);
        }
    }

    /// All parts are done: chooses the next window, or ends the run.
    fn finish(&self, phase: u64) {
        if !phase.is_multiple_of(2) {
            let next = self.next.iter().map(|n| n.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX);
            let is_over = next == u64::MAX || next > self.limit.as_ps();
            if is_over || self.has_failed.load(Ordering::Relaxed) {
                self.is_over.store(true, Ordering::Release);
            } else {
                let end = self.window_end(Time::from_ps(next));
                self.window_end.store(end.as_ps(), Ordering::Relaxed);
            }
        }
        self.gate.open(phase);
    }

    fn mail(&self, to: usize, from: usize) -> std::sync::MutexGuard<'_, Vec<Crossing<P>>> {
        self.mail[to * self.next.len() + from].lock().expect("no thread panics while it holds the mail")
    }

    /// The last picosecond that no other part can reach from `start` on, and before links change.
    fn window_end(&self, start: Time) -> Time {
        let change = self.changes.partition_point(|&c| c <= start);
        let change = self.changes.get(change).map_or(u64::MAX, |c| c.as_ps());
        let end = (start + self.lookahead).as_ps().min(change);
        Time::from_ps(if end == u64::MAX { end } else { end - 1 }).min(self.limit)
    }
}
