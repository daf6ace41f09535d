//! Keys that expire, at nodes whose clocks differ. No test waits for a time: clocks are moved.

mod common;

use common::resp::Wire;
use common::{Cluster, Folder, free_address, until};
use highwire_store::{Engine, RestoreOptions, Store, back_up, restore};

/// An hour. No test takes so long.
const HOUR_MS: i64 = 3_600_000;
const LEASE: &str = "lease_ms = 20000\n";

/// A client of a node's Redis door.
fn wire(store: &Store) -> Wire {
    let door = free_address();
    store.open_resp(&door).expect("the door");
    Wire::connect(&door)
}

/// Nodes that do not look for keys that nobody reads, and a client of each.
fn start(nodes: usize, more: &str) -> (Cluster, Vec<Wire>) {
    let cluster = Cluster::start(nodes, &format!("{LEASE}{more}"));
    cluster.engines().iter().for_each(|engine| engine.store().wall().set_swept(false));
    let wires = cluster.engines().iter().map(|engine| wire(engine.store())).collect();
    (cluster, wires)
}

fn step(cluster: &Cluster, node: usize, by_ms: i64) {
    cluster.engine(node).store().wall().step(by_ms);
}

#[track_caller]
fn check(wire: &mut Wire, line: &str, expected: &str) {
    let said = String::from_utf8_lossy(&wire.ask(line)).into_owned();
    assert_eq!(said, expected.replace('\n', "\r\n"), "{line}");
}

fn number(wire: &mut Wire, line: &str) -> i64 {
    let said = String::from_utf8_lossy(&wire.ask(line)).into_owned();
    said.strip_prefix(':')
        .and_then(|said| said.trim().parse().ok())
        .unwrap_or_else(|| panic!("{line}: {said}"))
}

#[test]
fn a_key_is_there_before_its_time_and_gone_after_it() {
    let (cluster, mut wires) = start(3, "");
    check(&mut wires[0], "SET k value EX 3600", "+OK\n");
    check(&mut wires[0], &format!("SET long {} EX 3600", "x".repeat(5000)), "+OK\n");
    check(&mut wires[1], "HSET h field value", ":1\n");
    check(&mut wires[1], "PEXPIRE h 3600000", ":1\n");
    check(&mut wires[2], "SET stays value", "+OK\n");
    for wire in &mut wires {
        check(wire, "GET k", "$5\nvalue\n");
        check(wire, "HGET h field", "$5\nvalue\n");
        check(wire, "STRLEN long", ":5000\n");
        assert!((3590..=3600).contains(&number(wire, "TTL k")));
    }
    let tables = |cluster: &Cluster| -> u64 {
        cluster.clients().iter_mut().map(|client| client.status().expect("its status").rows).sum()
    };
    assert_eq!(tables(&cluster), 5, "four keys, and one long value");
    (0..3).for_each(|node| step(&cluster, node, HOUR_MS));
    check(&mut wires[1], "MGET k h long stays", "*4\n$-1\n$-1\n$-1\n$5\nvalue\n");
    assert_eq!(tables(&cluster), 1, "rows of keys that have expired are left");
    for wire in &mut wires {
        check(wire, "TTL k", ":-2\n");
        check(wire, "EXISTS k h long stays", ":1\n");
        check(wire, "TYPE h", "+none\n");
        check(wire, "TTL stays", ":-1\n");
    }
}

/// What one node has called absent is absent for the others, whose clocks say otherwise.
#[test]
fn a_key_that_has_expired_for_one_is_deleted_for_all_however_it_is_met() {
    let (cluster, mut wires) = start(3, "");
    step(&cluster, 1, 2 * HOUR_MS);
    let meets = [
        ("GET k", "$-1\n"),
        ("MGET k", "*1\n$-1\n"),
        ("EXISTS k", ":0\n"),
        ("STRLEN k", ":0\n"),
        ("TYPE k", "+none\n"),
        ("TTL k", ":-2\n"),
        ("PERSIST k", ":0\n"),
        ("EXPIRE k 9", ":0\n"),
        ("HGETALL k", "*0\n"),
        ("SET k other XX", "$-1\n"),
        ("GETEX k PERSIST", "$-1\n"),
        ("RENAMENX k l", "-ERR no such key\n"),
        ("COPY k l", ":0\n"),
        ("TOUCH k", ":0\n"),
        ("RANDOMKEY", "$-1\n"),
        ("OBJECT ENCODING k", "$-1\n"),
        ("KEYS *", "*0\n"),
        ("DBSIZE", ":0\n"),
        ("SCAN 0 COUNT 100", "*2\n$1\n0\n*0\n"),
        ("WATCH k", "+OK\n"),
        ("DEL k", ":0\n"),
    ];
    // Short values lie in one row with their keys, long ones do not.
    for value in ["value", &"x".repeat(5000)] {
        for (line, expected) in meets {
            check(&mut wires[0], &format!("SET k {value} EX 3600"), "+OK\n");
            check(&mut wires[2], "EXISTS k", ":1\n");
            check(&mut wires[1], line, expected);
            for node in [0, 2] {
                check(&mut wires[node], "GET k", "$-1\n");
            }
        }
    }
    check(&mut wires[0], "SET k value EX 3600", "+OK\n");
    let mut client = cluster.clients().swap_remove(1);
    assert_eq!(client.get("redis", "k"), Ok(None));
    check(&mut wires[0], "EXISTS k", ":0\n");
    check(&mut wires[0], "SET k value EX 3600", "+OK\n");
    assert_eq!(client.scan("redis", ""), Ok(vec![]));
    check(&mut wires[0], "EXISTS k", ":0\n");
}

#[test]
fn a_clock_that_goes_back_brings_nothing_back() {
    let (cluster, mut wires) = start(1, "f = 0\n");
    check(&mut wires[0], "SET k value EX 3600", "+OK\n");
    step(&cluster, 0, HOUR_MS);
    check(&mut wires[0], "GET k", "$-1\n");
    step(&cluster, 0, -2 * HOUR_MS);
    check(&mut wires[0], "GET k", "$-1\n");
    // A key that nobody has met lives on as long as the clock was set back.
    check(&mut wires[0], "SET k value EX 3600", "+OK\n");
    step(&cluster, 0, HOUR_MS);
    step(&cluster, 0, -HOUR_MS);
    check(&mut wires[0], "GET k", "$5\nvalue\n");
}

#[test]
fn commands_keep_and_drop_the_time_as_in_redis() {
    let (cluster, mut wires) = start(1, "f = 0\n");
    let wire = &mut wires[0];
    let keeps = [
        "APPEND k 1",
        "INCR k",
        "INCRBYFLOAT k 1.5",
        "SETRANGE k 1 7",
        "SETBIT k 3 1",
        "SET k 2 KEEPTTL",
        "GETEX k",
        "GET k",
    ];
    for line in keeps {
        check(wire, "SET k 1 EX 3600", "+OK\n");
        wire.ask(line);
        assert!(number(wire, "TTL k") > 3500, "{line}");
    }
    for line in ["SET k 2", "GETSET k 2", "MSET k 2", "PERSIST k", "GETEX k PERSIST"] {
        check(wire, "SET k 1 EX 3600", "+OK\n");
        wire.ask(line);
        check(wire, "TTL k", ":-1\n");
    }
    check(wire, "HSET h f 1", ":1\n");
    check(wire, "EXPIRE h 3600", ":1\n");
    for line in ["HSET h g 2", "HINCRBY h f 1", "HINCRBYFLOAT h f 1", "HDEL h g"] {
        wire.ask(line);
        assert!(number(wire, "TTL h") > 3500, "{line}");
    }
    check(wire, "SET k 1 EX 3600", "+OK\n");
    check(wire, "SET l 1", "+OK\n");
    check(wire, "COPY k copy", ":1\n");
    check(wire, "RENAME k l", "+OK\n");
    assert!(number(wire, "TTL l") > 3500 && number(wire, "TTL copy") > 3500);
    // The values of keys that got their times later, and lose them, stay: short, of the length at which they move, and long.
    for length in [1, 3500, 3505, 3509, 3510, 60_000] {
        let value = "v".repeat(length);
        check(wire, &format!("SET m {value}"), "+OK\n");
        for line in ["EXPIRE m 3600", "PEXPIRE m 7200000", "PERSIST m", "EXPIRE m 3600"] {
            check(wire, line, ":1\n");
            check(wire, "GET m", &format!("${length}\n{value}\n"));
        }
    }
    drop(cluster);
}

#[test]
fn a_watched_key_that_expires_has_changed_and_one_that_had_expired_has_not() {
    let (cluster, mut wires) = start(1, "f = 0\n");
    let wire = &mut wires[0];
    let exec = |wire: &mut Wire| {
        check(wire, "MULTI", "+OK\n");
        check(wire, "PING", "+QUEUED\n");
        String::from_utf8_lossy(&wire.ask("EXEC")).into_owned()
    };
    check(wire, "SET k value EX 3600", "+OK\n");
    check(wire, "WATCH k", "+OK\n");
    step(&cluster, 0, HOUR_MS);
    assert_eq!(exec(wire), "*-1\r\n");
    check(wire, "WATCH k", "+OK\n");
    assert_eq!(exec(wire), "*1\r\n+PONG\r\n");
    check(wire, "SET k value EX 3600", "+OK\n");
    step(&cluster, 0, HOUR_MS);
    check(wire, "WATCH k", "+OK\n");
    assert_eq!(exec(wire), "*1\r\n+PONG\r\n");
}

/// A client shows the versions that it has read. If reading has deleted a key, the versions before that would conflict for ever.
#[test]
fn a_client_that_meets_a_key_that_has_expired_commits() {
    let (cluster, mut wires) = start(1, "f = 0\n");
    let mut client = cluster.client();
    for round in 0..3 {
        check(&mut wires[0], "SET k value EX 3600", "+OK\n");
        step(&cluster, 0, HOUR_MS);
        let mut runs = 0;
        let there = client.transact(|transaction| {
            runs += 1;
            let there = if round == 0 { transaction.get("redis", "k")? } else { None };
            let all = if round == 1 { transaction.scan("redis", "k")? } else { Vec::new() };
            transaction.put("t", "seen", "1");
            Ok((there, all.len()))
        });
        assert_eq!((there, runs), (Ok((None, 0)), 1), "round {round}");
    }
}

#[test]
fn keys_that_nobody_reads_go_and_their_rows_are_reclaimed() {
    let (cluster, mut wires) = start(3, "");
    for number in 0..300 {
        let value = if number % 3 == 0 { "x".repeat(5000) } else { "v".into() };
        check(&mut wires[number % 3], &format!("SET {number} {value} EX 3600"), "+OK\n");
    }
    check(&mut wires[0], "SET stays value EX 7200", "+OK\n");
    (0..3).for_each(|node| step(&cluster, node, HOUR_MS));
    cluster.engines().iter().for_each(|engine| engine.store().wall().set_swept(true));
    let mut clients = cluster.clients();
    until("rows that go", || {
        let rows: u64 = clients.iter_mut().map(|client| client.status().expect("its status").rows).sum();
        (rows == 1).then_some(())
    });
    check(&mut wires[1], "KEYS *", "*1\n$5\nstays\n");
}

#[test]
fn times_outlast_a_restart_and_a_backup() {
    let folder = Folder::with_disks(1, &format!("f = 0\n{LEASE}"));
    let open = || {
        let engine = Engine::start(&folder.config(), 0).expect("a node");
        folder.wait_for(&[0], 1);
        engine
    };
    let close = |engine: Engine| {
        engine.store().stop();
        engine.join().expect("no panic");
    };
    let engine = open();
    let mut first = wire(engine.store());
    check(&mut first, "SET k value EXAT 33000000000", "+OK\n");
    check(&mut first, &format!("SET long {} PXAT 33000000000001", "x".repeat(5000)), "+OK\n");
    check(&mut first, "HSET h f v", ":1\n");
    close(engine);
    let engine = open();
    let mut again = wire(engine.store());
    let keeps = |wire: &mut Wire| {
        check(wire, "PEXPIRETIME k", ":33000000000000\n");
        check(wire, "PEXPIRETIME long", ":33000000000001\n");
        check(wire, "PEXPIRETIME h", ":-1\n");
        check(wire, "STRLEN long", ":5000\n");
    };
    keeps(&mut again);
    // A key whose time comes between the backup and the restore is not there afterwards.
    check(&mut again, "SET soon value EX 3600", "+OK\n");
    let path = folder.path().join("backup");
    back_up(&mut folder.client(), &path, &mut |_, _| ()).expect("a backup");
    close(engine);
    let (other, mut wires) = start(1, "f = 0\n");
    step(&other, 0, HOUR_MS);
    restore(&mut other.client(), &path, RestoreOptions::default(), &mut |_, _| ()).expect("restored");
    keeps(&mut wires[0]);
    check(&mut wires[0], "EXISTS soon k", ":1\n");
}

/// More keys than one transaction deletes.
#[test]
fn all_keys_are_deleted_in_pieces_and_in_a_transaction_only_if_they_are_few() {
    let (_cluster, mut wires) = start(1, "f = 0\n");
    let wire = &mut wires[0];
    let fill = |wire: &mut Wire| {
        for thousand in 0..60 {
            let pairs = (0..1000).map(|number| format!("key:{thousand}:{number} v"));
            check(wire, &format!("MSET {}", pairs.collect::<Vec<_>>().join(" ")), "+OK\n");
        }
    };
    fill(wire);
    check(wire, "DBSIZE", ":60000\n");
    check(wire, "MULTI", "+OK\n");
    check(wire, "FLUSHALL", "+QUEUED\n");
    let said = String::from_utf8_lossy(&wire.ask("EXEC")).into_owned();
    assert!(said.contains("at most"), "{said}");
    check(wire, "DBSIZE", ":60000\n");
    check(wire, "FLUSHALL", "+OK\n");
    check(wire, "DBSIZE", ":0\n");
    check(wire, "MSET a 1 b 2", "+OK\n");
    check(wire, "MULTI", "+OK\n");
    check(wire, "FLUSHDB ASYNC", "+QUEUED\n");
    check(wire, "DBSIZE", "+QUEUED\n");
    check(wire, "EXEC", "*2\n+OK\n:0\n");
    check(wire, "FLUSHALL NOW", "-ERR syntax error\n");
}

#[test]
fn a_scan_finds_every_key_once_with_any_count() {
    let (_cluster, mut wires) = start(2, "");
    for number in 0..500 {
        check(&mut wires[0], &format!("SET {number} v"), "+OK\n");
    }
    check(&mut wires[0], "HSET h f v", ":1\n");
    for count in ["1", "7", "10", "100", "5000"] {
        let (mut cursor, mut found, mut steps) = ("0".to_string(), Vec::new(), 0);
        loop {
            let said = String::from_utf8(wires[1].ask(&format!("SCAN {cursor} TYPE string COUNT {count}")))
                .expect("text");
            let mut lines = said.split("\r\n");
            cursor = lines.nth(2).expect("a cursor").into();
            let keys =
                lines.skip(1).filter(|line| !line.is_empty() && !line.starts_with('$')).map(String::from);
            found.extend(keys);
            steps += 1;
            if cursor == "0" {
                break;
            }
        }
        found.sort_by_key(|key| key.parse::<u32>().expect("a number"));
        assert_eq!(found, (0..500).map(|number| number.to_string()).collect::<Vec<_>>(), "count {count}");
        let most = 2 * 500 / count.parse::<usize>().expect("a number") + 20;
        assert!(steps <= most, "{steps} steps for {count}");
        assert!(count != "10" || steps >= 10, "{steps} steps: COUNT bounds a step");
    }
}
