//! The map of slots for Redis clients that know clusters: it leads to primaries, MOVED corrects it, and who has not asked is served everywhere.

mod common;

use common::resp::Wire;
use common::{Cluster, Folder, PATIENCE, Process, free_address, until, wait_for_members};
use highwire_store::Client;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

#[test]
fn this_process_is_a_node() {
    common::be_a_node_if_asked();
}

/// Three nodes of this process, and the addresses of their Redis endpoints and of their metrics.
fn start(more: &str) -> (Cluster, Vec<String>, Vec<String>) {
    let cluster = Cluster::start(3, &format!("f = 1\nlease_ms = 5000\n{more}"));
    let open = |node: usize| {
        let (resp, metrics) = (free_address(), free_address());
        cluster.engine(node).store().open_resp(&resp).expect("the endpoint");
        cluster.engine(node).store().open_metrics(&metrics).expect("the endpoint");
        (resp, metrics)
    };
    let (resp, metrics) = (0..3).map(open).unzip();
    (cluster, resp, metrics)
}

fn text(reply: Vec<u8>) -> String {
    String::from_utf8(reply).expect("text")
}

fn integer(reply: Vec<u8>) -> u16 {
    text(reply).trim()[1..].parse().expect("a number")
}

/// `CLUSTER SLOTS`: the first and the last slot, and the address.
fn slots(wire: &mut Wire) -> Vec<(u16, u16, String)> {
    let said = text(wire.ask("CLUSTER SLOTS"));
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    // Two slots, host, port and name.
    let number = |line: &str| line[1..].parse().expect("a number");
    let range =
        |lines: &[&str]| (number(lines[0]), number(lines[1]), format!("{}:{}", lines[2], &lines[3][1..]));
    lines.chunks_exact(5).map(range).collect()
}

fn at(map: &[(u16, u16, String)], slot: u16) -> &str {
    &map.iter().find(|range| (range.0..=range.1).contains(&slot)).expect("every slot has a node").2
}

fn metric(address: &str, name: &str) -> u64 {
    let mut stream = TcpStream::connect(address).expect("the endpoint");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("highwire_store_{name} ")));
    line.expect("the metric").parse().expect("a number")
}

#[test]
fn the_map_leads_every_key_to_its_primary_where_it_is_read_at_home() {
    let (cluster, resp, metrics) = start("");
    let mut wires: BTreeMap<&str, Wire> = resp.iter().map(|at| (&**at, Wire::connect(at))).collect();
    let map = slots(wires.get_mut(&*resp[1]).expect("a node"));
    assert_eq!((map.first().map(|range| range.0), map.last().map(|range| range.1)), (Some(0), Some(16383)));
    assert!(map.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "{map:?}");
    let mut client = cluster.client();
    let keys: Vec<String> = (0..60).map(|key| format!("key-{key}")).collect();
    let tagged = ["{key-7}.a", "b{key-7}", "{}key", "{x"].map(String::from);
    for key in keys.iter().chain(&tagged) {
        let slot = integer(wires.get_mut(&*resp[0]).expect("a node").command(&["CLUSTER", "KEYSLOT", key]));
        let leads_to = at(&map, slot);
        let primary = client.primaries(&[("redis", key.as_bytes())]).expect("located")[0];
        assert_eq!(leads_to, resp[usize::from(primary)], "{key}");
        let wire = wires.get_mut(leads_to).expect("a node");
        until("a commit", || (wire.command(&["SET", key, key]) == b"+OK\r\n").then_some(()));
    }
    let slot = |wires: &mut BTreeMap<&str, Wire>, key: &str| {
        integer(wires.get_mut(&*resp[0]).expect("a node").command(&["CLUSTER", "KEYSLOT", key]))
    };
    assert_eq!(slot(&mut wires, "{key-7}.a"), slot(&mut wires, "key-7"));
    let home = || metrics.iter().map(|at| metric(at, "reads_at_home_total")).sum::<u64>();
    let before = home();
    for key in &keys {
        let slot = slot(&mut wires, key);
        let reply = wires.get_mut(at(&map, slot)).expect("a node").command(&["GET", key]);
        assert_eq!(text(reply), format!("${}\r\n{key}\r\n", key.len()));
    }
    assert_eq!(home() - before, keys.len() as u64, "a read was not answered by its primary");
}

#[test]
fn who_has_asked_for_the_map_is_sent_to_primaries_and_nobody_else_is() {
    let (_cluster, resp, _) = start("");
    let (mut led, mut plain) = (Wire::connect(&resp[0]), Wire::connect(&resp[0]));
    until("a commit", || (plain.ask("SET warm up") == b"+OK\r\n").then_some(()));
    let map = slots(&mut led);
    let mut sent = 0;
    for key in (0..40).map(|key| format!("k{key}")) {
        let slot = integer(plain.command(&["CLUSTER", "KEYSLOT", &key]));
        assert_eq!(text(plain.command(&["SET", &key, "v"])), "+OK\r\n");
        let reply = text(led.command(&["GET", &key]));
        match at(&map, slot) {
            here if here == resp[0] => assert_eq!(reply, "$1\r\nv\r\n"),
            there => {
                sent += 1;
                assert_eq!(reply, format!("-MOVED {slot} {there}\r\n"));
                assert_eq!(text(Wire::connect(there).command(&["GET", &key])), "$1\r\nv\r\n");
            }
        }
    }
    assert!((5..40).contains(&sent), "{sent} of 40 keys have their primary at two of three nodes");
    // Commands behind one that is moved are answered in their order, and keys of several primaries are served here.
    led.write(b"PING\r\nMGET k0 k1 k2 k3 k4 k5 k6 k7 k8 k9\r\nECHO end\r\n");
    assert_eq!(text(led.reply()), "+PONG\r\n");
    assert_eq!(text(led.reply()), format!("*10\r\n{}", "$1\r\nv\r\n".repeat(10)));
    assert_eq!(text(led.reply()), "$3\r\nend\r\n");
    // What is between MULTI and EXEC is one transaction, at any node.
    assert_eq!(text(led.ask("MULTI")), "+OK\r\n");
    (0..9).for_each(|key| assert_eq!(text(led.ask(&format!("GET k{key}"))), "+QUEUED\r\n"));
    assert_eq!(text(led.ask("EXEC")), format!("*9\r\n{}", "$1\r\nv\r\n".repeat(9)));
}

#[test]
fn a_configuration_may_lead_all_clients() {
    let (_cluster, resp, _) = start("[doors]\nmoved = true\n");
    let mut wires: Vec<Wire> = resp.iter().map(|at| Wire::connect(at)).collect();
    let replies: Vec<String> = wires.iter_mut().map(|wire| text(wire.command(&["GET", "foo"]))).collect();
    let moved = replies.iter().filter(|reply| reply.starts_with("-MOVED 12182 ")).count();
    assert_eq!((moved, replies.iter().filter(|reply| *reply == "$-1\r\n").count()), (2, 1), "{replies:?}");
}

#[test]
fn the_forms_of_the_map_say_the_same() {
    let (_cluster, resp, _) = start("");
    let mut wire = Wire::connect(&resp[2]);
    let map = slots(&mut wire);
    let nodes = text(wire.ask("CLUSTER NODES"));
    let lines: Vec<Vec<&str>> =
        nodes.lines().skip(1).filter(|line| !line.is_empty()).map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 3, "{nodes}");
    let own = text(wire.ask("CLUSTER MYID"));
    for line in &lines {
        let address = line[1].strip_suffix("@0").expect("no bus");
        assert_eq!(line[2].contains("myself"), address == resp[2] && own.contains(line[0]), "{nodes}");
        for range in &line[8..] {
            let (low, high) = range.split_once('-').expect("a range");
            let range = (low.parse().expect("a slot"), high.parse().expect("a slot"), address.to_string());
            assert!(map.contains(&range), "{range:?} of {map:?}");
        }
    }
    assert_eq!(lines.iter().map(|line| line.len() - 8).sum::<usize>(), map.len());
    wire.command(&["HELLO", "3"]);
    let shards = text(wire.ask("CLUSTER SHARDS"));
    assert_eq!(shards.matches("replication-offset").count(), 3, "{shards}");
    for (low, high, address) in &map {
        let (host, port) = address.rsplit_once(':').expect("an address");
        assert!(shards.contains(&format!(":{low}\r\n:{high}\r\n")), "{shards}");
        assert!(shards.contains(&format!(":{port}\r\n")) && shards.contains(host), "{shards}");
    }
    let info = text(wire.ask("CLUSTER INFO"));
    for line in
        ["cluster_state:ok", "cluster_slots_assigned:16384", "cluster_known_nodes:3", "cluster_size:3"]
    {
        assert!(info.contains(line), "{info}");
    }
    assert!(text(wire.ask("CLUSTER FAILOVER")).starts_with("-ERR 'CLUSTER FAILOVER' is not promised"));
    assert!(text(wire.ask("CLUSTER NONSENSE")).starts_with("-ERR unknown subcommand"));
}

#[test]
fn the_map_follows_when_a_node_is_lost() {
    let folder = Folder::new(3, "f = 1\nlease_ms = 500\n");
    let resp: Vec<String> = (0..3).map(|_| free_address()).collect();
    let mut nodes: Vec<Process> =
        (0..3).map(|node| Process::start_with_resp(&folder.file(), node, &resp[node])).collect();
    folder.wait_for(&[0, 1, 2], 3);
    let mut wire = Wire::connect(&resp[0]);
    until("all endpoints", || {
        resp.iter().all(|at| slots(&mut wire).iter().any(|range| range.2 == *at)).then_some(())
    });
    drop(nodes.pop());
    wait_for_members(&folder.config().doors(), &[0, 1]);
    let map = until("a map without the lost node", || {
        let map = slots(&mut wire);
        map.iter().all(|range| range.2 != resp[2]).then_some(map)
    });
    let mut client = Client::new([folder.config().doors()[0].clone()]);
    client.set_patience(PATIENCE);
    for key in (0..30).map(|key| format!("k{key}")) {
        let slot = integer(Wire::connect(&resp[1]).command(&["CLUSTER", "KEYSLOT", &key]));
        let primary = client.primaries(&[("redis", key.as_bytes())]).expect("located")[0];
        assert_eq!(at(&map, slot), resp[usize::from(primary)], "{key}");
    }
}

/// Debian's package `python3-redis`.
#[test]
fn redis_pys_client_of_clusters_asks_primaries_by_itself() {
    const PYTHON: &str = "/usr/bin/python3";
    let has = Command::new(PYTHON).args(["-c", "import redis.cluster"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: needs Debian's python3-redis");
        return;
    }
    let (_cluster, resp, metrics) = start("");
    let home = || metrics.iter().map(|at| metric(at, "reads_at_home_total")).sum::<u64>();
    let port = |address: &String| address.rsplit(':').next().expect("a port").to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/cluster.py");
    let before = home();
    let output = Command::new(PYTHON).arg(script).args(resp.iter().map(port)).output().expect("it runs");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let reads: u64 = said.trim().parse().expect("how many keys it has read");
    assert_eq!(home() - before, reads, "a read was not answered by its primary");
}
