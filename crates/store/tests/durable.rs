//! The level of disks: acknowledged transactions survive when every process is killed at once, and a full
//! disk loses none.

mod common;

use common::{Folder, Process, be_a_node_if_asked, until};
use highwire_store::{Client, Engine, FileRegister, StoreError};
use highwire_txn::{Configuration, NodeId};
use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A lease that is long enough for a process of a busy machine, and still short.
const LEASE: &str = "lease_ms = 400";
const CLIENTS: usize = 3;

#[test]
fn this_process_is_a_node() {
    be_a_node_if_asked();
}

/// Clients that count, each alone and all together, in one transaction.
#[derive(Default)]
struct Counting {
    is_over: AtomicBool,
    acknowledged: [AtomicU64; CLIENTS],
    /// Attempts of unknown outcome.
    unknown: [AtomicU64; CLIENTS],
}

fn number(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| String::from_utf8(value).expect("digits").parse().expect("a number"))
}

fn own(client: usize) -> String {
    format!("client-{client}")
}

impl Counting {
    fn run(&self, folder: &Folder, client: usize) {
        let mut connection = folder.client();
        connection.set_patience(Duration::from_secs(1));
        while !self.is_over.load(Ordering::SeqCst) {
            let result = connection.transact(|transaction| {
                for key in [own(client), "all".into()] {
                    let there = number(transaction.get("counters", &key)?);
                    transaction.put("counters", &key, (there + 1).to_string());
                }
                // So that the journal grows.
                transaction.put("filling", own(client), "x".repeat(2000));
                Ok(())
            });
            match result {
                Ok(()) => drop(self.acknowledged[client].fetch_add(1, Ordering::SeqCst)),
                Err(StoreError::Unknown(_)) => drop(self.unknown[client].fetch_add(1, Ordering::SeqCst)),
                Err(StoreError::Conflict | StoreError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn sum(&self) -> u64 {
        self.acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    #[track_caller]
    fn wait_for(&self, more: u64) {
        let goal = self.sum() + more;
        until("counting", || (self.sum() >= goal).then_some(()));
    }

    /// Lets clients count while `work` runs, and waits for them.
    fn during(&self, folder: &Folder, work: impl FnOnce(&Counting)) {
        self.is_over.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || self.run(folder, client));
            }
            let _guard = StopAtEnd(self);
            work(self);
        });
    }

    /// Asserts that every acknowledged transaction is there, each as a whole, and no other.
    #[track_caller]
    fn check(&self, folder: &Folder) {
        let mut client = folder.client();
        let mut sum = 0;
        for (place, acknowledged) in self.acknowledged.iter().enumerate() {
            let counted = number(client.get("counters", own(place)).expect("read"));
            let acknowledged = acknowledged.load(Ordering::SeqCst);
            let unknown = self.unknown[place].load(Ordering::SeqCst);
            assert!(counted >= acknowledged, "{counted} of {acknowledged} acknowledged ones are there");
            assert!(counted <= acknowledged + unknown, "{counted}, of which {acknowledged} and {unknown}");
            sum += counted;
        }
        assert_eq!(number(client.get("counters", "all").expect("read")), sum, "one was done by half");
    }
}

struct StopAtEnd<'a>(&'a Counting);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

fn start(folder: &Folder) -> Vec<Process> {
    let nodes = (0..3).map(|node| Process::start(&folder.file(), node)).collect();
    folder.wait_for(&[0, 1, 2], 3);
    nodes
}

#[test]
fn what_was_acknowledged_is_there_after_all_nodes_were_killed() {
    let folder = Folder::with_disks(3, LEASE);
    let counting = Counting::default();
    for _ in 0..3 {
        let nodes = start(&folder);
        counting.check(&folder);
        counting.during(&folder, |counting| {
            counting.wait_for(60);
            // SIGKILL for all nodes, while clients count.
            drop(nodes);
        });
    }
    let _nodes = start(&folder);
    counting.check(&folder);
}

#[test]
fn a_node_whose_disk_is_full_says_so_and_nothing_is_lost() {
    let folder = Folder::with_disks(3, LEASE);
    // The node's messages about this go to a file that must not grow either.
    let log = |node| {
        let log =
            OpenOptions::new().create(true).append(true).open(folder.path().join(format!("{node}.txt")));
        let log = log.expect("a file");
        log.set_len(10_000_000).expect("room");
        log
    };
    let mut nodes: Vec<Process> =
        (0..3).map(|node| Process::start_to_be_limited(&folder.file(), node, log(node))).collect();
    folder.wait_for(&[0, 1, 2], 3);
    let counting = Counting::default();
    counting.during(&folder, |counting| {
        counting.wait_for(20);
        let log = folder.path().join("node-1").join("log-00000000000000000000");
        let length = std::fs::metadata(log).expect("a log").len();
        nodes[1].limit_files(length + 50_000);
        let mut client = Client::new([folder.config().doors()[1].clone()]);
        client.set_patience(Duration::from_secs(1));
        let mut before = String::new();
        let standing = until("a full disk", || {
            let status = client.status();
            let said = format!("{status:?}, {} committed", counting.sum());
            let standing = status.map_or_else(|error| error.to_string(), |status| status.standing);
            if standing != before {
                eprintln!("node 1: {said}");
                before.clone_from(&standing);
            }
            standing.contains("File too large").then_some(standing)
        });
        assert!(standing.contains("File too large") && standing.contains("Make room"), "{standing}");
        let refusal = client.put("t", "k", "v").expect_err("it has stopped").to_string();
        assert!(refusal.contains("journal could not be written"), "{refusal}");
        // The other nodes go on without it.
        folder.wait_for(&[0, 2], 2);
        counting.wait_for(20);
    });
    counting.check(&folder);
    // There is room again.
    drop(nodes.remove(1));
    nodes.insert(1, Process::start(&folder.file(), 1));
    folder.wait_for(&[0, 1, 2], 3);
    counting.check(&folder);
}

#[test]
fn a_node_that_was_stopped_for_longer_than_its_lease_comes_back() {
    let folder = Folder::with_disks(3, LEASE);
    let nodes = start(&folder);
    let counting = Counting::default();
    counting.during(&folder, |counting| {
        for _ in 0..3 {
            counting.wait_for(20);
            nodes[1].signal("-STOP");
            folder.wait_for(&[0, 2], 2);
            counting.wait_for(20);
            nodes[1].signal("-CONT");
            folder.wait_for(&[0, 1, 2], 3);
        }
    });
    counting.check(&folder);
}

#[test]
fn a_data_folder_is_refused_where_it_does_not_belong() {
    let folder = Folder::with_disks(3, LEASE);
    let nodes = start(&folder);
    // A node serves before its disk has synced, and promises nothing until then.
    for node in 0..3 {
        let log = folder.path().join(format!("node-{node}")).join("log-00000000000000000000");
        until("a journal", || std::fs::metadata(&log).is_ok_and(|log| log.len() > 0).then_some(()));
    }
    drop(nodes);
    let register = folder.path().join("register");
    let refusal = |node: u16| match Engine::start(&folder.config(), node) {
        Ok(_) => panic!("node {node} started"),
        Err(error) => error.to_string(),
    };
    std::fs::remove_dir_all(&register).expect("removed");
    let error = refusal(0);
    assert!(error.contains("the register holds none"), "{error}");

    let nodes = [NodeId(0), NodeId(1), NodeId(2)];
    let other = Configuration::first(&nodes, &[1, 2, 3], 16, 1);
    FileRegister::open(&register).and_then(|mut register| register.begin(&other)).expect("a register");
    let error = refusal(1);
    assert!(error.contains("they are of two clusters"), "{error}");

    std::fs::rename(folder.path().join("node-2"), folder.path().join("spare")).expect("renamed");
    std::fs::rename(folder.path().join("node-1"), folder.path().join("node-2")).expect("renamed");
    let error = refusal(2);
    assert!(error.contains("is the folder of node 1, not of node 2"), "{error}");
}
