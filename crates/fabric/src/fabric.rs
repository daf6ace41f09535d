//! The network in motion: one event after the other.
//!
//! Three kinds of event carry packets: the first packet on a wire arrives, a port on which something waits becomes free, a
//! host's deadline comes. Each is at most one entry in the queue per port or host. An event's key says kind and place, so
//! simultaneous events have one order, which belongs to the network and not to how it is stored.
//!
//! `build` puts a network together, `transmit` and `forward` move packets, `pause` is PFC, `faults` breaks links, and
//! `verify` counts everything again.

mod build;
mod cross;
mod faults;
mod forward;
mod inspect;
mod pause;
mod transmit;
mod verify;

use highwire_stdx::Rng;

use crate::packet::{NONE, Record, Store};
use crate::port::{LinkKind, Port, PortCounters};
use crate::prefetch::{prefetch, prefetch_at};
use crate::queues::Queues;
use crate::{
    Ecn, EventQueue, FabricConfig, Host, HostId, Nearness, Observer, Packet, PortId, Time, Topology,
    Violation, ViolationKind,
};

pub use build::BuildError;
pub use faults::Verdict;
use faults::{Fault, FaultKind, Verdicts};

/// A network and the hosts on it.
///
/// `P` is the packet, `H` the host, `O` an observer; all calls are static.
pub struct Fabric<P, H, O = ()> {
    config: FabricConfig,
    topology: Topology,
    events: EventQueue,
    store: Store<P>,
    ports: Vec<Port>,
    kinds: Vec<LinkKind>,
    /// Per kind of link, when packets are marked that wait for it.
    ecn_of: Vec<Ecn>,
    /// The rarely touched counters of each port; `sent` and `arrived` are kept in [`Port`].
    counters: Vec<PortCounters>,
    /// Since when a port has been paused.
    paused_since: Vec<Time>,
    switches: Vec<Switch>,
    queues: Queues,
    /// Bytes in the buffer by input port: all of them, then by priority.
    inputs: Vec<u64>,
    /// The hosts from `first_host` on: all of them, or those of this part of a network.
    hosts: Vec<H>,
    first_host: u32,
    /// How many hosts the whole network has.
    host_count: u32,
    /// Whether this part has the node that a port belongs to.
    is_mine: Vec<bool>,
    /// Whether this part counts the events that happen in all parts.
    is_first: bool,
    /// Packets on wires that lead to another part.
    outbox: Vec<Crossing<P>>,
    timers: Vec<Timer>,
    faults: Vec<Fault>,
    fault_kinds: Vec<Option<Box<FaultKind>>>,
    /// Which packets are lost on their way into a switch.
    verdicts: Option<Verdicts<P>>,
    link_states: Vec<bool>,
    /// Whether switches that cut through may have to store a packet, because links have different rates.
    stores_some: bool,
    observer: O,
    violation: Option<Box<Violation>>,
    processed: u64,
    verified_at: u64,
    fingerprint: u64,
    is_started: bool,
    /// Whether the network has so many ports that an event's memory is not in the caches.
    is_large: bool,
}

/// A packet on a wire that leads to another part of the network.
pub(crate) struct Crossing<P> {
    /// The port that sent it.
    pub(crate) port: u32,
    record: Record,
    packet: Option<P>,
}

/// What a switch knows beside its ports.
struct Switch {
    /// Its first port.
    base: u32,
    /// Its ports whose link is down.
    dead_ports: u32,
    /// ECMP: a random odd factor and a random summand.
    factor: u64,
    salt: u64,
    /// Bytes in all its buffers, and the part of the pool that is not set aside as headroom.
    used_bytes: u64,
    shared_bytes: u64,
    rng: Rng,
}

/// A host's deadline, cancelled by forgetting it.
#[derive(Clone, Copy)]
struct Timer {
    /// The earliest event in the queue.
    armed: Time,
    /// How often in a row it came at the same time.
    spins: u32,
}

/// Networks of more ports are large: fat trees of 1024 hosts have six thousand.
const LARGE_PORTS: u32 = 2_000;
const SPINS_MAX: u32 = 100_000;
/// [`Fabric::verify`] runs after this many events.
const VERIFY_EVERY: u64 = 1 << 22;

const KIND_SHIFT: u32 = 30;
const FAULT: u32 = 0;
const ARRIVE: u32 = 1;
const FREE: u32 = 2;
const TIMER: u32 = 3;

/// The event of this kind at this port, host or fault.
#[inline]
const fn key(kind: u32, place: u32) -> u32 {
    kind << KIND_SHIFT | place
}

/// An event's summand in the fingerprint. A sum, so that each part of a network can add up its own events; it
/// need not contain the order, which follows from the events' times and keys.
#[inline]
fn trace(now: Time, key: u32) -> u64 {
    let mixed = (now.as_ps() ^ u64::from(key) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// Runs up to and including `limit`.
    ///
    /// # Errors
    /// The first invariant that did not hold. The fabric cannot go on then and returns the same error for ever.
    pub fn run_until(&mut self, limit: Time) -> Result<(), Violation> {
        self.start();
        while self.violation.is_none() {
            let Some((now, key)) = self.events.pop(limit) else { break };
            self.look_ahead();
            self.handle(now, key);
        }
        if self.processed - self.verified_at >= VERIFY_EVERY {
            self.verify()?;
        }
        self.violation.as_deref().map_or(Ok(()), |v| Err(v.clone()))
    }

    /// Runs until no event is left: no packet moves and no host waits for a deadline. Counts everything at the end.
    ///
    /// # Errors
    /// The first invariant that did not hold; packets that wait for each other for ever are one.
    pub fn run_to_rest(&mut self) -> Result<(), Violation> {
        self.run_until(Time::NEVER)?;
        let waiting = self.store.len() as u64;
        if waiting > 0 {
            let port = (0..self.ports.len() as u32).find(|&p| self.ports[p as usize].waiting != 0);
            let place = port.map_or_else(|| "the network".to_owned(), |p| self.port_name(PortId(p)));
            self.violate(place, ViolationKind::Deadlock { packets: waiting });
        }
        self.verify()
    }

    /// Lets the caller act on a host between events, as an application would, then asks the host for packets
    /// and its deadline.
    pub fn with_host<R>(&mut self, host: HostId, act: impl FnOnce(&mut H, Time) -> R) -> R {
        self.start();
        let now = self.events.now();
        let result = act(self.host_mut(host.0), now);
        self.drain(host.0, now);
        result
    }

    #[inline]
    fn host_mut(&mut self, host: u32) -> &mut H {
        &mut self.hosts[(host - self.first_host) as usize]
    }

    pub(crate) fn start(&mut self) {
        if !std::mem::replace(&mut self.is_started, true) {
            let now = self.events.now();
            let mine = self.first_host..self.first_host + self.hosts.len() as u32;
            mine.for_each(|host| self.drain(host, now));
        }
    }

    /// Prefetches the memory that the next few events will touch: first the port, then, once that is there,
    /// the packet on its wire, then the queues or the host that the packet goes to. In a large network hosts
    /// do not stay in the caches between their packets either, so they are asked to do the same.
    #[inline]
    fn look_ahead(&self) {
        let place = |key: u32| (key & ((1 << KIND_SHIFT) - 1)) as usize;
        let further = if self.is_large { 2 } else { 0 };
        if let Some(key) = self.events.peek(5 + further) {
            prefetch_at(&self.ports, place(key));
        }
        if let Some(key) = self.events.peek(3 + further) {
            if self.is_large {
                self.look_at_host(key, |host, _| prefetch(host));
            }
            if key >> KIND_SHIFT == ARRIVE {
                let port = &self.ports[place(key)];
                self.store.prefetch(port.wire.head, port.peer < self.host_count);
            }
        }
        if let Some(key) = self.events.peek(3).filter(|_| self.is_large) {
            self.look_at_host(key, |host, _| host.look_ahead(Nearness::Near));
        }
        if let Some(key) = self.events.peek(1) {
            if self.is_large {
                self.look_at_host(key, |host, packet| host.look_ahead(Nearness::Next(packet)));
            }
            if key >> KIND_SHIFT == ARRIVE {
                let port = &self.ports[place(key)];
                if let Some(record) = self.store.records.get(port.wire.head as usize) {
                    self.store.prefetch(record.next, false);
                }
                prefetch_at(&self.ports, port.peer as usize);
            }
        }
    }

    /// Tells a host that an event for it is near, and which packet it will receive.
    #[inline]
    fn look_at_host(&self, key: u32, look: impl FnOnce(&H, Option<&P>)) {
        let place = key & ((1 << KIND_SHIFT) - 1);
        let (host, packet) = match key >> KIND_SHIFT {
            ARRIVE => {
                let port = &self.ports[place as usize];
                (port.peer, port.wire.head)
            }
            FREE => (place, NONE),
            _ => return,
        };
        if let Some(host) = self.hosts.get(host.wrapping_sub(self.first_host) as usize) {
            look(host, self.store.get(packet));
        }
    }

    #[inline]
    fn handle(&mut self, now: Time, key: u32) {
        self.processed += 1;
        self.fingerprint = self.fingerprint.wrapping_add(trace(now, key));
        let place = key & ((1 << KIND_SHIFT) - 1);
        match key >> KIND_SHIFT {
            ARRIVE => self.arrive(now, place),
            FREE => {
                self.ports[place as usize].is_awaited = false;
                self.serve(now, place);
            }
            TIMER => self.expire(now, place),
            _ => self.break_or_mend(now, place),
        }
    }

    /// After anything has happened to a host, asks it for a packet if its port is idle, and for its deadline.
    #[inline]
    fn drain(&mut self, host: u32, now: Time) {
        if !self.ports[host as usize].is_awaited {
            self.pull(now, host);
        }
        self.rearm(now, host);
    }

    #[inline]
    fn rearm(&mut self, now: Time, host: u32) {
        let deadline = self.host_mut(host).poll_timeout();
        let timer = &mut self.timers[host as usize];
        if deadline < timer.armed {
            let at = deadline.max(now);
            if at < timer.armed {
                timer.armed = at;
                self.events.push(at, key(TIMER, host));
            }
        }
    }

    fn expire(&mut self, now: Time, host: u32) {
        let timer = &mut self.timers[host as usize];
        if timer.armed != now {
            return;
        }
        timer.armed = Time::NEVER;
        if self.host_mut(host).poll_timeout() <= now {
            self.host_mut(host).handle_timeout(now);
            self.drain(host, now);
        } else {
            self.rearm(now, host);
        }
        let timer = &mut self.timers[host as usize];
        timer.spins = if timer.armed == now { timer.spins + 1 } else { 0 };
        if timer.spins > SPINS_MAX {
            self.violate(self.port_name(PortId(host)), ViolationKind::HostSpins);
        }
    }

    #[cold]
    fn violate(&mut self, place: String, kind: ViolationKind) {
        let (seed, time) = (self.config.seed, self.events.now());
        self.violation.get_or_insert_with(|| Box::new(Violation { seed, time, place, kind }));
    }
}
