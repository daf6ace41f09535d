//! A real etcd as the register, which is stopped and started while nodes are lost and come back.

mod common;

use common::{Folder, Process, be_a_node_if_asked, until};
use highwire_store::faults::Etcd as Member;
use highwire_store::{Client, EtcdRegister};
use highwire_txn::{Configuration, ConfigurationService, NodeId};
use std::path::PathBuf;
use std::time::Duration;

const LEASE: &str = "lease_ms = 400";
/// A lease longer than these processes wait for a core.
const CALM: &str = "lease_ms = 5000";

#[test]
fn this_process_is_a_node() {
    be_a_node_if_asked();
}

/// One member of etcd, with its data in a folder that goes with it.
struct Etcd {
    member: Member,
    folder: PathBuf,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.member.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Etcd {
    /// `None`, after printing why, if there is no etcd here.
    fn start(name: &str) -> Option<Etcd> {
        if !Member::is_there() {
            println!("skipped: there is no etcd here; apt-get install etcd-server");
            return None;
        }
        // Process numbers are no names: containers that share the folder may have the same ones.
        let fresh = highwire_store::fresh_name().expect("random numbers");
        let folder = std::env::temp_dir().join(format!("highwire-etcd-{name}-{fresh}"));
        Some(Etcd { member: Member::start(&folder, "127.0.0.1").expect("etcd"), folder })
    }

    fn go(&mut self) {
        self.member.go().expect("etcd");
    }

    fn stop(&mut self) {
        self.member.stop();
    }

    fn register(&self, name: &str) -> EtcdRegister {
        EtcdRegister::open(&format!("{}/{name}", self.member.client())).expect("an address")
    }
}

#[test]
fn a_key_in_etcd_is_a_register() {
    let Some(mut etcd) = Etcd::start("register") else { return };
    let mut register = etcd.register("bank");
    assert!(register.holds().expect("etcd answers").is_none());
    assert!(register.read().is_err());
    let first = Configuration::first(&[NodeId(0), NodeId(1)], &[7, 8], 4, 1);
    assert_eq!(register.begin(&first).expect("the first"), first);
    let second = Configuration { id: 2, ..first.clone() };
    assert_eq!(register.begin(&second).expect("it holds one"), first, "a cluster begins once");
    assert_eq!(register.compare_and_swap(1, 0, second.clone()).expect("it holds one"), second);
    let stale = Configuration { id: 2, revision: 9, ..first.clone() };
    assert_eq!(register.compare_and_swap(1, 0, stale).expect("it holds one"), second);
    assert!(etcd.register("other").holds().expect("etcd answers").is_none(), "names are apart");
    etcd.stop();
    assert!(register.read().is_err());
    etcd.go();
    assert_eq!(register.read().expect("etcd is back"), second);
}

#[test]
fn of_many_that_change_the_key_at_once_one_wins_each_time() {
    const CHANGES: u32 = 30;
    let Some(etcd) = Etcd::start("race") else { return };
    let first = Configuration::first(&[NodeId(0), NodeId(1)], &[7, 8], 4, 1);
    etcd.register("race").begin(&first).expect("the first");
    // Each change adds one and the mark of the node that made it; the end would lack a lost change.
    let made: Vec<u32> = std::thread::scope(|scope| {
        let change = |own: u16| {
            let mut register = etcd.register("race");
            let mut made = 0;
            while made < CHANGES {
                let now = register.read().expect("it holds one");
                let mut new = Configuration { revision: now.revision + 1, ..now.clone() };
                new.leaving.push(NodeId(own));
                let after =
                    register.compare_and_swap(now.id, now.revision, new.clone()).expect("it holds one");
                made += u32::from(after.leaving.starts_with(&new.leaving));
            }
            made
        };
        let threads: Vec<_> = (0..3).map(|own| scope.spawn(move || change(own))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let last = etcd.register("race").read().expect("it holds one");
    assert_eq!(last.revision, made.iter().sum::<u32>(), "each change is one change");
    for own in 0..3 {
        let marks = last.leaving.iter().filter(|mark| mark.0 == own).count();
        assert_eq!(marks as u32, CHANGES);
    }
}

#[test]
fn nodes_serve_without_etcd_and_agree_on_members_when_it_is_back() {
    let Some(mut etcd) = Etcd::start("cluster") else { return };
    let folder = Folder::with_register(3, LEASE, &format!("etcd://{}/bank", etcd.member.client()));
    let mut nodes: Vec<Process> = (0..3).map(|node| Process::start(&folder.file(), node)).collect();
    folder.wait_for(&[0, 1, 2], 3);
    let mut client = folder.client();
    common::put(&mut client, "t", "first", "1");

    // Without etcd everything goes on, except changes of membership.
    etcd.stop();
    for count in 0..20 {
        common::put(&mut client, "t", "second", count.to_string());
    }
    drop(nodes.remove(1));
    // Longer than the nodes would wait for a lost one if etcd answered.
    std::thread::sleep(Duration::from_millis(3000));
    let mut witness = Client::new([folder.config().doors()[0].clone()]);
    let status = until("a status", || witness.status().ok());
    assert_eq!(status.members, [0, 1, 2], "members were changed, and by whom?");

    etcd.go();
    folder.wait_for(&[0, 2], 2);
    common::put(&mut client, "t", "third", "3");
    nodes.insert(1, Process::start(&folder.file(), 1));
    folder.wait_for(&[0, 1, 2], 3);
    for (key, value) in [("first", "1"), ("second", "19"), ("third", "3")] {
        assert_eq!(client.get("t", key).expect("read"), Some(value.into()));
    }
}

#[test]
fn a_node_joins_and_another_leaves_when_etcd_is_back() {
    const ROWS: usize = 300;
    let Some(mut etcd) = Etcd::start("members") else { return };
    let folder = Folder::with_register(3, CALM, &format!("etcd://{}/bank", etcd.member.client()));
    let mut nodes: Vec<Process> = (0..3).map(|node| Process::start(&folder.file(), node)).collect();
    folder.wait_for(&[0, 1, 2], 3);
    let mut client = folder.client();
    for row in 0..ROWS {
        common::put(&mut client, "t", row.to_string(), row.to_string());
    }
    let (file, door) = folder.grown(3, false, "");
    let mut doors = folder.config().doors();
    doors.push(door);
    let of = |node: usize| {
        let mut client = Client::new([doors[node].clone()]);
        client.set_patience(Duration::from_secs(1));
        client
    };
    let members = |node: usize| of(node).status().ok().map(|status| status.members);

    // A node that begins needs the register, and so does a change of members; everything else goes on.
    etcd.stop();
    nodes.push(Process::start(&file, 3));
    assert!(of(3).put("t", "early", "1").is_err(), "it waits for the register");
    common::put(&mut client, "t", "without", "etcd");
    assert_eq!(until("a status", || members(0)), [0, 1, 2]);
    etcd.go();
    common::wait_for_members(&doors, &[0, 1, 2, 3]);

    etcd.stop();
    of(1).leave().expect("it takes note");
    common::put(&mut client, "t", "leaving", "later");
    assert_eq!(until("a status", || members(0)), [0, 1, 2, 3]);
    etcd.go();
    common::wait_for_members(&doors, &[0, 2, 3]);
    let ended = until("the end of a node that has left", || nodes[1].ended());
    assert!(ended.success(), "{ended}");
    for node in [0, 2, 3] {
        let mut client = of(node);
        client.set_patience(common::PATIENCE);
        assert_eq!(client.scan("t", "").expect("scanned").len(), ROWS + 2);
    }
}
