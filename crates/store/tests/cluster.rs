//! Three nodes over real RPCs in one process, and clients at their doors.

mod common;

use common::{Cluster, Folder};
use highwire_store::{Client, Engine, StoreError, VALUE_BYTES_MAX};
use std::time::Duration;

#[test]
fn what_is_put_at_one_node_is_there_at_all_and_gone_when_deleted() {
    let cluster = Cluster::start(3, "");
    let doors = cluster.folder.config().doors();
    let mut clients: Vec<Client> = doors.iter().map(|door| Client::new([door.clone()])).collect();
    let longest = vec![7; VALUE_BYTES_MAX];
    for (key, value) in [("alice", &b"100"[..]), ("", b""), ("long", &longest)] {
        clients[0].put("accounts", key, value).expect("stored");
        for client in &mut clients {
            assert_eq!(client.get("accounts", key), Ok(Some(value.to_vec())));
            assert_eq!(client.get("other", key), Ok(None), "another table is another place");
        }
    }
    assert_eq!(clients[1].delete("accounts", "alice"), Ok(true));
    assert_eq!(clients[2].delete("accounts", "alice"), Ok(false));
    assert_eq!(clients[0].get("accounts", "alice"), Ok(None));
}

#[test]
fn a_scan_gives_a_table_in_order_and_no_other_table() {
    let cluster = Cluster::start(3, "");
    let mut client = cluster.client();
    for key in 0..200 {
        client.put("numbers", format!("{:03}", key * 7 % 200), "n").expect("stored");
    }
    client.put("others", "000", "x").expect("stored");
    let all = client.scan("numbers", "").expect("scanned");
    let keys: Vec<String> =
        all.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect();
    assert_eq!(keys, (0..200).map(|key| format!("{key:03}")).collect::<Vec<_>>());
    assert_eq!(client.scan("numbers", "01").expect("scanned").len(), 10);
    assert_eq!(client.scan("nothing", "").expect("scanned"), []);
    let seen = client.transact(|transaction| {
        transaction.put("numbers", "new", "1");
        transaction.delete("numbers", "000");
        transaction.scan("numbers", "")
    });
    assert_eq!(seen.expect("committed").len(), 200, "a transaction sees its own writes");
}

#[test]
fn increments_of_many_clients_are_all_counted() {
    const CLIENTS: usize = 6;
    const EACH: usize = 30;
    let cluster = Cluster::start(3, "");
    let retries: u64 = std::thread::scope(|scope| {
        let work = || {
            let mut client = cluster.client();
            for _ in 0..EACH {
                let added = client.transact(|transaction| {
                    let value = transaction.get("counters", "hot")?.unwrap_or_default();
                    let number: u64 = String::from_utf8_lossy(&value).parse().unwrap_or(0);
                    transaction.put("counters", "hot", (number + 1).to_string());
                    Ok(())
                });
                added.expect("committed");
            }
            client.counts().retries
        };
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let total = cluster.client().get("counters", "hot").expect("read").expect("it is there");
    assert_eq!(String::from_utf8_lossy(&total), (CLIENTS * EACH).to_string());
    assert!(retries > 0, "nobody was in anybody's way, so this proves nothing");
}

/// Each of two transactions reads the key that the other writes: as they happen one after the other, at least
/// one sees the other's write.
#[test]
fn write_skew_is_impossible_and_a_phantom_as_well() {
    let cluster = Cluster::start(3, "");
    for round in 0..30 {
        let table = format!("duty{round}");
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let (table, mut client) = (table.clone(), cluster.client());
                scope.spawn(move || {
                    let result = client.transact(|transaction| {
                        // A doctor who finds no doctor on duty takes it.
                        if transaction.scan(&table, "")?.is_empty() {
                            transaction.put(&table, name, "here");
                        }
                        Ok(())
                    });
                    result.expect("committed");
                });
            }
        });
        assert_eq!(cluster.client().scan(&table, "").expect("scanned").len(), 1, "round {round}");
    }
}

#[test]
fn an_error_in_a_transaction_leaves_nothing_behind() {
    let cluster = Cluster::start(3, "");
    let mut client = cluster.client();
    let result: Result<(), StoreError> = client.transact(|transaction| {
        transaction.put("t", "a", "1");
        Err(StoreError::Aborted("enough".into()))
    });
    assert_eq!(result, Err(StoreError::Aborted("enough".into())));
    assert_eq!(client.get("t", "a"), Ok(None));
}

#[test]
fn what_cannot_be_stored_is_refused_with_words() {
    let cluster = Cluster::start(2, "rows_max = 4\nregions = 1");
    let mut client = cluster.client();
    let mut check = |table: &str, key: &[u8], value: &[u8], expected: &str| {
        let error = client.put(table, key, value).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("t", b"k", &vec![0; VALUE_BYTES_MAX + 1], "at most 1048576");
    check("t", &[b'k'; 513], b"", "at most 512");
    check("", b"k", b"", "1 to 32 bytes");
    check(&"t".repeat(33), b"k", b"", "1 to 32 bytes");
    let results: Vec<_> = (0..5).map(|key| client.put("t", format!("{key}"), "v")).collect();
    assert_eq!(results[4], Err(StoreError::Full), "{results:?}");
    assert!(results[..4].iter().all(Result::is_ok), "{results:?}");
    assert_eq!(client.put("t", "0", "again"), Ok(()), "a full store still changes what it has");
}

#[test]
fn a_new_cluster_says_which_nodes_it_waits_for() {
    let folder = Folder::new(3, "");
    let config = folder.config();
    let engine = Engine::start(&config, 1).expect("a node");
    let mut client = Client::new([config.doors()[1].clone()]);
    client.set_patience(Duration::from_secs(1));
    common::until("the reason", || {
        let standing = client.status().ok()?.standing;
        standing.contains("missing: 0, 2").then_some(())
    });
    let error = client.put("t", "k", "v").expect_err("it does not serve").to_string();
    assert!(error.contains("missing: 0, 2"), "{error}");
    engine.store().stop();
    engine.join().expect("no panic");
}

#[test]
fn a_node_that_is_none_of_the_cluster_is_refused() {
    let folder = Folder::new(2, "");
    let error = Engine::start(&folder.config(), 5).expect_err("no such node").to_string();
    assert!(error.contains("no node 5") && error.contains("0, 1"), "{error}");
}

#[test]
fn strangers_at_the_door_harm_nobody() {
    use std::io::Write as _;
    let cluster = Cluster::start(1, "f = 0");
    let door = cluster.folder.config().doors()[0].clone();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"hwstore6\xff\xff\xff\xff", b"hwstore3\0\0\0\x04abcd", b""]
    {
        let mut stream = std::net::TcpStream::connect(&door).expect("it listens");
        stream.write_all(bytes).expect("sent");
    }
    let mut client = cluster.client();
    client.put("t", "k", "v").expect("stored");
    assert_eq!(client.get("t", "k"), Ok(Some(b"v".to_vec())));
}
