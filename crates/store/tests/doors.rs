//! The doors of a node and hostile, careless or silent clients: what they get, and that nobody else notices.

mod common;

use common::resp::Wire;
use common::{Cluster, Ends, PATIENCE, free_address, until};
use highwire_store::{Client, StoreError};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: usize = 1 << 20;

/// Longer than these threads wait for a core.
const SETTINGS: &str = "f = 0\nlease_ms = 5000\n";

/// A cluster, and the addresses of node 0's Redis door and of its metrics.
fn start(nodes: usize, more: &str) -> (Cluster, String, String) {
    let cluster = Cluster::start(nodes, &format!("{SETTINGS}{more}"));
    let (resp, metrics) = (free_address(), free_address());
    cluster.engine(0).store().open_resp(&resp).expect("the door");
    cluster.engine(0).store().open_metrics(&metrics).expect("the door");
    (cluster, resp, metrics)
}

fn http(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the door");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn metric(address: &str, name: &str) -> u64 {
    let page = http(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let line = page.lines().find(|line| line.split(' ').next() == Some(&format!("highwire_store_{name}")));
    let line = line.unwrap_or_else(|| panic!("{name} is missing: {page}"));
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

fn ended(address: &str, why: &str) -> u64 {
    metric(address, &format!("connections_ended_total{{why=\"{why}\"}}"))
}

#[test]
fn nothing_behind_a_line_of_http_is_executed() {
    let (_cluster, resp, metrics) = start(1, "");
    let post = |method: &str, body: &str| {
        format!("{method} / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let hostile = [
        post("POST", "SET hacked 1\r\n"),
        post("PUT", "SET hacked 1\r\n"),
        post("OPTIONS", "SET hacked 1\r\n"),
        post("GET", "SET hacked 1\r\n"),
        "Host: evil.example\r\nSET hacked 1\r\n".into(),
        "host: evil.example\r\nSET hacked 1\r\n".into(),
        "*1\r\n$4\r\nPOST\r\nSET hacked 1\r\n".into(),
        "*2\r\n$5\r\nHost:\r\n$1\r\nx\r\n*3\r\n$3\r\nSET\r\n$6\r\nhacked\r\n$1\r\n1\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nSET hacked 1\r\n".into(),
        "MULTI\r\nPOST / HTTP/1.1\r\nSET hacked 1\r\nEXEC\r\n".into(),
    ];
    for request in &hostile {
        let before = ended(&metrics, "http");
        let said = Wire::connect(&resp).converse(request.as_bytes());
        let is_silent = said.is_empty() || said == b"+OK\r\n" && request.starts_with("MULTI");
        assert!(is_silent, "{request:?}: {:?}", String::from_utf8_lossy(&said));
        until("the count", || (ended(&metrics, "http") == before + 1).then_some(()));
    }
    let mut wire = Wire::connect(&resp);
    assert_eq!(wire.ask("EXISTS hacked"), b":0\r\n");
    // What came before is a command like any other.
    assert_eq!(
        Wire::connect(&resp).converse(b"SET before 1\r\nPOST / HTTP/1.1\r\n\r\nSET hacked 1\r\n"),
        b"+OK\r\n"
    );
    assert_eq!(wire.ask("EXISTS hacked before"), b":1\r\n");
}

#[test]
fn other_doors_take_no_http_for_anything_else() {
    let (cluster, _resp, metrics) = start(1, "");
    let door = cluster.folder.config().doors()[0].clone();
    let before = ended(&metrics, "protocol");
    let mut stream = TcpStream::connect(&door).expect("the door");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n\0\0\0\x01\x08").expect("written");
    // The connection ends, perhaps by a reset, without an answer.
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(said.is_empty(), "{said:?}");
    until("the count", || (ended(&metrics, "protocol") == before + 1).then_some(()));
    let rebound = http(&metrics, "GET /metrics HTTP/1.1\r\nHost: evil.example:9464\r\n\r\n");
    assert!(rebound.starts_with("HTTP/1.1 421 "), "{rebound}");
    assert!(!rebound.contains("highwire_store_open"), "{rebound}");
    let post = http(&metrics, "POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
}

/// Counts what another client gets done meanwhile.
fn progress_beside(resp: &str, work: impl FnOnce()) -> u64 {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut wire = Wire::connect(resp);
            let mut count = 0;
            while !is_over.load(Ordering::SeqCst) {
                assert!(wire.ask("INCR other").starts_with(b":"));
                count += 1;
            }
            count
        });
        let over = Ends(&is_over);
        work();
        drop(over);
        other.join().expect("it went on")
    })
}

#[test]
fn an_answer_is_bounded_and_nobody_waits_for_one() {
    let (cluster, resp, metrics) = start(1, "");
    let mut wire = Wire::connect(&resp);
    assert_eq!(wire.command(&["SET", "long", &"x".repeat(MIB)]), b"+OK\r\n");
    assert_eq!(wire.command(&["HSET", "hash", "f", &"y".repeat(MIB - 100)]), b":1\r\n");
    let configuration = cluster.client().status().expect("a status").configuration;
    let progress = progress_beside(&resp, || {
        let many = |name: &'static str, key: &'static str, count| {
            [vec![name], if name == "HMGET" { vec!["hash"] } else { vec![] }, vec![key; count]].concat()
        };
        for command in [many("MGET", "long", 1000), many("HMGET", "f", 1000), many("MGET", "long", 40)] {
            let said = wire.command(&command);
            assert!(said.starts_with(b"-ERR the answer has more than 41943040 bytes"), "{:?}", text(&said));
        }
        let said = wire.command(&many("MGET", "long", 39));
        assert!(said.starts_with(b"*39\r\n$1048576\r\n") && said.len() > 39 * MIB);
        // Together they are one answer; one after the other they are many, and each is given.
        assert_eq!(wire.ask("MULTI"), b"+OK\r\n");
        for _ in 0..2 {
            assert_eq!(wire.command(&many("MGET", "long", 30)), b"+QUEUED\r\n");
        }
        let said = wire.ask("EXEC");
        assert!(said.starts_with(b"-ERR the answer has more than"), "{:?}", text(&said));
        for _ in 0..3 {
            wire.write(b"GET long\r\n".repeat(30));
            for _ in 0..30 {
                assert_eq!(wire.reply().len(), MIB + 12);
            }
        }
    });
    assert!(progress > 0);
    assert!(metric(&metrics, "held_bytes_max_of_one") <= 40 * MIB as u64);
    assert!(metric(&metrics, "held_bytes_max") <= 42 * MIB as u64, "one connection at a time");
    assert_eq!(cluster.client().status().expect("a status").configuration, configuration);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}

#[test]
fn clients_that_never_read_are_held_to_little_and_end() {
    let (_cluster, resp, metrics) = start(1, "[doors]\nslow_s = 1\n");
    let mut wire = Wire::connect(&resp);
    assert_eq!(wire.command(&["SET", "long", &"x".repeat(MIB)]), b"+OK\r\n");
    let progress = progress_beside(&resp, || {
        // Each asks for 600 MiB.
        let silent: Vec<Wire> = (0..20)
            .map(|_| {
                let mut wire = Wire::connect(&resp);
                wire.write(b"MGET long long long long long long\r\n".repeat(100));
                wire
            })
            .collect();
        until("the end of all of them", || (ended(&metrics, "slow") == silent.len() as u64).then_some(()));
    });
    assert!(progress > 0);
    // A reply is begun when the one before it has been read.
    assert!(metric(&metrics, "held_bytes_max_of_one") < 8 * MIB as u64);
    until("nothing held any more", || (metric(&metrics, "held_bytes") == 0).then_some(()));
}

#[test]
fn a_question_for_millions_of_keys_is_refused_and_changes_no_configuration() {
    let cluster = Cluster::start(3, "lease_ms = 10000\n");
    let (resp, metrics) = (free_address(), free_address());
    cluster.engine(0).store().open_resp(&resp).expect("the door");
    cluster.engine(0).store().open_metrics(&metrics).expect("the door");
    let mut client = Client::new([cluster.folder.config().doors()[0].clone()]);
    client.set_patience(PATIENCE);
    let before = client.status().expect("a status");
    let progress = progress_beside(&resp, || {
        for (kind, name) in [(0, "Get"), (5, "Locate")] {
            let mut stream = TcpStream::connect(&cluster.folder.config().doors()[0]).expect("the door");
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            // Eight million keys of no bytes, in tables of none.
            let mut body = vec![kind, 0x80, 0xa4, 0xe8, 0x03];
            body.resize(body.len() + 16_000_000, 0);
            stream.write_all(b"hwstore6").expect("written");
            stream.write_all(&(body.len() as u32).to_be_bytes()).expect("written");
            stream.write_all(&body).expect("written");
            let mut length = [0; 4];
            stream.read_exact(&mut length).expect("an answer");
            let mut answer = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut answer).expect("an answer");
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(answer.contains("at most 16384 keys with one question are possible"), "{name}: {answer}");
        }
        // As many as are possible, and more than that with several questions.
        let names: Vec<String> = (0..17_000).map(|at| format!("k{at}")).collect();
        let keys: Vec<(&str, &[u8])> = names.iter().map(|name| ("t", name.as_bytes())).collect();
        let found = common::commit("many keys", || client.transact(|transaction| transaction.get_all(&keys)));
        assert_eq!(found, vec![None; keys.len()]);
        let mut wire = Wire::connect(&resp);
        let words: Vec<&str> = std::iter::once("EXISTS").chain(names.iter().map(String::as_str)).collect();
        until("as many keys", || (wire.command(&words) == b":0\r\n").then_some(()));
    });
    assert!(progress > 0);
    let after = client.status().expect("a status");
    assert_eq!((after.configuration, after.members), (before.configuration, before.members));
    assert!(metric(&metrics, "held_bytes_max_of_one") <= 24 * MIB as u64);
}

#[test]
fn who_is_not_let_in_is_told_so_and_an_end_makes_room() {
    let (cluster, resp, metrics) = start(1, "[doors]\nconnections = 5\nconnections_per_address = 3\n");
    let mut guests: Vec<Wire> = (0..3).map(|_| Wire::connect(&resp)).collect();
    guests.iter_mut().for_each(|guest| assert_eq!(guest.ask("PING"), b"+PONG\r\n"));
    // Told before it has asked, and after.
    assert_eq!(Wire::connect(&resp).converse(b""), b"-ERR max number of clients reached\r\n");
    let flood = b"SET refused 1\r\n".repeat(1000);
    assert_eq!(Wire::connect(&resp).converse(&flood), b"-ERR max number of clients reached\r\n");
    assert_eq!(ended(&metrics, "address"), 2);
    // Another address has its own share, up to the door's limit.
    let mut others: Vec<Wire> = (0..2).map(|_| Wire::connect_from("127.0.0.2:0", &resp)).collect();
    others.iter_mut().for_each(|guest| assert_eq!(guest.ask("PING"), b"+PONG\r\n"));
    let said = Wire::connect_from("127.0.0.3:0", &resp).converse(b"PING\r\n");
    assert_eq!(said, b"-ERR max number of clients reached\r\n");
    assert_eq!(ended(&metrics, "full"), 1);
    assert_eq!(guests[0].ask("EXISTS refused"), b":0\r\n");
    guests.pop();
    until("a place", || Wire::connect(&resp).try_ask("PING").filter(|said| said == b"+PONG\r\n"));

    // The same at the door of clients: others are refused in words that say why, and a client tries until there is room.
    let door = cluster.folder.config().doors()[0].clone();
    let mut inside: Vec<Client> = (0..3).map(|_| Client::new([door.clone()])).collect();
    until("three clients and no more", || {
        inside.iter_mut().for_each(|client| drop(client.status().expect("a status")));
        (metric(&metrics, "connections{door=\"door\"}") == 3).then_some(())
    });
    let mut outside = Client::new([door]);
    outside.set_patience(std::time::Duration::from_millis(300));
    let error = outside.get("t", "k").expect_err("the door is full");
    let StoreError::Unavailable(why) = &error else { panic!("{error:?}") };
    assert!(
        why.contains("127.0.0.1 has 3 connections to this door, which is the most for one address"),
        "{why}"
    );
    let counts = outside.counts();
    assert!(counts.reconnects > 1 && counts.pauses + 1 >= counts.reconnects, "{counts:?}");
    inside.pop();
    outside.set_patience(PATIENCE);
    outside.put("t", "k", "v").expect("room");
}

#[test]
fn silent_and_slow_clients_end_and_delay_nobody() {
    let (cluster, resp, metrics) = start(1, "[doors]\nidle_s = 2\nslow_s = 1\n");
    let door = cluster.folder.config().doors()[0].clone();
    // A silent greeting, half of one, half of a request, and silence after a command.
    let mut waiting = Vec::new();
    for (address, said) in [
        (&door, &b""[..]),
        (&door, b"hwst"),
        (&door, b"hwstore6"),
        (&door, b"hwstore6\0\0\0\x09x"),
        (&resp, b""),
        (&resp, b"*2\r\n$3\r\nGET\r\n$10"),
        (&resp, b"SET k"),
        (&resp, b"PING\r\n"),
        (&metrics, b""),
        (&metrics, b"GET /metr"),
    ] {
        let mut stream = TcpStream::connect(address).expect("the door");
        stream.write_all(said).expect("written");
        waiting.push(stream);
    }
    // Nobody is kept waiting by them.
    assert_eq!(Wire::connect(&resp).ask("PING"), b"+PONG\r\n");
    Client::new([door.clone()]).put("t", "k", "v").expect("stored");
    assert!(metric(&metrics, "node") == 0);
    for mut stream in waiting {
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).expect("its end");
        assert!(said.is_empty() || said == b"+PONG\r\n", "{:?}", text(&said));
    }
    until("the counts", || (ended(&metrics, "idle") >= 3 && ended(&metrics, "slow") >= 6).then_some(()));

    // One byte now and then does not count as going on.
    let mut drip = TcpStream::connect(&resp).expect("the door");
    let before = ended(&metrics, "slow");
    until("the end of a slow writer", || {
        let _ = drip.write_all(b"x");
        std::thread::sleep(std::time::Duration::from_millis(100));
        (ended(&metrics, "slow") > before).then_some(())
    });
    // A client that was ended while it was idle notices, and goes on.
    let mut client = Client::new([door]);
    client.put("t", "k", "v").expect("stored");
    let before = ended(&metrics, "idle");
    until("the end of an idle client", || (ended(&metrics, "idle") > before).then_some(()));
    client.put("t", "k", "w").expect("stored");
}

#[test]
fn nodes_may_be_silent_at_each_others_doors() {
    let cluster = Cluster::start(2, "lease_ms = 10000\n[doors]\nconnections = 2\nidle_s = 1\n");
    let metrics = free_address();
    cluster.engine(0).store().open_metrics(&metrics).expect("the door");
    let before = ended(&metrics, "idle");
    let idle = TcpStream::connect(&cluster.folder.config().doors()[0]).expect("the door");
    let mut silent = idle.try_clone().expect("the same");
    silent.write_all(b"hwstore6").expect("written");
    until("the end of an idle client", || (ended(&metrics, "idle") > before).then_some(()));
    // The other node's conversation is still there, though it has said nothing for as long.
    until("one conversation", || (metric(&metrics, "connections{door=\"door\"}") == 1).then_some(()));
    assert_eq!(cluster.client().status().expect("a status").members.len(), 2);
}

/// A client of another release learns which one it needs, and one of another protocol nothing.
#[test]
fn a_client_that_speaks_another_version_is_told_which() {
    let (cluster, _, metrics) = start(1, "");
    let door = cluster.folder.config().doors()[0].clone();
    let says = |greeting: &[u8]| {
        let mut stream = TcpStream::connect(&door).expect("the door");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(greeting).expect("written");
        let mut answer = Vec::new();
        // The node ends the conversation.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = says(b"hwstore5");
    assert!(
        answer.contains("this node speaks version 6") && answer.contains("you speak version 5"),
        "{answer}"
    );
    assert_eq!(says(b"notstore"), "");
    assert_eq!(ended(&metrics, "protocol"), 2);
    cluster.client().put("t", "k", "v").expect("one of this version is served");
}
