//! Backups that are taken while clients write and nodes are lost, and what restores make of them.

mod common;

use common::bank::Bank;
use common::{Cluster, Folder, Process, be_a_node_if_asked, free_address};
use highwire_store::{
    BackupFileError, Client, RestoreError, RestoreOptions, StoreError, back_up, check_backup, restore,
};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A lease that is long enough for a process of a busy machine, and still short.
const LEASE: &str = "lease_ms = 400";
const KEEP: RestoreOptions = RestoreOptions { replace: false };
const REPLACE: RestoreOptions = RestoreOptions { replace: true };

#[test]
fn this_process_is_a_node() {
    be_a_node_if_asked();
}

fn start(folder: &Folder, nodes: usize) -> Vec<Process> {
    let processes = (0..nodes).map(|node| Process::start(&folder.file(), node)).collect();
    folder.wait_for(&(0..nodes).collect::<Vec<_>>(), nodes);
    processes
}

#[track_caller]
fn take(client: &mut Client, path: &Path) -> highwire_store::Backup {
    back_up(client, path, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"))
}

/// Restores a file into a new cluster of one node.
#[track_caller]
fn restored(path: &Path) -> (Cluster, Client) {
    let other = Cluster::start(1, "f = 0");
    let mut client = other.client();
    restore(&mut client, path, KEEP, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    (other, client)
}

fn back_up_under_load(folder: &Folder, nodes: usize) {
    let _nodes = start(folder, nodes);
    let mut client = folder.client();
    let bank = Bank::open(&mut client);
    Bank::fill(&mut client, 1500);
    let files: Vec<PathBuf> = (0..4).map(|file| folder.path().join(format!("{file}.backup"))).collect();
    let bounds = bank.during(&folder.config().doors(), |bank| {
        let mut bounds = Vec::new();
        for file in &files {
            bank.wait_for(30);
            let least = bank.acknowledged();
            take(&mut client, file);
            bounds.push((least, bank.possible()));
        }
        // No node stays frozen.
        bank.wait_for(30);
        bounds
    });
    for (file, (least, most)) in files.iter().zip(bounds) {
        let (_other, mut client) = restored(file);
        Bank::check(&mut client, least, most);
        assert_eq!(client.scan("filling", "").expect("scanned").len(), 1500);
    }
    bank.check_all(&folder.config().doors());
}

#[test]
fn backups_under_load_are_of_one_instant_each() {
    back_up_under_load(&Folder::new(3, LEASE), 3);
}

#[test]
fn backups_of_nodes_with_disks_are_of_one_instant_each() {
    back_up_under_load(&Folder::with_disks(3, LEASE), 3);
}

#[test]
fn backups_of_a_single_node_are_of_one_instant_each() {
    back_up_under_load(&Folder::with_disks(1, &format!("f = 0\n{LEASE}")), 1);
}

#[test]
fn a_backup_begins_anew_when_a_node_is_killed_in_its_middle() {
    let folder = Folder::new(3, LEASE);
    let mut nodes = start(&folder, 3);
    let mut client = folder.client();
    let bank = Bank::open(&mut client);
    Bank::fill(&mut client, 1500);
    let path = folder.path().join("bank.backup");
    let (least, most) = bank.during(&folder.config().doors(), |bank| {
        bank.wait_for(30);
        let least = bank.acknowledged();
        let kill = |_, _| nodes.truncate(2);
        let mut kill = kill;
        let taken = back_up(&mut client, &path, &mut kill).unwrap_or_else(|error| panic!("{error}"));
        assert!(taken.attempts_lost > 0, "the loss of a member did not end the attempt");
        (least, bank.possible())
    });
    let (_other, mut client) = restored(&path);
    Bank::check(&mut client, least, most);
    assert_eq!(client.scan("filling", "").expect("scanned").len(), 1500);
    let drafts = std::fs::read_dir(folder.path()).expect("a folder");
    let drafts = drafts.filter(|file| {
        file.as_ref().is_ok_and(|file| file.file_name().to_string_lossy().contains("backup.draft"))
    });
    assert_eq!(drafts.count(), 0, "a draft stays behind");
}

#[test]
fn a_restore_that_is_broken_off_goes_on_where_it_was() {
    let source = Cluster::start(1, "f = 0");
    let mut client = source.client();
    let bank = Bank::open(&mut client);
    Bank::fill(&mut client, 1500);
    let path = source.folder.path().join("bank.backup");
    let blocks = take(&mut client, &path).contents.blocks;
    let other = source.folder.path().join("other.backup");
    common::put(&mut client, "bank", "more", "1");
    take(&mut client, &other);

    let folder = Folder::with_disks(3, LEASE);
    let mut nodes = start(&folder, 3);
    let mut client = folder.client();
    client.set_patience(Duration::from_secs(1));
    let mut kill = |done, all| {
        if done >= all / 2 {
            nodes.clear();
        }
    };
    let error = restore(&mut client, &path, KEEP, &mut kill).expect_err("all nodes are gone");
    assert!(matches!(error, RestoreError::Store(_)), "{error}");
    let _nodes = start(&folder, 3);
    let mut client = folder.client();
    let error = restore(&mut client, &other, REPLACE, &mut |_, _| {}).expect_err("another file");
    assert!(matches!(error, RestoreError::Another { .. }), "{error}");
    let error = back_up(&mut client, &folder.path().join("half"), &mut |_, _| {}).expect_err("half a store");
    assert!(error.to_string().contains("finish it first"), "{error}");
    let (contents, before) =
        restore(&mut client, &path, KEEP, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!((blocks / 2..blocks).contains(&before), "{before} of {blocks} blocks were there");
    assert_eq!(contents.blocks, blocks);
    Bank::check(&mut client, bank.acknowledged(), bank.possible());
    assert_eq!(client.scan("filling", "").expect("scanned").len(), 1500);
    assert_eq!(client.scan("highwire.restore", "").expect("scanned").len(), 0, "the note stays behind");
}

#[test]
fn tables_that_are_not_empty_stay_as_they_are_unless_they_shall_be_replaced() {
    let cluster = Cluster::start(3, LEASE);
    let mut client = cluster.client();
    for row in 0..700 {
        common::put(&mut client, "rows", format!("{row}"), "old");
    }
    let path = cluster.folder.path().join("rows.backup");
    assert_eq!(take(&mut client, &path).contents.entries(), 700);
    for row in 300..1200 {
        common::put(&mut client, "rows", format!("{row}"), "new");
    }
    common::put(&mut client, "others", "k", "v");
    let error = restore(&mut client, &path, KEEP, &mut |_, _| {}).expect_err("there are rows");
    assert!(matches!(&error, RestoreError::NotEmpty(tables) if tables == &["rows"]), "{error}");
    let new = |client: &mut Client| {
        let rows = client.scan("rows", "").expect("scanned");
        (rows.len(), rows.iter().filter(|entry| entry.value == b"new").count())
    };
    assert_eq!(new(&mut client), (1200, 900));

    let whole = std::fs::read(&path).expect("a file");
    let mut bent = whole.clone();
    bent[whole.len() / 2] ^= 4;
    std::fs::write(&path, &bent).expect("written");
    let error = restore(&mut client, &path, REPLACE, &mut |_, _| {}).expect_err("it is damaged");
    assert!(matches!(error, RestoreError::File(BackupFileError::Damaged(..))), "{error}");
    std::fs::write(&path, &whole[..whole.len() - 1]).expect("written");
    let error = restore(&mut client, &path, REPLACE, &mut |_, _| {}).expect_err("it is cut");
    assert!(matches!(error, RestoreError::File(BackupFileError::Truncated(..))), "{error}");
    assert_eq!(new(&mut client), (1200, 900));

    std::fs::write(&path, &whole).expect("written");
    restore(&mut client, &path, REPLACE, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(new(&mut client), (700, 0));
    assert_eq!(client.get("others", "k"), Ok(Some(b"v".to_vec())));
}

#[test]
fn long_values_and_ordered_tables_are_of_the_same_instant_and_come_back() {
    let cluster = Cluster::start(3, LEASE);
    let mut client = cluster.client();
    let value = |turn: usize| vec![turn as u8; 60_000 + turn];
    let put = |client: &mut Client, turn: usize| {
        for key in 0..6 {
            common::put(client, "long", format!("{key}"), value(turn));
            common::put(client, "ordered.events", format!("{key}-{turn}"), turn.to_string());
        }
    };
    put(&mut client, 1);
    let path = cluster.folder.path().join("long.backup");
    // All values are replaced, and entries added, before the first page is read and between pages.
    let mut turn = 1;
    let mut change = |_, _| {
        turn += 1;
        put(&mut client, turn);
    };
    let taken = back_up(&mut cluster.client(), &path, &mut change).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(taken.contents.entries(), 12);
    let (_other, mut client) = restored(&path);
    let long = client.scan("long", "").expect("scanned");
    assert!(long.len() == 6 && long.iter().all(|entry| entry.value == value(1)));
    let events = client.scan("ordered.events", "").expect("scanned");
    let keys: Vec<_> = events.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect();
    assert_eq!(keys, ["0-1", "1-1", "2-1", "3-1", "4-1", "5-1"]);
    // Replacing takes long values and the order away as well.
    common::put(&mut client, "ordered.events", "9-9", "more");
    restore(&mut client, &path, REPLACE, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(client.scan("ordered.events", "").expect("scanned").len(), 6);
}

#[test]
fn hashes_of_the_redis_door_are_in_a_backup_too_and_an_empty_store_has_one() {
    let cluster = Cluster::start(1, "f = 0");
    let path = cluster.folder.path().join("redis.backup");
    assert_eq!(take(&mut cluster.client(), &path).contents.entries(), 0);
    assert_eq!(check_backup(&path).expect("whole").blocks, 0);
    assert_eq!(redis(&cluster, "HSET h field value\r\n"), ":1\r\n");
    assert_eq!(redis(&cluster, "SET s text\r\n"), "+OK\r\n");
    assert_eq!(take(&mut cluster.client(), &path).contents.entries(), 2);
    let (other, _) = restored(&path);
    assert_eq!(redis(&other, "HGET h field\r\n"), "$5\r\nvalue\r\n");
    assert_eq!(redis(&other, "GET s\r\n"), "$4\r\ntext\r\n");
    let error = restore(&mut other.client(), &path, KEEP, &mut |_, _| {}).expect_err("a hash is an entry");
    assert!(matches!(error, RestoreError::NotEmpty(_)), "{error}");
}

/// The answer to a command at a Redis door of its own.
fn redis(cluster: &Cluster, command: &str) -> String {
    let port = free_address();
    cluster.engine(0).store().open_resp(&port).expect("a door");
    let mut stream = std::net::TcpStream::connect(port).expect("the door is open");
    stream.write_all(command.as_bytes()).expect("written");
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[test]
fn of_two_backups_at_once_one_waits_and_a_client_that_goes_leaves_nothing_frozen() {
    let cluster = Cluster::start(3, LEASE);
    let mut client = cluster.client();
    for row in 0..300 {
        common::put(&mut client, "rows", format!("{row}"), "x");
    }
    let [first, second] = ["first", "second"].map(|name| cluster.folder.path().join(name));
    let mut impatient = cluster.client();
    impatient.set_patience(Duration::ZERO);
    let mut meanwhile = |_, _| {
        let error = back_up(&mut impatient, &second, &mut |_, _| {}).expect_err("one is under way");
        assert!(error.to_string().contains("another backup is under way"), "{error}");
        common::put(&mut client, "rows", "meanwhile", "x");
    };
    let mut other = cluster.client();
    let taken = back_up(&mut other, &first, &mut meanwhile).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(taken.contents.entries(), 300);
    // The first one has ended with its conversations, on all nodes.
    assert_eq!(take(&mut other, &second).contents.entries(), 301);
    let error = Client::new(["127.0.0.1:1"]).get("t", "k").expect_err("no door");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}
