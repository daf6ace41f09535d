//! Lists, sets and sorted sets over three nodes: transactions, WATCH, limits, and what clients of other kinds see of them.

mod common;

use common::resp::Wire;
use common::{Cluster, free_address, until};

const SETTINGS: &str = "f = 2\nlease_ms = 5000\n";

fn start() -> (Cluster, Vec<String>) {
    let cluster = Cluster::start(3, SETTINGS);
    let open = |engine: &highwire_store::Engine| {
        let holder = free_address();
        engine.store().open_resp(&holder).expect("the endpoint");
        holder
    };
    let resp: Vec<String> = cluster.engines().iter().map(open).collect();
    until("the first commit", || (Wire::connect(&resp[0]).ask("SET warm up") == b"+OK\r\n").then_some(()));
    (cluster, resp)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_transaction_over_several_types_happens_as_a_whole_and_a_watch_sees_each_of_them() {
    let (_cluster, resp) = start();
    let (mut one, mut other) = (Wire::connect(&resp[0]), Wire::connect(&resp[1]));
    for line in [
        "MULTI",
        "RPUSH list a b",
        "SADD set x y",
        "ZADD sorted 1 m 2 n",
        "LMOVE list list2 LEFT RIGHT",
        "GET list",
    ] {
        one.ask(line);
    }
    let said = text(one.ask("EXEC"));
    assert!(said.starts_with("*5\r\n:2\r\n:2\r\n:2\r\n$1\r\na\r\n-WRONGTYPE"), "{said}");
    // All nodes see all of it.
    for address in &resp {
        let mut wire = Wire::connect(address);
        assert_eq!(text(wire.ask("LRANGE list 0 -1")), "*1\r\n$1\r\nb\r\n");
        assert_eq!(text(wire.ask("SISMEMBER set y")), ":1\r\n");
        assert_eq!(
            text(wire.ask("ZRANGE sorted 0 -1 WITHSCORES")),
            "*4\r\n$1\r\nm\r\n$1\r\n1\r\n$1\r\nn\r\n$1\r\n2\r\n"
        );
        for (key, kind) in [("list", "list"), ("set", "set"), ("sorted", "zset"), ("warm", "string")] {
            assert_eq!(text(wire.ask(&format!("TYPE {key}"))), format!("+{kind}\r\n"));
        }
    }
    for (key, change) in [
        ("list", "LPUSH list z"),
        ("set", "SREM set x"),
        ("sorted", "ZADD sorted 5 m"),
        ("list", "LSET list 0 z2"),
        ("new", "SADD new 1"),
        ("list2", "DEL list2"),
    ] {
        for is_changed in [true, false] {
            assert_eq!(one.ask(&format!("WATCH {key}")), b"+OK\r\n");
            if is_changed {
                other.ask(change);
            }
            // What only reads changes nothing.
            other.ask("LRANGE list 0 -1");
            other.ask("ZADD sorted NX 9 m");
            one.ask("MULTI");
            one.ask("PING");
            let expected = if is_changed { "*-1\r\n" } else { "*1\r\n+PONG\r\n" };
            assert_eq!(text(one.ask("EXEC")), expected, "{change}, {is_changed}");
        }
    }
}

#[test]
fn a_collection_has_a_limit_and_what_goes_beyond_it_changes_nothing() {
    let (_cluster, resp) = start();
    let (mut one, mut other) = (Wire::connect(&resp[0]), Wire::connect(&resp[2]));
    let long = "x".repeat(500_000);
    for (add, read, what) in [
        (&["RPUSH", "k", "{}"][..], "LLEN k", "list"),
        (&["SADD", "k", "{}"], "SCARD k", "set"),
        (&["ZADD", "k", "1", "{}"], "ZCARD k", "sorted set"),
    ] {
        let mut put = |mark: &str| {
            let element = format!("{mark}{long}");
            let words: Vec<&str> =
                add.iter().map(|word| if *word == "{}" { &element } else { *word }).collect();
            text(one.command(&words))
        };
        assert_eq!([put("1"), put("2")], [":1\r\n", if what == "list" { ":2\r\n" } else { ":1\r\n" }]);
        let said = put("3");
        assert!(said.starts_with(&format!("-ERR a {what} has at most 1048576 bytes")), "{said:.100}");
        assert_eq!(text(other.ask(read)), ":2\r\n");
        assert_eq!(text(other.ask("DEL k")), ":1\r\n");
    }
    // Two that were moved or put together would be too long.
    for key in ["l1", "l2"] {
        assert_eq!(one.command(&["RPUSH", key, &long, &long[..300_000]]), b":2\r\n");
    }
    assert!(text(one.ask("LMOVE l1 l2 LEFT LEFT")).starts_with("-ERR a list has at most"));
    assert_eq!([text(other.ask("LLEN l1")), text(other.ask("LLEN l2"))], [":2\r\n", ":2\r\n"]);
    for (at, key) in ["s1", "s2", "s3", "s4", "s5"].iter().enumerate() {
        let members = [format!("{at}{long}"), format!("x{at}{long}")];
        assert_eq!(one.command(&["SADD", key, &members[0], &members[1]]), b":2\r\n");
    }
    assert!(text(one.ask("SUNIONSTORE s6 s1 s2")).starts_with("-ERR a set has at most"));
    assert_eq!(text(other.ask("EXISTS s6")), ":0\r\n");
    let said = text(other.ask("SUNION s1 s2 s3 s4 s5"));
    assert!(said.starts_with("-ERR one command puts sets of at most 4194304 bytes together"), "{said:.100}");
    assert!(text(other.ask("ZUNION 5 s1 s2 s3 s4 s5")).starts_with("-ERR one command puts sets"));
    assert!(text(other.ask("SUNION s1 s2 s3 s4")).starts_with("*8\r\n"));
    // A long one is written and read in place.
    assert_eq!(text(other.ask("LSET l1 1 short")), "+OK\r\n");
    assert_eq!(text(one.ask("LINDEX l1 -1")), "$5\r\nshort\r\n");
    assert_eq!(one.ask("LINDEX l1 0").len(), 500_000 + 11);
    // As many draws as no answer can have are refused before they are made.
    one.ask("SADD small a b");
    for line in
        ["SRANDMEMBER small -9223372036854775807", "ZRANDMEMBER small2 -4611686018427387903 WITHSCORES"]
    {
        one.ask("ZADD small2 1 a");
        let said = text(one.ask(line));
        assert!(said.starts_with("-ERR the answer has more than"), "{line}: {said:.100}");
    }
    assert_eq!(text(one.ask("SRANDMEMBER small -1000")).matches("$1").count(), 1000);
}

#[test]
fn draws_are_of_different_members_and_reach_each_of_them() {
    let (_cluster, resp) = start();
    let mut wire = Wire::connect(&resp[0]);
    assert_eq!(wire.ask("SADD set a b c d e f"), b":6\r\n");
    assert_eq!(wire.ask("ZADD sorted 1 a 2 b 3 c 4 d 5 e 6 f"), b":6\r\n");
    for draw in ["SRANDMEMBER set 3", "ZRANDMEMBER sorted 3", "SRANDMEMBER set -3", "ZRANDMEMBER sorted -3"] {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let said = text(wire.ask(draw));
            let mut members: Vec<&str> = said.lines().filter(|line| line.len() == 1).collect();
            assert_eq!(members.len(), 3, "{said}");
            seen.extend(members.iter().map(ToString::to_string));
            members.sort_unstable();
            members.dedup();
            assert!(draw.contains('-') || members.len() == 3, "{draw}: {said}");
        }
        assert_eq!(seen.len(), 6, "{draw}");
    }
    // What is taken out is gone, and nothing else.
    let mut taken = Vec::new();
    for _ in 0..3 {
        let said = text(wire.ask("SPOP set 2"));
        taken.extend(said.lines().filter(|line| line.len() == 1).map(String::from).collect::<Vec<_>>());
    }
    taken.sort_unstable();
    assert_eq!(taken, ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(wire.ask("EXISTS set"), b":0\r\n");
}

#[test]
fn clients_of_two_nodes_that_push_and_pop_at_one_list_lose_and_double_nothing() {
    let (_cluster, resp) = start();
    let rounds = 40;
    let mut all: Vec<String> = std::thread::scope(|scope| {
        for (client, address) in resp.iter().take(2).enumerate() {
            scope.spawn(move || {
                let mut wire = Wire::connect(address);
                for round in 0..rounds {
                    let push = format!("RPUSH queue {client}-{round}");
                    assert!(wire.ask(&push).starts_with(b":"), "a push failed for good");
                }
            });
        }
        let pops: Vec<_> = (0..2)
            .map(|client| {
                let address = &resp[2 - client];
                scope.spawn(move || {
                    let mut wire = Wire::connect(address);
                    (0..rounds).map(|_| text(wire.ask("BLPOP queue 0"))).collect::<Vec<_>>()
                })
            })
            .collect();
        pops.into_iter().flat_map(|thread| thread.join().expect("it went on")).collect()
    });
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2 * rounds);
    assert_eq!(Wire::connect(&resp[0]).ask("EXISTS queue"), b":0\r\n");
}

#[test]
fn other_clients_are_told_what_a_key_holds() {
    let (cluster, resp) = start();
    let mut wire = Wire::connect(&resp[0]);
    for (line, what) in [("RPUSH list a", "list"), ("SADD set a", "set"), ("ZADD sorted 1 a", "sorted set")] {
        wire.ask(line);
        let key = line.split(' ').nth(1).expect("a key");
        let error = cluster.client().get("redis", key).expect_err("it is no plain value");
        assert!(error.to_string().contains(&format!("holds a {what} of the Redis")), "{error}");
    }
    assert_eq!(text(wire.ask("SCAN 0 TYPE nothing")).matches('*').count(), 2);
    let mut found = 0;
    for kind in ["list", "set", "zset"] {
        let mut cursor = "0".to_string();
        loop {
            let page = text(wire.ask(&format!("SCAN {cursor} TYPE {kind}")));
            found += page.matches("$4\r\nlist").count();
            // An array of two: the next cursor, and the keys.
            cursor = page.lines().nth(2).expect("a cursor").to_string();
            if cursor == "0" {
                break;
            }
        }
    }
    assert_eq!(found, 1);
}
