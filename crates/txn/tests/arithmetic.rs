//! FaSST's arithmetic, and a node's reaction to malformed bytes. Three functions drive nodes without any
//! network.

use std::collections::BTreeMap;

use highwire_stdx::Rng;
use highwire_txn::{
    AbortReason, Configuration, Counters, Event, Key, LONG_VALUE_BYTES_MAX, Mode, Node, NodeId, Settings,
    TableId, TableKind, TransactionError, VALUE_BYTES_MAX,
};

const TABLE: TableId = TableId(0);
const ORDERED: TableId = TableId(1);

struct Cluster {
    nodes: BTreeMap<NodeId, Node>,
    settings: Settings,
    now_ns: u64,
}

impl Cluster {
    fn new(nodes: u16, f: usize) -> Cluster {
        let ids: Vec<NodeId> = (0..nodes).map(NodeId).collect();
        let boots: Vec<u64> = (100..).take(ids.len()).collect();
        let settings = Settings {
            f,
            tables: vec![TableKind::Hash, TableKind::Ordered { keys_per_run: 8 }],
            rows_max: 1000,
            scan_rows_max: 100,
            workers: 2,
            lease_ns: 1_000_000_000,
            drift_ppm_max: 1000,
            stuck_ns: 10_000_000_000,
            page_rows: 10,
            page_pause_ns: 1000,
            part_bytes: 4 << 20,
            page_pause_times: 0,
            tombstones_max: 4096,
        };
        let first = Configuration::first(&ids, &boots, 16, f);
        let node =
            |(&id, &boot): (&NodeId, &u64)| (id, Node::new(id, boot, first.clone(), settings.clone(), 1));
        let nodes = ids.iter().zip(&boots).map(node).collect();
        let mut cluster = Cluster { nodes, settings, now_ns: 1 };
        // The first heartbeats bring the leases.
        cluster.now_ns += 1;
        let now_ns = cluster.now_ns;
        cluster.nodes.values_mut().for_each(|node| node.handle_timeout(now_ns));
        cluster.settle();
        cluster
    }

    /// Carries all messages until there are none.
    fn settle(&mut self) {
        loop {
            let next = self.nodes.values_mut().find_map(|node| Some((node.id(), node.poll_request()?)));
            let Some((from, request)) = next else { return };
            self.now_ns += 10;
            let receiver = self.nodes.get_mut(&request.to).expect("a node");
            let reply = receiver.handle_request(self.now_ns, from, &request.bytes).expect("an answer");
            let sender = self.nodes.get_mut(&from).expect("a node");
            sender.handle_response(self.now_ns, request.ticket, &reply.bytes);
        }
    }

    fn node(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).expect("a node")
    }

    fn execute(&mut self, node: NodeId) -> Result<(), AbortReason> {
        let now_ns = self.now_ns;
        self.node(node).execute(now_ns, 0).expect("in time");
        self.settle();
        match self.node(node).poll_event() {
            Some(Event::Executed { result, .. }) => result,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, node: NodeId) -> Option<Event> {
        let now_ns = self.now_ns;
        self.node(node).commit(now_ns, 0).expect("in time");
        self.settle();
        self.node(node).poll_event()
    }

    fn write(&mut self, node: NodeId, key: Key, mode: Mode, value: &[u8]) -> Option<Event> {
        self.node(node).begin(0).expect("idle");
        self.node(node).add_to_write_set(0, TABLE, key, mode).expect("in time");
        self.execute(node).expect("no conflict");
        self.node(node).set_value(0, TABLE, key, value).expect("locked");
        self.commit(node)
    }

    /// Keys of which neither the primary nor a backup is `node`, so that all of their requests are sent.
    fn keys_elsewhere(&mut self, node: NodeId, count: usize) -> Vec<Key> {
        let settings = self.settings.clone();
        let configuration = self.node(node).configuration().clone();
        let elsewhere = |key: &Key| {
            let region = settings.region_of(&configuration, TABLE, *key);
            configuration.replica(region, node).is_none()
        };
        (0..).filter(elsewhere).take(count).collect()
    }
}

/// FaSST §6.1's O(r, w): r keys read, w of them written.
fn requests_of(r: usize, w: usize) -> Counters {
    let mut cluster = Cluster::new(7, 2);
    let me = NodeId(3);
    let keys = cluster.keys_elsewhere(me, r);
    for &key in &keys {
        let written = cluster.write(NodeId(0), key, Mode::Insert, b"first");
        assert!(matches!(written, Some(Event::Committed { .. })), "{written:?}");
    }
    cluster.node(me).begin(0).expect("idle");
    for (place, &key) in keys.iter().enumerate() {
        let node = cluster.node(me);
        if place < w {
            node.add_to_write_set(0, TABLE, key, Mode::Update).expect("in time");
        } else {
            node.add_to_read_set(0, TABLE, key).expect("in time");
        }
    }
    let before = cluster.node(me).counters();
    cluster.execute(me).expect("no conflict");
    for &key in &keys[..w] {
        cluster.node(me).set_value(0, TABLE, key, b"second").expect("locked");
    }
    let end = cluster.commit(me);
    assert!(matches!(end, Some(Event::Committed { .. })), "{end:?}");
    let after = cluster.node(me).counters();
    assert_eq!(before, Counters::default());
    after
}

#[test]
fn a_transaction_takes_as_many_requests_as_in_the_paper() {
    for (r, w, total) in [(1, 0, 1), (4, 0, 8), (4, 2, 14), (1, 1, 6), (3, 3, 14)] {
        let counters = requests_of(r, w);
        let (r, w, f) = (r as u64, w as u64, 2);
        let validated = if (r, w) == (1, 0) { 0 } else { r - w };
        let logged = if w == 0 { 0 } else { f };
        let expected = Counters {
            execute: r,
            validate: validated,
            log: logged,
            commit_backup: w * f,
            commit_primary: w,
            ..Counters::default()
        };
        assert_eq!(counters, expected, "O({r},{w})");
        assert_eq!(r + validated + logged + w * f + w, total, "O({r},{w})");
    }
}

#[test]
fn conflicts_end_as_they_should() {
    let mut cluster = Cluster::new(3, 1);
    let (one, two) = (NodeId(0), NodeId(1));
    assert!(matches!(cluster.write(one, 5, Mode::Insert, b"x"), Some(Event::Committed { .. })));
    // A lock is held: others can neither read nor lock.
    cluster.node(one).begin(0).unwrap();
    cluster.node(one).add_to_write_set(0, TABLE, 5, Mode::Update).unwrap();
    cluster.execute(one).unwrap();
    cluster.node(two).begin(0).unwrap();
    cluster.node(two).add_to_read_set(0, TABLE, 5).unwrap();
    assert_eq!(cluster.execute(two), Err(AbortReason::Locked));
    let now_ns = cluster.now_ns;
    cluster.node(two).abort(now_ns, 0).unwrap();
    cluster.settle();
    assert!(matches!(
        cluster.node(two).poll_event(),
        Some(Event::Aborted { reason: AbortReason::Locked, .. })
    ));
    // An abort leaves the version alone: a reader from before it still validates.
    let now_ns = cluster.now_ns;
    cluster.node(one).abort(now_ns, 0).unwrap();
    cluster.settle();
    assert!(matches!(cluster.node(one).poll_event(), Some(Event::Aborted { .. })));
    for (mode, key, reason) in [
        (Mode::Insert, 5, AbortReason::Exists),
        (Mode::Update, 6, AbortReason::Missing),
        (Mode::Delete, 6, AbortReason::Missing),
    ] {
        cluster.node(two).begin(0).unwrap();
        cluster.node(two).add_to_write_set(0, TABLE, key, mode).unwrap();
        assert_eq!(cluster.execute(two), Err(reason));
        let now_ns = cluster.now_ns;
        cluster.node(two).abort(now_ns, 0).unwrap();
        cluster.settle();
        cluster.node(two).poll_event();
    }
    let locks: usize = cluster.nodes.values().map(|node| node.store().locks()).sum();
    assert_eq!(locks, 0);
}

#[test]
fn an_absent_key_and_a_range_are_validated() {
    for range in [false, true] {
        let mut cluster = Cluster::new(3, 1);
        let (one, two) = (NodeId(0), NodeId(1));
        cluster.node(one).begin(0).unwrap();
        if range {
            cluster.node(one).add_range(0, ORDERED, 0, 20).unwrap();
        } else {
            cluster.node(one).add_to_read_set(0, ORDERED, 9).unwrap();
            cluster.node(one).add_to_read_set(0, ORDERED, 1).unwrap();
        }
        cluster.execute(one).unwrap();
        cluster.node(two).begin(0).unwrap();
        cluster.node(two).add_to_write_set(0, ORDERED, 9, Mode::Insert).unwrap();
        cluster.execute(two).unwrap();
        assert!(matches!(cluster.commit(two), Some(Event::Committed { .. })));
        let end = cluster.commit(one);
        assert!(
            matches!(end, Some(Event::Aborted { reason: AbortReason::Changed, .. })),
            "range {range}: {end:?}"
        );
    }
}

#[test]
fn a_blind_write_does_not_bring_the_old_value_and_a_long_one_fits_into_an_ordered_table_only() {
    let mut cluster = Cluster::new(3, 1);
    let (one, long) = (NodeId(0), vec![7; LONG_VALUE_BYTES_MAX]);
    for (mode, value) in [(Mode::Insert, &long[..]), (Mode::Update, b"short")] {
        let node = cluster.node(one);
        node.begin(0).unwrap();
        node.add_blindly_to_write_set(0, ORDERED, 9, mode).unwrap();
        cluster.execute(one).unwrap();
        assert_eq!(cluster.node(one).worker(0).items()[0].value, None, "{mode:?}");
        let node = cluster.node(one);
        assert_eq!(
            node.set_value(0, ORDERED, 9, &[0; LONG_VALUE_BYTES_MAX + 1]),
            Err(TransactionError::ValueTooLong)
        );
        node.set_value(0, ORDERED, 9, value).unwrap();
        assert!(matches!(cluster.commit(one), Some(Event::Committed { .. })));
        cluster.node(one).begin(0).unwrap();
        cluster.node(one).add_to_read_set(0, ORDERED, 9).unwrap();
        cluster.execute(one).unwrap();
        assert_eq!(cluster.node(one).worker(0).items()[0].value.as_deref(), Some(value));
        assert!(matches!(cluster.commit(one), Some(Event::Committed { .. })));
    }
}

#[test]
fn wrong_verbs_are_refused() {
    let mut cluster = Cluster::new(3, 1);
    let node = cluster.node(NodeId(0));
    assert_eq!(node.add_to_read_set(0, TABLE, 1), Err(TransactionError::WrongPhase));
    node.begin(0).unwrap();
    assert_eq!(node.begin(0), Err(TransactionError::WrongPhase));
    assert_eq!(node.begin(9), Err(TransactionError::WrongPhase));
    assert_eq!(node.add_to_read_set(0, TableId(7), 1), Err(TransactionError::NoSuchTable));
    assert_eq!(node.add_range(0, TABLE, 1, 2), Err(TransactionError::NoSuchTable));
    assert_eq!(node.set_value(0, TABLE, 1, b""), Err(TransactionError::NotInWriteSet));
    assert_eq!(node.set_value(0, TABLE, 1, &[0; VALUE_BYTES_MAX + 1]), Err(TransactionError::ValueTooLong));
    node.add_to_read_set(0, TABLE, 1).unwrap();
    assert_eq!(node.commit(1, 0), Err(TransactionError::WrongPhase));
}

#[test]
fn a_node_survives_any_bytes() {
    let mut rng = Rng::new(5);
    let mut cluster = Cluster::new(3, 1);
    let mut requests = Vec::new();
    cluster.write(NodeId(0), 1, Mode::Insert, b"value");
    // Genuine requests of every phase, and then bent ones.
    for key in 2..40 {
        let node = cluster.node(NodeId(0));
        node.begin(0).unwrap();
        node.add_to_write_set(0, TABLE, key, Mode::Insert).unwrap();
        node.add_range(0, ORDERED, key, key + 9).unwrap();
        node.execute(3, 0).unwrap();
        if let Some(request) = node.poll_request() {
            requests.push(request.bytes.clone());
            let now_ns = cluster.now_ns;
            let reply = cluster.node(request.to).handle_request(now_ns, NodeId(0), &request.bytes).unwrap();
            cluster.node(NodeId(0)).handle_response(now_ns, request.ticket, &reply.bytes);
        }
        cluster.settle();
        cluster.node(NodeId(0)).poll_event();
        cluster.commit(NodeId(0));
    }
    assert!(!requests.is_empty());
    for _ in 0..50_000 {
        let mut bytes = rng.pick(&requests).clone();
        for _ in 0..rng.between(1, 4) {
            let place = rng.below(bytes.len() as u64) as usize;
            bytes[place] = rng.next_u32() as u8;
        }
        let now_ns = cluster.now_ns;
        let to = NodeId(rng.below(3) as u16);
        cluster.node(to).handle_request(now_ns, NodeId(0), &bytes);
        cluster.node(to).handle_response(now_ns, rng.below(500), &bytes);
    }
}
