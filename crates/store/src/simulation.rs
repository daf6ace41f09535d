//! Nodes of the store in one thread and in virtual time: keys that expire by clocks that disagree, clients that give up in the middle,
//! few workers for many transactions, and rows that are reclaimed at once.
//!
//! Transactions, the queue for workers, and the search for expired keys are those that run for real. The network is reliable and slow at times:
//! what goes wrong with nodes, links and disks is the subject of `txn`'s simulation.
//!
//! The seeds of a longer run: `HIGHWIRE_STORE_SEEDS=10000 cargo test --package highwire-store --lib simulation`.

mod clients;
mod history;

use crate::clock::{Wall, simulated};
use crate::session::{Local, Shared};
use crate::sweep;
use clients::Client;
use highwire_rpc::{Config, Endpoint, Running};
use highwire_stdx::{Instant, Rng};
use highwire_txn::{Configuration, ConfigurationService as _, Node, NodeId, Register, ServiceCall, Settings};
use history::History;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const NODES: u16 = 3;
const CLIENTS: usize = 4;
const OPERATIONS: usize = 25;
/// Fewer than clients, so that they wait for one another.
const WORKERS: u16 = 3;
/// All that happens within so long is one turn of the node's thread, as on a busy machine.
const TURN_NS: u64 = 100_000;
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
const HOUR_MS: i64 = 3_600_000;
/// What a run takes at most; one that takes longer makes no progress.
const END_NS: u64 = BEGIN_NS + 600_000_000_000;

enum Event {
    Request { from: NodeId, ticket: u64, is_reliable: bool, bytes: Vec<u8> },
    Response { ticket: u64, bytes: Vec<u8> },
    Service(Box<Configuration>),
    Step(i64),
}

struct Machine {
    shared: Rc<Shared>,
    endpoint: Endpoint,
    clients: Vec<Running<()>>,
}

struct World {
    now_ns: u64,
    rng: Rng,
    order: u64,
    queue: BTreeMap<(u64, u64), (usize, Event)>,
    service: Register,
    machines: Vec<Machine>,
    history: Rc<RefCell<History>>,
}

impl Drop for World {
    fn drop(&mut self) {
        simulated::set(None);
    }
}

fn settings() -> Settings {
    let text = "f = 1\nregister = \"r\"\n[[node]]\nid = 0\ndoor = \"a:1\"\n";
    let nodes = "[[node]]\nid = 1\ndoor = \"b:1\"\n[[node]]\nid = 2\ndoor = \"c:1\"\n";
    let config = crate::ClusterConfig::parse(&format!("{text}{nodes}")).expect("a cluster");
    Settings { workers: WORKERS, tombstones_max: 2, rows_max: 4096, ..config.settings() }
}

impl World {
    fn new(seed: u64) -> World {
        simulated::set(Some(BEGIN_NS));
        let mut rng = Rng::new(seed);
        let ids: Vec<NodeId> = (0..NODES).map(NodeId).collect();
        let boots: Vec<u64> = ids.iter().map(|_| rng.next_u64()).collect();
        let first = Configuration::first(&ids, &boots, 4, 1);
        let history = Rc::<RefCell<History>>::default();
        let mut machines = Vec::new();
        for (&id, &boot) in ids.iter().zip(&boots) {
            let node = Node::new(id, boot, first.clone(), settings(), BEGIN_NS);
            let wall = Wall::default();
            wall.step(rng.between(0, 4000) as i64 - 2000);
            let shared = Shared::new(node, wall, 1, WORKERS, rng.next_u64());
            let mut endpoint = Endpoint::new(Config::new(highwire_rpc::Node(id.0), boot | 1));
            endpoint.run(Instant::from_nanos(BEGIN_NS));
            machines.push(Machine { shared, endpoint, clients: Vec::new() });
        }
        let (queue, service) = (BTreeMap::new(), Register(first));
        let mut world = World { now_ns: BEGIN_NS, rng, order: 0, queue, service, machines, history };
        for at in 0..world.machines.len() {
            world.people(at);
        }
        world
    }

    /// The clients of a node, its search for expired keys, and the steps of its clock.
    fn people(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        for _ in 0..CLIENTS {
            let (shared, history) = (Rc::clone(&machine.shared), Rc::clone(&self.history));
            let rng = self.rng.fork(3);
            let work = |rpc| Client { local: Local { shared, rpc }, rng, history }.work(OPERATIONS);
            machine.clients.push(machine.endpoint.spawn(work).expect("room"));
        }
        let shared = Rc::clone(&machine.shared);
        machine.endpoint.spawn(|rpc| sweep::run(Local { shared, rpc })).expect("room");
        for _ in 0..3 {
            let step = self.rng.between(0, 4000) as i64 - 2000;
            let after_ns = self.rng.below(2_000_000_000);
            self.schedule(at, after_ns, Event::Step(step));
        }
    }

    fn schedule(&mut self, at: usize, after_ns: u64, event: Event) {
        self.order += 1;
        self.queue.insert((self.now_ns + after_ns, self.order), (at, event));
    }

    fn latency(&mut self) -> u64 {
        let late = if self.rng.chance(0.02) { self.rng.below(30_000_000) } else { 0 };
        self.rng.between(5_000, 200_000) + late
    }

    /// The next moment at which something happens.
    fn next(&self) -> u64 {
        let of = |machine: &Machine| {
            let node = machine.shared.node.borrow().next_timeout();
            let sleeper = machine.endpoint.poll_timeout().map_or(u64::MAX, Instant::as_nanos);
            node.min(sleeper)
        };
        let timers = self.machines.iter().map(of);
        let arrivals = self.queue.first_key_value().map(|((at, _), _)| *at);
        timers.chain(arrivals).min().unwrap_or(u64::MAX).max(self.now_ns)
    }

    fn step(&mut self) {
        self.now_ns = self.next() + self.rng.below(TURN_NS);
        simulated::set(Some(self.now_ns));
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let (at, event) = entry.remove();
            self.handle(at, event);
        }
        for at in 0..self.machines.len() {
            let shared = Rc::clone(&self.machines[at].shared);
            if shared.node.borrow().next_timeout() <= self.now_ns {
                shared.node.borrow_mut().handle_timeout(self.now_ns);
            }
            self.drain(at);
        }
    }

    fn handle(&mut self, at: usize, event: Event) {
        let (now_ns, shared) = (self.now_ns, Rc::clone(&self.machines[at].shared));
        match event {
            Event::Step(by_ms) => shared.wall.step(by_ms),
            Event::Service(configuration) => {
                shared.node.borrow_mut().handle_service(now_ns, Some(*configuration));
            }
            Event::Response { ticket, bytes } => {
                shared.node.borrow_mut().handle_response(now_ns, ticket, &bytes);
            }
            Event::Request { from, ticket, is_reliable, bytes } => {
                let reply = shared.node.borrow_mut().handle_request(now_ns, from, &bytes);
                let asks = usize::from(from.0);
                match reply {
                    Some(reply) => {
                        let latency = self.latency();
                        self.schedule(asks, latency, Event::Response { ticket, bytes: reply.bytes });
                    }
                    None if is_reliable && self.machines[asks].shared.node.borrow().is_waiting(ticket) => {
                        let again = Event::Request { from, ticket, is_reliable, bytes };
                        self.schedule(at, 300_000, again);
                    }
                    None => {}
                }
            }
        }
    }

    /// What a turn of the node's thread does.
    fn drain(&mut self, at: usize) {
        let now = Instant::from_nanos(self.now_ns);
        loop {
            let machine = &mut self.machines[at];
            machine.endpoint.handle_timeout(now);
            machine.endpoint.run(now);
            let shared = Rc::clone(&machine.shared);
            let mut any = shared.deliver_events() || machine.endpoint.has_work();
            while let Some(request) = { shared.node.borrow_mut().poll_request() } {
                any = true;
                let (latency, to) = (self.latency(), usize::from(request.to.0));
                let (ticket, is_reliable) = (request.ticket, request.is_reliable);
                let from = NodeId(at as u16);
                self.schedule(
                    to,
                    latency,
                    Event::Request { from, ticket, is_reliable, bytes: request.bytes },
                );
            }
            if let Some(call) = { shared.node.borrow_mut().poll_service() } {
                let Ok(holds) = match call {
                    ServiceCall::Read => self.service.read(),
                    ServiceCall::CompareAndSwap { id, revision, new } => {
                        self.service.compare_and_swap(id, revision, *new)
                    }
                };
                self.schedule(at, 100_000, Event::Service(Box::new(holds)));
            }
            if !any {
                return;
            }
        }
    }

    fn run_until(&mut self, until_ns: u64) {
        while self.next() <= until_ns {
            self.step();
        }
        self.now_ns = until_ns;
    }

    fn is_idle(&self) -> bool {
        self.machines.iter().flat_map(|machine| &machine.clients).all(Running::is_done)
    }

    /// Rows with something in them, of all nodes' own regions, and locks.
    fn rows(&self) -> (u64, u64, usize) {
        let of = |machine: &Machine| {
            let node = machine.shared.node.borrow();
            let usage = node.usage().0;
            (usage.live, usage.tombstones, node.store().locks())
        };
        let add =
            |sum: (u64, u64, usize), one: (u64, u64, usize)| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2);
        self.machines.iter().map(of).fold((0, 0, 0), add)
    }
}

/// Runs a seed; returns how many transactions committed, and how many keys were found expired.
fn run(seed: u64) -> Result<(usize, usize), String> {
    let mut world = World::new(seed);
    while !world.is_idle() {
        if world.now_ns > END_NS {
            return Err("no progress".into());
        }
        world.step();
    }
    // Every key that expires has done so, and nobody reads any more.
    world.machines.iter().for_each(|machine| machine.shared.wall.step(HOUR_MS));
    world.run_until(world.now_ns + 10_000_000_000);
    let (live, tombstones, locks) = world.rows();
    let history = world.history.borrow();
    history.check()?;
    if live > history.lasting() as u64 {
        return Err(format!("{live} rows are left, and {} keys never expire", history.lasting()));
    }
    // In each of four regions and three tables.
    if tombstones > 12 * 3 {
        return Err(format!("{tombstones} rows of deleted keys are left"));
    }
    if locks > 0 {
        return Err(format!("{locks} locks are left"));
    }
    for machine in &world.machines {
        machine.shared.check_workers(WORKERS)?;
    }
    Ok((history.committed(), history.expired()))
}

#[test]
fn keys_that_expire_stay_expired_whatever_clocks_and_clients_do() {
    let seeds = std::env::var("HIGHWIRE_STORE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let (mut committed, mut expired) = (0, 0);
    for seed in 0..seeds {
        let (of, gone) = run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        (committed, expired) = (committed + of, expired + gone);
    }
    println!("{seeds} seeds: {committed} committed, {expired} found expired");
    // A simulation in which nothing happens would pass, too.
    let seeds = seeds as usize;
    assert!(committed > 100 * seeds && expired > 10 * seeds, "{committed} committed, {expired} expired");
}

#[test]
fn a_seed_is_one_run() {
    assert_eq!(run(3), run(3));
}
