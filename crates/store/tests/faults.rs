//! Nodes that are processes, and real faults: money moves between accounts while nodes are killed and stopped, and none is lost.

mod common;

use common::{Folder, Process, be_a_node_if_asked, until};
use highwire_store::{Client, StoreError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const ACCOUNTS: u64 = 40;
const BALANCE: i64 = 1000;
const CLIENTS: usize = 4;
/// A lease that is long enough for a process of a busy machine, and still short.
const LEASE: &str = "lease_ms = 400";

#[test]
fn this_process_is_a_node() {
    be_a_node_if_asked();
}

/// Counts of a load's clients.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    committed: AtomicU64,
    unknown: AtomicU64,
}

impl Load {
    /// Makes transfers at random until told to stop, whatever happens to nodes.
    fn run(&self, folder: &Folder, mut random: u64) {
        let mut client = folder.client();
        client.set_patience(Duration::from_secs(5));
        while !self.is_over.load(Ordering::SeqCst) {
            let mut draw = |below: u64| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % below
            };
            let (from, to, amount) = (draw(ACCOUNTS), draw(ACCOUNTS), draw(20) as i64);
            match transfer(&mut client, from, to, amount) {
                Ok(()) => drop(self.committed.fetch_add(1, Ordering::SeqCst)),
                Err(StoreError::Unknown(_)) => drop(self.unknown.fetch_add(1, Ordering::SeqCst)),
                Err(StoreError::Conflict | StoreError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until the clients have committed this many more transfers.
    #[track_caller]
    fn wait_for(&self, more: u64) {
        let goal = self.committed.load(Ordering::SeqCst) + more;
        until("transfers", || (self.committed.load(Ordering::SeqCst) >= goal).then_some(()));
    }
}

fn name(account: u64) -> String {
    format!("account-{account:04}")
}

fn number(value: Option<Vec<u8>>) -> i64 {
    String::from_utf8(value.expect("accounts stay")).expect("digits").parse().expect("a number")
}

fn transfer(client: &mut Client, from: u64, to: u64, amount: i64) -> Result<(), StoreError> {
    client.transact(|transaction| {
        let (from, to) = (name(from), name(to));
        let there = number(transaction.get("bank", &from)?);
        if from != to && there >= amount {
            let other = number(transaction.get("bank", &to)?);
            transaction.put("bank", &from, (there - amount).to_string());
            transaction.put("bank", &to, (other + amount).to_string());
        }
        Ok(())
    })
}

/// The sum of all accounts, the same at every node.
#[track_caller]
fn check_money(folder: &Folder) {
    for door in folder.config().doors() {
        let mut client = Client::new([door]);
        client.set_patience(common::PATIENCE);
        let accounts = client.scan("bank", "").expect("scanned");
        assert_eq!(accounts.len() as u64, ACCOUNTS);
        let sum: i64 = accounts.into_iter().map(|entry| number(Some(entry.value))).sum();
        assert_eq!(sum, ACCOUNTS as i64 * BALANCE, "money was lost or made");
    }
}

#[test]
fn no_money_is_lost_when_nodes_are_killed_and_stopped_and_they_come_back() {
    let folder = Folder::new(3, LEASE);
    let mut nodes: Vec<Process> = (0..3).map(|node| Process::start(&folder.file(), node)).collect();
    folder.wait_for(&[0, 1, 2], 3);
    let mut client = folder.client();
    for account in 0..ACCOUNTS {
        common::put(&mut client, "bank", name(account), BALANCE.to_string());
    }
    let load = Load::default();
    std::thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let (load, folder) = (&load, &folder);
            scope.spawn(move || load.run(folder, seed as u64));
        }
        let _guard = StopAtEnd(&load);
        load.wait_for(50);

        // The node is killed: its memory is gone. The others go on, and its next life is filled again.
        drop(nodes.remove(1));
        load.wait_for(50);
        folder.wait_for(&[0, 2], 2);
        nodes.insert(1, Process::start(&folder.file(), 1));
        folder.wait_for(&[0, 1, 2], 3);
        load.wait_for(50);

        // The node is stopped for longer than a lease: it believes that it is a member, and must not answer
        // as one.
        nodes[0].signal("-STOP");
        load.wait_for(50);
        folder.wait_for(&[1, 2], 2);
        nodes[0].signal("-CONT");
        folder.wait_for(&[0, 1, 2], 3);
        load.wait_for(50);
    });
    assert!(load.committed.load(Ordering::SeqCst) >= 250);
    check_money(&folder);
}

/// A test that fails must not leave its clients running.
struct StopAtEnd<'a>(&'a Load);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_cluster_that_has_lost_too_many_nodes_says_so_and_changes_nothing() {
    let folder = Folder::new(3, LEASE);
    let mut nodes: Vec<Process> = (0..3).map(|node| Process::start(&folder.file(), node)).collect();
    folder.wait_for(&[0, 1, 2], 3);
    folder.client().put("t", "k", "v").expect("stored");
    nodes.truncate(1);
    let mut client = Client::new([folder.config().doors()[0].clone()]);
    client.set_patience(Duration::from_secs(1));
    let error = until("the refusal", || client.put("t", "k", "w").err()).to_string();
    assert!(error.contains("answer") || error.contains("not known"), "{error}");
}
