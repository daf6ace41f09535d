//! Nodes that join and leave a running cluster, under load, and are killed in the middle of it.

mod common;

use common::bank::Bank;
use common::{Folder, PATIENCE, Process, be_a_node_if_asked, until};
use highwire_store::{Client, ClusterConfig, Engine, StoreError};
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A lease that is long enough for a process of a busy machine, and still short.
const LEASE: &str = "lease_ms = 400";
const ROWS: usize = 4000;

#[test]
fn this_process_is_a_node() {
    be_a_node_if_asked();
}

/// A running cluster of nodes 0, 1 and 2, whose file knows no others, with a bank in it; and files that know a node 3 or a node 4 as well.
struct Town {
    folder: Folder,
    grown: [PathBuf; 2],
    /// Of all five nodes.
    doors: Vec<String>,
    nodes: Vec<Option<Process>>,
    bank: Bank,
}

impl Town {
    fn found(has_disks: bool) -> Town {
        let folder = if has_disks { Folder::with_disks(3, LEASE) } else { Folder::new(3, LEASE) };
        let (third, door) = folder.grown(3, has_disks, "");
        let (fourth, other_door) = folder.grown(4, has_disks, "");
        let mut doors = folder.config().doors();
        doors.extend([door, other_door]);
        let grown = [third, fourth];
        let mut town = Town { folder, grown, doors, nodes: Vec::new(), bank: Bank::default() };
        for node in 0..3 {
            town.start(node);
        }
        town.folder.wait_for(&[0, 1, 2], 3);
        let mut client = town.folder.client();
        town.bank = Bank::open(&mut client);
        Bank::fill(&mut client, ROWS);
        town
    }

    fn start(&mut self, node: usize) {
        let file = if node >= 3 { self.grown[node - 3].clone() } else { self.folder.file() };
        self.nodes.resize_with(5, || None);
        // A node that is killed frees its door before the next one takes it.
        self.nodes[node] = None;
        self.nodes[node] = Some(Process::start(&file, node));
    }

    fn kill(&mut self, node: usize) {
        self.nodes[node] = None;
    }

    fn client(&self, node: usize) -> Client {
        let mut client = Client::new([self.doors[node].clone()]);
        client.set_patience(Duration::from_secs(1));
        client
    }

    /// Waits until these nodes, and no others, are members, serve, and have all copies.
    #[track_caller]
    fn wait_for(&self, members: &[u16]) {
        common::wait_for_members(&self.doors, members);
    }

    /// Waits until a node is a member and has no copy complete yet, or not all.
    #[track_caller]
    fn wait_until_it_is_filled_halfway(&self, node: u16) {
        until("a node that is being filled", || {
            let status = self.client(0).status().ok()?;
            (status.members.contains(&node) && !status.is_settled).then_some(())
        });
    }

    #[track_caller]
    fn remove(&self, node: u16) {
        self.client(usize::from(node)).leave().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Asserts that nothing is lost, as every one of these nodes sees it.
    #[track_caller]
    fn check(&self, members: &[u16]) {
        let doors: Vec<String> = members.iter().map(|&node| self.doors[usize::from(node)].clone()).collect();
        self.bank.check_all(&doors);
        for door in doors {
            let mut client = Client::new([door]);
            client.set_patience(PATIENCE);
            assert_eq!(client.scan("filling", "").expect("scanned").len(), ROWS);
        }
    }

    /// Runs `work` while the bank's clients, who know nodes 0, 1 and 2, are at work.
    fn during(&mut self, work: impl FnOnce(&mut Town, &Bank)) {
        let bank = std::mem::take(&mut self.bank);
        let doors = self.folder.config().doors();
        bank.during(&doors, |bank| work(self, bank));
        self.bank = bank;
    }
}

fn join_and_leave(has_disks: bool) {
    let mut town = Town::found(has_disks);
    town.during(|town, bank| {
        bank.wait_for(30);
        town.start(3);
        town.wait_for(&[0, 1, 2, 3]);
        bank.wait_for(30);
        let status = town.client(3).status().expect("it serves");
        assert!(status.copy_of > 0, "the node that joined has nothing");
        town.remove(1);
        town.wait_for(&[0, 2, 3]);
        bank.wait_for(30);
        let ended = until("the end of a node that has left", || town.nodes[1].as_mut()?.ended());
        assert!(ended.success(), "{ended}");
    });
    town.check(&[0, 2, 3]);
    // The number is free: a node that has left may come again. Nodes 3 and 4 hear of each other from the others only.
    town.start(1);
    town.start(4);
    town.wait_for(&[0, 1, 2, 3, 4]);
    town.check(&[0, 1, 2, 3, 4]);
}

#[test]
fn a_node_joins_and_another_leaves_under_load() {
    join_and_leave(false);
}

#[test]
fn a_node_with_a_disk_joins_and_another_leaves_under_load() {
    join_and_leave(true);
}

#[test]
fn nothing_is_lost_when_the_node_that_joins_is_killed_and_then_a_node_that_fills_it() {
    let mut town = Town::found(false);
    town.during(|town, bank| {
        bank.wait_for(30);
        town.start(3);
        town.wait_until_it_is_filled_halfway(3);
        town.kill(3);
        town.wait_for(&[0, 1, 2]);
        bank.wait_for(30);

        town.start(3);
        town.wait_until_it_is_filled_halfway(3);
        town.kill(2);
        town.wait_for(&[0, 1, 3]);
        bank.wait_for(30);
        // Its file knows no node 3: the others tell it.
        town.start(2);
        town.wait_for(&[0, 1, 2, 3]);
        bank.wait_for(30);
    });
    town.check(&[0, 1, 2, 3]);
}

#[test]
fn a_cluster_that_has_grown_comes_back_after_all_its_nodes_were_killed() {
    let mut town = Town::found(true);
    town.start(3);
    town.wait_for(&[0, 1, 2, 3]);
    town.during(|town, bank| {
        bank.wait_for(30);
        (0..4).for_each(|node| town.kill(node));
    });
    (0..4).for_each(|node| town.start(node));
    town.wait_for(&[0, 1, 2, 3]);
    town.check(&[0, 1, 2, 3]);
}

#[test]
fn nothing_is_lost_when_the_node_that_leaves_is_killed_and_it_can_be_started_again() {
    let mut town = Town::found(true);
    town.start(3);
    town.wait_for(&[0, 1, 2, 3]);
    town.during(|town, bank| {
        bank.wait_for(30);
        town.remove(0);
        until("a node that leaves", || town.client(2).status().ok()?.leaving.contains(&0).then_some(()));
        town.kill(0);
        town.wait_for(&[1, 2, 3]);
        bank.wait_for(30);
        // If its disk knows that it was to leave, it has left, and ends; after that it is a node like any other.
        town.start(0);
        until("a node that is a member again", || {
            if town.nodes[0].as_mut().is_some_and(|node| node.ended().is_some()) {
                town.start(0);
            }
            let status = town.client(0).status().ok()?;
            (status.is_open && status.members == [0, 1, 2, 3]).then_some(())
        });
        town.wait_for(&[0, 1, 2, 3]);
    });
    town.check(&[0, 1, 2, 3]);
}

#[test]
fn what_cannot_be_is_refused_in_words_and_changes_nothing() {
    let town = Town::found(false);
    let refusal = |node: usize| town.client(node).leave();
    town.remove(2);
    town.wait_for(&[0, 1]);
    let error = refusal(1).expect_err("f + 1 copies need two nodes").to_string();
    assert!(error.contains("f = 1 needs 2 nodes"), "{error}");
    town.wait_for(&[0, 1]);

    // The number of a node that runs, at another door.
    let (taken, _) = town.folder.grown(1, false, "");
    let error = joined(&taken, 1);
    assert!(error.contains("the number 1 is taken by the node at"), "{error}");
    // Settings that nodes must share.
    let (other, _) = town.folder.grown(5, false, "regions = 8");
    let error = joined(&other, 5);
    assert!(error.contains("`regions` is 8 here and 16 at node"), "{error}");
    let (disk, _) = town.folder.grown(6, true, "");
    let error = joined(&disk, 6);
    assert!(error.contains("node 6 has a `data` folder and node"), "{error}");
    town.wait_for(&[0, 1]);
    town.check(&[0, 1]);
}

/// Why a node could not join.
#[track_caller]
fn joined(file: &Path, node: u16) -> String {
    let config = ClusterConfig::load(file).expect("a cluster file");
    let engine = match Engine::start(&config, node) {
        Ok(engine) => engine,
        Err(error) => return error.to_string(),
    };
    engine.join().expect_err("it is refused").to_string()
}

#[test]
fn a_node_that_is_no_member_cannot_be_removed() {
    let folder = Folder::new(2, LEASE);
    let _nodes: Vec<Process> = (0..1).map(|node| Process::start(&folder.file(), node)).collect();
    let mut client = Client::new([folder.config().doors()[0].clone()]);
    let error = until("a refusal", || client.leave().err());
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}

/// A door that takes the first client's greeting and first question, and ends the connection without an answer.
fn broken_door() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let door = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        // The greeting and the length of the question.
        client.read_exact(&mut [0; 12]).expect("the client asks");
    });
    door
}

#[test]
fn a_node_whose_connection_breaks_is_not_replaced_by_another_that_stops_or_leaves() {
    let folder = Folder::new(3, LEASE);
    let _nodes: Vec<Process> = (0..3).map(|node| Process::start(&folder.file(), node)).collect();
    folder.wait_for(&[0, 1, 2], 3);
    for told in [Client::stop_node, Client::leave] {
        let doors = [broken_door()].into_iter().chain(folder.config().doors());
        let error = told(&mut Client::new(doors)).expect_err("the connection breaks");
        assert!(matches!(error, StoreError::Unknown(_)), "{error}");
        assert!(error.to_string().contains("the connection was lost"), "{error}");
    }
    folder.wait_for(&[0, 1, 2], 3);
}
