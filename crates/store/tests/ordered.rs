//! Ordered tables at three nodes in one process: ranges against a model, and phantoms that do not happen.

mod common;

use common::Cluster;
use highwire_stdx::Rng;
use highwire_store::{Client, Entry, StoreError};
use std::collections::BTreeMap;

const TABLE: &str = "ordered.t";
/// A lease longer than these threads wait for a core.
const CALM: &str = "lease_ms = 5000\n";

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn of_model(model: &Model, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<Entry> {
    let ours = model.range(from.to_vec()..).take_while(|(key, _)| to.is_none_or(|to| key.as_slice() < to));
    ours.take(limit).map(|(key, value)| Entry { key: key.clone(), value: value.clone() }).collect()
}

/// Keys that begin alike, are prefixes of each other, have all kinds of bytes, and are as long as can be.
fn key(rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0..4 => format!("customer:{:04}", rng.below(400)).into_bytes(),
        4..6 => (0..rng.below(6)).map(|_| *rng.pick(b"\0a\xff")).collect(),
        _ => [vec![b'k'; 511], vec![rng.below(40) as u8]].concat(),
    }
}

type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn changes(rng: &mut Rng, most: u64) -> Changes {
    let mut change = |_| {
        let bytes = rng.below(5000) as usize;
        let value = rng.chance(0.7).then(|| vec![bytes as u8; if bytes > 4500 { bytes } else { bytes % 50 }]);
        (key(rng), value)
    };
    (0..1 + most).map(&mut change).collect()
}

fn apply(model: &mut Model, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

/// Makes changes and reads a range, in one transaction.
fn change(
    client: &mut Client,
    table: &str,
    changes: &Changes,
    (from, to, limit): (&[u8], Option<&[u8]>, usize),
) -> Vec<Entry> {
    let found = client.transact(|transaction| {
        for (key, value) in changes {
            match value {
                Some(value) => transaction.put(table, key, value),
                None => transaction.delete(table, key),
            }
        }
        transaction.range(table, from, to, limit)
    });
    found.expect("committed")
}

#[test]
fn ranges_are_those_of_a_model() {
    let cluster = Cluster::start(3, CALM);
    let mut clients = cluster.clients();
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let (table, mut model) = (format!("ordered.{seed}"), Model::new());
        for turn in 0..60 {
            let client = &mut clients[turn % 3];
            let what = format!("seed {seed}, turn {turn}");
            let (from, to) = (key(&mut rng), rng.chance(0.6).then(|| key(&mut rng)));
            let limit = if rng.chance(0.5) { rng.below(30) as usize } else { usize::MAX };
            match rng.below(10) {
                // Nearly all keys go: so do the tree's nodes.
                0 => {
                    let gone = model.keys().skip(1).map(|key| (key.clone(), None)).collect();
                    change(client, &table, &gone, (b"", None, 0));
                    apply(&mut model, &gone);
                }
                1 => {
                    let prefix = &from[..from.len().min(3)];
                    let mut expected = of_model(&model, prefix, None, usize::MAX);
                    expected.retain(|entry| entry.key.starts_with(prefix));
                    assert!(client.scan(&table, prefix) == Ok(expected), "{what}");
                }
                2..5 => {
                    let found = client.range(&table, &from, to.as_deref(), limit);
                    assert!(found == Ok(of_model(&model, &from, to.as_deref(), limit)), "{what}");
                }
                _ => {
                    let most = rng.below(60);
                    let changes = changes(&mut rng, most);
                    apply(&mut model, &changes);
                    let found = change(client, &table, &changes, (&from, to.as_deref(), limit));
                    assert!(found == of_model(&model, &from, to.as_deref(), limit), "{what}");
                }
            }
        }
        let all = clients[0].range(&table, "", None, usize::MAX).expect("read");
        assert!(all == of_model(&model, b"", None, usize::MAX), "seed {seed}");
        for (key, value) in model {
            assert!(clients[1].get(&table, key) == Ok(Some(value)), "seed {seed}");
        }
    }
}

/// Each of two transactions looks for the next free place of a range and takes it: if a phantom were
/// possible, two would take the same, or one that is not the next.
#[test]
fn a_phantom_in_a_range_is_impossible() {
    const EACH: usize = 12;
    let cluster = Cluster::start(3, CALM);
    // Enough keys around them for several leaves.
    for key in 0..3 {
        let around = cluster.client().transact(|transaction| {
            for place in 0..100 {
                transaction.put(TABLE, format!("{}{place:050}", 2 * key), "around");
            }
            Ok(())
        });
        around.expect("stored");
    }
    let retries: u64 = std::thread::scope(|scope| {
        let work = |(number, mut client): (usize, Client)| {
            scope.spawn(move || {
                for _ in 0..EACH {
                    let taken = client.transact(|transaction| {
                        let there = transaction.range(TABLE, "1", Some(b"2"), usize::MAX)?;
                        transaction.put(TABLE, format!("1{:050}", there.len()), number.to_string());
                        Ok(())
                    });
                    taken.expect("committed");
                }
                client.counts().retries
            })
        };
        let threads: Vec<_> = cluster.clients().into_iter().enumerate().map(work).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let all = cluster.client().range(TABLE, "1", Some(b"2"), usize::MAX).expect("read");
    let keys: Vec<Vec<u8>> = all.into_iter().map(|entry| entry.key).collect();
    let expected: Vec<Vec<u8>> = (0..3 * EACH).map(|place| format!("1{place:050}").into_bytes()).collect();
    assert_eq!(keys, expected, "two transactions saw the same range");
    assert!(retries > 0, "nobody was in anybody's way, so this proves nothing");
    // A limit ends the range, and what is behind it may change.
    let mut client = cluster.client();
    let first = client.transact(|transaction| {
        let first = transaction.range(TABLE, "1", None, 1)?;
        cluster.client().put(TABLE, "5", "far behind")?;
        transaction.put("t", "k", &first[0].key);
        Ok(first)
    });
    assert_eq!(first.expect("committed")[0].key, expected[0]);
    assert_eq!(client.counts().retries, 0, "a key behind the range was in its way");
}

#[test]
fn a_queue_of_many_clients_gives_everything_once_and_in_order() {
    const EACH: usize = 15;
    let cluster = Cluster::start(3, CALM);
    let taken: Vec<Vec<String>> = std::thread::scope(|scope| {
        for (number, mut client) in cluster.clients().into_iter().enumerate() {
            scope.spawn(move || {
                for turn in 0..EACH {
                    let put = client.transact(|transaction| {
                        transaction.put(TABLE, format!("{turn:04}-{number}"), vec![7; 5000]);
                        Ok(())
                    });
                    put.expect("committed");
                }
            });
        }
        let takers: Vec<_> = cluster
            .clients()
            .into_iter()
            .map(|mut client| {
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    while taken.len() < EACH {
                        let first = client.transact(|transaction| {
                            let mut first = transaction.range(TABLE, "", None, 1)?;
                            let Some(Entry { key, value }) = first.pop() else { return Ok(None) };
                            assert!(value == vec![7; 5000]);
                            transaction.delete(TABLE, &key);
                            Ok(Some(String::from_utf8(key).expect("text")))
                        });
                        taken.extend(first.expect("committed"));
                    }
                    taken
                })
            })
            .collect();
        takers.into_iter().map(|taker| taker.join().expect("no panic")).collect()
    });
    let mut all = taken.concat();
    all.sort_unstable();
    let expected = (0..EACH).flat_map(|turn| (0..3).map(move |number| format!("{turn:04}-{number}")));
    assert_eq!(all, expected.collect::<Vec<_>>(), "an element came twice, or never");
    assert_eq!(cluster.client().range(TABLE, "", None, 9), Ok(vec![]));
}

#[test]
fn a_range_of_a_table_without_an_order_is_refused_with_words() {
    let cluster = Cluster::start(1, "f = 0");
    let mut client = cluster.client();
    client.put("accounts", "a", "1").expect("stored");
    let error = client.range("accounts", "a", None, 10).expect_err("it has no order");
    assert_eq!(
        error,
        StoreError::Invalid(
            "the table `accounts` has no order: only tables whose names begin with `ordered.` have one"
                .into()
        )
    );
    assert_eq!(client.range("ordered.nothing", "", None, 10), Ok(vec![]));
    assert_eq!(
        client.range("ordered.nothing", "b", Some(b"a"), 10),
        Ok(vec![]),
        "an end before the beginning"
    );
    assert!(client.range(&format!("ordered.{}", "x".repeat(25)), "", None, 1).is_err());
}

/// More keys than one answer gives, and a tree of three levels that goes again.
#[test]
fn a_table_of_thousands_of_keys_is_read_in_order_and_emptied() {
    const KEYS: usize = 6000;
    let cluster = Cluster::start(3, CALM);
    let mut client = cluster.client();
    // Of two keys one is often the other and a zero, and a question ends between them.
    let name_of = |place: usize| {
        let end = if place > 0 && place.is_multiple_of(2) { "\0" } else { "" };
        format!("{:0>300}{end}", place.div_ceil(2))
    };
    let name = |key: usize| name_of(key * 7919 % KEYS);
    for keys in (0..KEYS).collect::<Vec<_>>().chunks(500) {
        let put = client.transact(|transaction| {
            keys.iter().for_each(|&key| transaction.put(TABLE, name(key), "v"));
            Ok(())
        });
        put.expect("stored");
    }
    let all = client.range(TABLE, "", None, usize::MAX).expect("read");
    assert!(
        all.iter().map(|entry| &entry.key[..]).eq((0..KEYS)
            .map(name_of)
            .map(String::into_bytes)
            .collect::<Vec<_>>()
            .iter()
            .map(|key| &key[..]))
    );
    let some = client.range(TABLE, name_of(2990), Some(name_of(3010).as_bytes()), 15);
    assert_eq!(some.expect("read"), all[2990..3005]);
    for keys in all.chunks(500) {
        let delete = client.transact(|transaction| {
            keys.iter().for_each(|entry| transaction.delete(TABLE, &entry.key));
            Ok(())
        });
        delete.expect("deleted");
    }
    assert_eq!(client.range(TABLE, "", None, usize::MAX), Ok(vec![]));
    client.put(TABLE, "again", "1").expect("stored");
    assert_eq!(client.scan(TABLE, "ag").expect("scanned").len(), 1);
}
