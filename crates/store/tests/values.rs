//! Values of up to a MiB at three nodes in one process: each is one value, whatever happens at the same time.

mod common;

use common::{Cluster, Folder, Process};
use highwire_store::{Client, StoreError, VALUE_BYTES_MAX, WRITE_BYTES_MAX};
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest value that lies beside its key.
const SHORT: usize = 3509;

/// A lease longer than these threads wait for a core.
const CALM: &str = "lease_ms = 5000\n";

#[test]
fn this_process_is_a_node() {
    common::be_a_node_if_asked();
}

fn value(tag: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| tag ^ (at / 1000) as u8).collect()
}

#[test]
fn values_of_any_length_come_back_at_every_node_and_go() {
    let cluster = Cluster::start(3, CALM);
    let mut clients = cluster.clients();
    let lengths = [0, 1, SHORT, SHORT + 1, 4060, 4061, 65_535, 65_536, 300_000, VALUE_BYTES_MAX];
    // Up, down, and up again: a value takes the place of another of any length.
    let order = lengths.iter().chain(lengths.iter().rev()).chain(&[VALUE_BYTES_MAX, 7, VALUE_BYTES_MAX]);
    for (turn, &bytes) in order.enumerate() {
        let value = value(turn as u8, bytes);
        clients[turn % 3].put("t", "k", &value).expect("stored");
        assert!(clients[(turn + 1) % 3].get("t", "k") == Ok(Some(value.clone())), "{bytes} bytes");
        let all = clients[(turn + 2) % 3].scan("t", "").expect("scanned");
        assert!(all.len() == 1 && all[0].value == value, "{bytes} bytes");
    }
    assert_eq!(clients[0].delete("t", "k"), Ok(true));
    for client in &mut clients {
        assert_eq!(client.get("t", "k"), Ok(None));
        assert_eq!(client.scan("t", ""), Ok(vec![]));
    }
    clients[1].put("t", "k", value(3, 9000)).expect("stored");
    assert!(clients[2].get("t", "k") == Ok(Some(value(3, 9000))), "a key that is put again");
}

/// With room for one row, anything that a value leaves behind fills the store.
#[test]
fn a_value_leaves_nothing_behind_when_it_is_replaced_or_deleted() {
    let cluster = Cluster::start(2, "lease_ms = 5000\nrows_max = 1\nregions = 1");
    let mut client = cluster.client();
    for turn in 0..10 {
        for bytes in [50_000, 3, VALUE_BYTES_MAX, 4000] {
            assert_eq!(client.put("t", "k", value(turn, bytes)), Ok(()), "{bytes} bytes in turn {turn}");
        }
        assert_eq!(client.delete("t", "k"), Ok(true));
    }
    client.put("t", "k", value(1, 5000)).expect("stored");
    assert_eq!(client.put("t", "other", value(1, 5000)), Err(StoreError::Full));
    assert!(client.get("t", "k") == Ok(Some(value(1, 5000))), "a store that is full keeps what it has");
}

/// Writers at all nodes give some keys the same value; its length and all its bytes tell which one.
#[test]
fn a_value_that_is_being_replaced_is_never_seen_as_a_mixture() {
    // Mostly equal, so that a mixture has the length that it should have. The first key's value is always short: it is
    // read before the others' are.
    const LENGTHS: [usize; 5] = [20_000, 20_000, 3000, 20_000, 9000];
    const TURNS: usize = 100;
    const KEYS: [&str; 3] = ["a", "b", "c"];
    let cluster = Cluster::start(3, CALM);
    let is_over = AtomicBool::new(false);
    let length_of = |place: usize, tag: u8| match place {
        0 => 100,
        _ => LENGTHS[usize::from(tag) % LENGTHS.len()],
    };
    let tag_of = |(place, value): (usize, &Vec<u8>)| {
        let tag = *value.first().expect("not empty");
        assert_eq!(value.len(), length_of(place, tag), "the length is another value's");
        assert!(value.iter().all(|&byte| byte == tag), "a mixture of two values");
        tag
    };
    let write = |client: &mut Client, tag: u8| {
        client.transact(|transaction| {
            for (place, key) in KEYS.iter().enumerate() {
                transaction.put("t", key, vec![tag; length_of(place, tag)]);
            }
            Ok(())
        })
    };
    write(&mut cluster.client(), 0).expect("stored");
    let seen: usize = std::thread::scope(|scope| {
        let (is_over, write, tag_of) = (&is_over, &write, &tag_of);
        let writers: Vec<_> = cluster
            .clients()
            .into_iter()
            .enumerate()
            .map(|(number, mut client)| {
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        write(&mut client, (number + 3 * turn) as u8).expect("stored");
                    }
                })
            })
            .collect();
        let readers: Vec<_> = cluster
            .clients()
            .into_iter()
            .enumerate()
            .map(|(number, mut client)| {
                scope.spawn(move || {
                    let mut tags = std::collections::BTreeSet::new();
                    while !is_over.load(Ordering::Relaxed) || tags.is_empty() {
                        // With many questions, with one, and with a scan.
                        let values = match number {
                            0 => client.transact(|transaction| {
                                KEYS.iter().map(|key| transaction.get("t", key)).collect()
                            }),
                            1 => client.transact(|transaction| {
                                transaction.get_all(&KEYS.map(|key| ("t", key.as_bytes())))
                            }),
                            _ => client.scan("t", "").map(|all| {
                                all.into_iter().map(|entry| Some(entry.value)).collect::<Vec<_>>()
                            }),
                        };
                        let values = values.expect("read").into_iter().flatten().collect::<Vec<_>>();
                        assert_eq!(values.len(), KEYS.len());
                        let found: Vec<u8> = values.iter().enumerate().map(tag_of).collect();
                        assert!(
                            found.iter().all(|tag| *tag == found[0]),
                            "two transactions' values: {found:?}"
                        );
                        tags.insert(found[0]);
                    }
                    tags.len()
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("no panic")).sum()
    });
    assert!(seen > 6, "readers saw hardly a change, so this proves little");
}

/// What a client read of a long value must be as it was when its transaction commits.
#[test]
fn changes_of_long_values_by_many_clients_are_all_there() {
    const EACH: usize = 8;
    let cluster = Cluster::start(3, CALM);
    cluster.client().put("t", "k", vec![b'.'; 20_000]).expect("stored");
    std::thread::scope(|scope| {
        for (number, mut client) in cluster.clients().into_iter().enumerate() {
            scope.spawn(move || {
                for turn in 0..EACH {
                    let changed = client.transact(|transaction| {
                        let mut value = transaction.get("t", "k")?.expect("it is there");
                        // The length stays: only the bytes tell.
                        let at = 700 * (number * EACH + turn);
                        value[at] = b'x';
                        transaction.put("t", "k", &value);
                        Ok(())
                    });
                    changed.expect("committed");
                }
            });
        }
    });
    let value = cluster.client().get("t", "k").expect("read").expect("it is there");
    assert_eq!(value.iter().filter(|&&byte| byte == b'x').count(), 3 * EACH, "a change is lost");
}

#[test]
fn what_is_too_long_is_refused_with_words_and_changes_nothing() {
    let cluster = Cluster::start(2, CALM);
    let mut client = cluster.client();
    let error = client.put("t", "k", vec![0; VALUE_BYTES_MAX + 1]).expect_err("too long").to_string();
    assert_eq!(error, "the value has 1048577 bytes; at most 1048576 are possible");
    let mut write = |keys: usize| {
        client.transact(|transaction| {
            for key in 0..keys {
                transaction.put("t", format!("{key:02}"), vec![0; VALUE_BYTES_MAX]);
            }
            Ok(())
        })
    };
    let error = write(9).expect_err("too much").to_string();
    assert!(
        error.contains("the transaction writes") && error.contains(&WRITE_BYTES_MAX.to_string()),
        "{error}"
    );
    // Their keys make eight of the longest too many.
    assert!(write(8).is_err());
    write(7).expect("stored");
    assert_eq!(client.scan("t", "").expect("scanned").len(), 7);
    for more in 1..6 {
        let put = client.transact(|transaction| {
            for key in 0..7 {
                transaction.put("t", format!("{}", 10 * more + key), vec![0; VALUE_BYTES_MAX]);
            }
            Ok(())
        });
        put.expect("stored");
    }
    let error = client.scan("t", "").expect_err("42 MiB are too much").to_string();
    // More than a transaction reads; or, where a slow machine made the node read a snapshot instead, more than an answer has.
    assert!(
        error.contains("which is not possible") && (error.contains("33554432") || error.contains("41943040")),
        "{error}"
    );
    assert_eq!(client.scan("t", "1").expect("scanned").len(), 7, "a part is not");
    assert_eq!(client.get("t", "k"), Ok(None));
}

/// Records of a recovery that are longer together than any message, copies for a new replica, and journals.
#[test]
fn long_values_outlive_nodes_and_restarts() {
    let folder = Folder::with_disks(3, "lease_ms = 2000\n");
    let file = folder.file();
    let start = |node: usize| Process::start(&file, node);
    let mut processes: Vec<Process> = (0..3).map(start).collect();
    folder.wait_for(&[0, 1, 2], 3);
    // All workers for long records of nodes 0 and 1 have one of several MiB in their slots.
    let put = |round: u8| {
        std::thread::scope(|scope| {
            for number in 0..4u8 {
                let mut client = Client::new([folder.config().doors()[usize::from(number % 2)].clone()]);
                client.set_patience(common::PATIENCE);
                scope.spawn(move || {
                    let mut put = || {
                        client.transact(|transaction| {
                            for key in 0..5u8 {
                                let bytes = VALUE_BYTES_MAX - 1000 * usize::from(key);
                                transaction.put("t", [number, key], value(round ^ number ^ key, bytes));
                            }
                            Ok(())
                        })
                    };
                    // On a busy machine the disks may take longer than a node waits.
                    common::until("a commit", || put().ok());
                });
            }
        });
    };
    let check = |round: u8| {
        let mut client = folder.client();
        for (number, key) in (0..4u8).flat_map(|number| (0..5u8).map(move |key| (number, key))) {
            let found = client.get("t", [number, key]).expect("read");
            let bytes = VALUE_BYTES_MAX - 1000 * usize::from(key);
            assert!(found == Some(value(round ^ number ^ key, bytes)), "key {number} {key} in round {round}");
        }
    };
    put(1);
    put(2);
    drop(processes.pop());
    folder.wait_for(&[0, 1], 2);
    check(2);
    put(3);
    processes.push(start(2));
    folder.wait_for(&[0, 1, 2], 3);
    check(3);
    // All at once.
    processes.clear();
    let _processes: Vec<Process> = (0..3).map(start).collect();
    folder.wait_for(&[0, 1, 2], 3);
    check(3);
}
