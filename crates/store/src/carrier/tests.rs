//! A node whose requests are carried over real RPCs, to a peer that answers as each test wants.

use super::*;
use crate::clock::Clock;
use highwire_host::rpc::{Idle, RpcConfig};
use highwire_host::{Device, DeviceConfig, Engine, LinkChoice};
use highwire_txn::{Configuration, Event, Settings, TableId, TableKind};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);
const TABLE: TableId = TableId(0);
/// Much longer than a test: heartbeats are sent only when a test wants them.
const LEASE_NS: u64 = 3_600_000_000_000;
/// `Response::Read` and `Response::Done`; the latter serves as an answer to anything.
const READ: u8 = 1;
const DONE: u8 = 6;

/// The requests that the peer got, and its first answers. After those it answers reads, each with its key as
/// the version, and other requests with done.
#[derive(Default)]
struct Script {
    asked: Vec<Vec<u8>>,
    answers: VecDeque<Vec<u8>>,
    answers_reads: bool,
}

struct Scene {
    rpc: Rpc,
    peer: Rpc,
    shared: Rc<Shared>,
    backlog: Backlog,
    script: Rc<RefCell<Script>>,
    // Declared after the endpoints, which use them.
    _devices: [Device; 2],
}

fn open(node: u16) -> (Device, Rpc) {
    let config = DeviceConfig { link: LinkChoice::Shm, engine: Engine::Inline, ..DeviceConfig::default() };
    let device = Device::open(&config).expect("a device");
    let mut config = RpcConfig::new(Node(node));
    config.idle = Idle::Spin;
    config.endpoint.failure_after = time::Duration::from_secs(3600);
    let rpc = Rpc::open(&device, config).expect("an endpoint");
    (device, rpc)
}

fn node() -> highwire_txn::Node {
    let settings = Settings {
        f: 1,
        tables: vec![TableKind::Hash],
        rows_max: 64,
        scan_rows_max: 16,
        workers: 4,
        lease_ns: LEASE_NS,
        drift_ppm_max: 1000,
        stuck_ns: 10 * LEASE_NS,
        page_rows: 16,
        page_pause_ns: 1_000_000,
        part_bytes: 4 << 20,
        page_pause_times: 0,
        tombstones_max: 4096,
    };
    let configuration = Configuration::first(&[NodeId(0), NodeId(1)], &[10, 11], 4, 1);
    highwire_txn::Node::new(NodeId(0), 10, configuration, settings, Clock.now_ns())
}

impl Scene {
    fn new() -> Scene {
        let ((one, mut rpc), (two, mut peer)) = (open(0), open(1));
        rpc.connect(Node(1), &peer.address()).expect("another node");
        peer.connect(Node(0), &rpc.address()).expect("another node");
        let script = Rc::<RefCell<Script>>::default();
        let told = Rc::clone(&script);
        peer.register(DELIVER, move |request, response| {
            let mut script = told.borrow_mut();
            script.asked.push(request.bytes.to_vec());
            match script.answers.pop_front() {
                Some(answer) => response.write(&answer),
                None if script.answers_reads => {
                    // The configuration, the sender, the kind and the table are in front of the key.
                    let key = &request.bytes[8..16];
                    response.write(&[&[ANSWER, READ], key, &[0, 0]].concat());
                }
                None => response.write(&[ANSWER, DONE]),
            }
        });
        let shared = Shared::new(node(), crate::clock::Wall::default(), 1, 4, 1);
        Scene { rpc, peer, shared, backlog: Backlog::default(), script, _devices: [one, two] }
    }

    /// Lets a worker read keys.
    fn read(&self, worker: u16, keys: &[u64]) {
        let mut node = self.shared.node.borrow_mut();
        node.begin(worker).expect("a free worker");
        for &key in keys {
            node.add_to_read_set(worker, TABLE, key).expect("a table");
        }
        node.execute(Clock.now_ns(), worker).expect("its turn");
    }

    /// This many keys whose primary is the peer.
    fn keys(&self, count: usize) -> Vec<u64> {
        let node = self.shared.node.borrow();
        (0..).filter(|&key| node.primary(TABLE, key) == NodeId(1)).take(count).collect()
    }

    fn send(&mut self, now_ns: u64) -> bool {
        self.backlog.send(&mut self.rpc, &self.shared, now_ns, LEASE_NS)
    }

    fn receive(&mut self) -> bool {
        self.backlog.receive(&mut self.rpc, &self.shared, Clock.now_ns())
    }

    /// Runs turns, at the time that `now` gives, until the condition holds.
    #[track_caller]
    fn until(&mut self, what: &str, now: impl Fn() -> u64, mut is_so: impl FnMut(&mut Scene) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            self.send(now());
            self.rpc.poll();
            self.peer.poll();
            self.receive();
            assert!(Instant::now() < deadline, "waited too long until {what}");
        }
    }

    fn asked(&self) -> usize {
        self.script.borrow().asked.len()
    }

    fn has_none_under_way(&self) -> bool {
        self.backlog.under_way.iter().all(Option::is_none)
    }
}

fn now() -> u64 {
    Clock.now_ns()
}

#[test]
fn every_answer_goes_to_the_request_that_it_is_for_and_those_of_one_turn_share_a_datagram() {
    let mut scene = Scene::new();
    scene.script.borrow_mut().answers_reads = true;
    let keys = scene.keys(9);
    for (worker, keys) in (0..).zip(keys.chunks(3)) {
        scene.read(worker, keys);
    }
    scene.until("all are answered", now, |scene| {
        let node = scene.shared.node.borrow();
        (0..3).all(|worker| node.worker(worker).items().iter().all(|item| item.seen.is_some()))
    });
    for worker in 0..3 {
        for item in scene.shared.node.borrow().worker(worker).items() {
            assert_eq!(item.seen, Some(item.key), "worker {worker} has the answer to another request");
        }
    }
    assert_eq!((scene.asked(), scene.rpc.counters().request_datagrams), (9, 1));
}

#[test]
fn a_request_that_has_no_answer_yet_is_made_again_after_growing_pauses_until_it_has() {
    let mut scene = Scene::new();
    // An answer of no bytes is no answer either.
    scene.script.borrow_mut().answers.extend([vec![NOT_NOW], vec![], vec![NOT_NOW]]);
    let keys = scene.keys(1);
    scene.read(0, &keys);
    let mut pauses = Vec::new();
    scene.until("it is executed", now, |scene| {
        let next = scene.backlog.again.first().map(|again| again.pause_ns);
        if next.is_some() && pauses.last() != next.as_ref() {
            assert!(scene.backlog.next_ns().is_some(), "the node would sleep too long");
            pauses.extend(next);
        }
        matches!(scene.shared.node.borrow_mut().poll_event(), Some(Event::Executed { result: Ok(()), .. }))
    });
    assert_eq!(pauses, [2, 4, 8].map(|times| times * PAUSE_MIN_NS));
    let asked = scene.script.borrow().asked.clone();
    assert!(asked.len() == 4 && asked.iter().all(|bytes| *bytes == asked[0]), "{asked:?}");
    assert_eq!((scene.backlog.next_ns(), scene.has_none_under_way()), (None, true));
}

#[test]
fn a_heartbeat_goes_by_itself_and_is_not_made_again() {
    let mut scene = Scene::new();
    scene.script.borrow_mut().answers.extend([vec![NOT_NOW], vec![NOT_NOW]]);
    let (keys, began) = (scene.keys(1), now());
    scene.read(0, &keys);
    scene.shared.node.borrow_mut().handle_timeout(began);
    scene.until("both have come back", || began, |scene| scene.asked() == 2 && scene.has_none_under_way());
    assert_eq!(scene.rpc.counters().request_datagrams, 2, "what is repeated and what is not went together");
    assert_eq!(scene.backlog.again.len(), 1);
    assert!(scene.backlog.again[0].addressed.is_reliable);
    scene.until("the read is done", now, |scene| scene.asked() == 3 && scene.has_none_under_way());
    assert!(scene.backlog.again.is_empty() && !scene.send(now() + LEASE_NS));
}

#[test]
fn what_the_node_waits_for_no_longer_is_neither_made_again_nor_kept() {
    let mut scene = Scene::new();
    let (keys, began) = (scene.keys(2), now());
    scene.script.borrow_mut().answers.push_back(vec![NOT_NOW]);
    scene.read(0, &keys[..1]);
    scene.until("the peer has answered", || began, |scene| !scene.backlog.again.is_empty());
    // The peer is silent about the other.
    scene.read(1, &keys[1..]);
    assert!(scene.send(began));
    // A parcel stays as long as one of its answers is waited for.
    let gone = u64::MAX;
    scene.backlog.under_way.iter_mut().flatten().for_each(|call| call.tickets.insert(0, gone));
    scene.backlog.look_ns = 0;
    scene.send(began);
    assert!(!scene.receive(), "what is waited for was given up");
    scene.shared.node.borrow_mut().handle_disk_failure();
    scene.backlog.look_ns = 0;
    assert!(!scene.send(now() + PAUSE_MAX_NS), "something was made again");
    assert!(scene.receive(), "nothing was given up");
    assert!(scene.has_none_under_way() && scene.backlog.again.is_empty());
    assert_eq!(scene.asked(), 1);
}

#[test]
fn requests_of_a_turn_share_a_time_that_is_later_than_the_turn_before() {
    let scene = Scene::new();
    for _ in 0..3 {
        scene.shared.begin_turn();
        let before = Clock.now_ns();
        let first = scene.shared.arrival_ns();
        assert!(first >= before, "a request would be answered as of a time before it came");
        assert_eq!(scene.shared.arrival_ns(), first);
    }
}
