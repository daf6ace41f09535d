//! Scans beside writers that never stop: none fails because of them, and each sees one instant.

mod common;

use common::resp::Wire;
use common::{Cluster, Ends, free_address};
use highwire_store::{Client, StoreError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: u64 = 4;
const ACCOUNTS: u64 = 60;
const BALANCE: i64 = 1000;
/// Scans of each kind.
const ROUNDS: usize = 12;

fn number(value: &[u8]) -> i64 {
    std::str::from_utf8(value).expect("a number").trim().parse().expect("a number")
}

/// Moves money, in short values and in long ones, and gives a key another name, all in one transaction.
fn write_until(client: &mut Client, writer: u64, is_over: &AtomicBool, done: &AtomicU64) {
    let mut name = format!("name {writer} 0");
    for turn in 1u64.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let place = turn.wrapping_mul(0x9E37_79B9) + writer * 7;
        let (from, to) = (place % ACCOUNTS, (place + 1 + turn % (ACCOUNTS - 1)) % ACCOUNTS);
        let next = format!("name {writer} {turn}");
        let table = if turn % 2 == 0 { "bank" } else { "ordered.bank" };
        let result = client.transact(|transaction| {
            let mut change = |account: u64, by: i64| -> Result<(), StoreError> {
                let value = transaction.get(table, account.to_string())?.expect("an account");
                let width = value.len();
                transaction.put(table, account.to_string(), format!("{:>width$}", number(&value) + by));
                Ok(())
            };
            change(from, -1)?;
            change(to, 1)?;
            transaction.delete("redis", &name);
            transaction.put("redis", &next, "v");
            Ok(())
        });
        match result {
            Ok(()) => name = next,
            // Four writers are in each other's way.
            Err(StoreError::Conflict) => {}
            Err(error) => panic!("writer {writer}: {error}"),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn scans_beside_writers_see_one_instant_and_never_fail() {
    let cluster = Cluster::start(3, "lease_ms = 20000\n");
    let port = free_address();
    cluster.engine(1).store().open_resp(&port).expect("the door");
    let mut client = cluster.client();
    for account in 0..ACCOUNTS {
        // Every tenth value is a long one.
        let width = if account % 10 == 0 { 5000 } else { 8 };
        for table in ["bank", "ordered.bank"] {
            client.put(table, account.to_string(), format!("{BALANCE:>width$}")).expect("stored");
        }
    }
    for writer in 0..WRITERS {
        client.put("redis", format!("name {writer} 0"), "v").expect("stored");
    }
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for writer in 0..WRITERS {
            let (mut client, is_over, done) = (cluster.client(), &is_over, &done);
            scope.spawn(move || write_until(&mut client, writer, is_over, done));
        }
        let mut wire = Wire::connect(&port);
        for round in 0..ROUNDS {
            let before = done.load(Ordering::Relaxed);
            for table in ["bank", "ordered.bank"] {
                let entries = client.scan(table, "").unwrap_or_else(|error| panic!("round {round}: {error}"));
                assert_eq!(entries.len() as u64, ACCOUNTS);
                let sum: i64 = entries.iter().map(|entry| number(&entry.value)).sum();
                assert_eq!(sum, BALANCE * ACCOUNTS as i64, "round {round}");
                assert!(entries.is_sorted());
            }
            assert_eq!(wire.ask("DBSIZE"), format!(":{WRITERS}\r\n").as_bytes(), "round {round}");
            let names = String::from_utf8(wire.ask("KEYS *")).expect("text");
            assert!(names.starts_with(&format!("*{WRITERS}\r\n")), "round {round}: {names}");
            for writer in 0..WRITERS {
                assert_eq!(names.matches(&format!("name {writer} ")).count(), 1, "{names}");
            }
            for cursor in 0..16 {
                let page = String::from_utf8(wire.ask(&format!("SCAN {cursor} MATCH name*"))).expect("text");
                assert!(page.starts_with("*2\r\n"), "round {round}: {page}");
            }
            // Scans leave the writers time.
            while done.load(Ordering::Relaxed) < before + 2 * WRITERS {
                std::thread::yield_now();
            }
        }
    });
    // Nothing stays behind.
    for mut client in cluster.clients() {
        assert!(client.status().expect("its status").is_open);
    }
    assert_eq!(client.scan("bank", "").expect("scanned").len() as u64, ACCOUNTS);
}

/// The attempts as transactions cannot succeed where every attempt is disturbed; the snapshots can, several at a time.
#[test]
fn several_scan_at_a_time_and_beside_a_backup() {
    let cluster = Cluster::start(2, "lease_ms = 20000\n");
    let mut client = cluster.client();
    for key in 0..200 {
        client.put("t", format!("{key:03}"), "v").expect("stored");
    }
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for writer in 0..2 {
            let (mut client, is_over, done) = (cluster.client(), &is_over, &done);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.put("t", format!("{:03}", writer * 100), "w").expect("stored");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut client = cluster.client();
                scope.spawn(move || {
                    for round in 0..8 {
                        let found = client.scan("t", "").unwrap_or_else(|error| panic!("{round}: {error}"));
                        assert_eq!(found.len(), 200);
                    }
                });
            }
            let path = cluster.folder.path().join("t.backup");
            let backup =
                highwire_store::back_up(&mut cluster.client(), &path, &mut |_, _| ()).expect("a backup");
            assert_eq!(backup.contents.entries(), 200);
        });
        assert!(done.load(Ordering::Relaxed) > 0);
    });
}
