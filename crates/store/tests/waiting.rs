//! Clients that wait for an element, and subscribers of channels, at three nodes.

mod common;

use common::resp::Wire;
use common::{Cluster, Folder, Process, free_address, until};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Longer than these threads wait for a core.
const SETTINGS: &str = "f = 2\nlease_ms = 5000\n";

/// Three nodes, with their Redis endpoints and pages of metrics.
struct Nodes {
    _cluster: Cluster,
    resp: Vec<String>,
    metrics: Vec<String>,
}

impl Nodes {
    fn start() -> Nodes {
        let cluster = Cluster::start(3, SETTINGS);
        let (mut resp, mut metrics) = (Vec::new(), Vec::new());
        for engine in cluster.engines() {
            let (one, other) = (free_address(), free_address());
            engine.store().open_resp(&one).expect("the endpoint");
            engine.store().open_metrics(&other).expect("the page");
            resp.push(one);
            metrics.push(other);
        }
        let nodes = Nodes { _cluster: cluster, resp, metrics };
        // The cluster serves, and no change of members is under way.
        until("the first commit", || (nodes.client(0).ask("SET warm up") == b"+OK\r\n").then_some(()));
        nodes
    }

    fn client(&self, node: usize) -> Wire {
        Wire::connect(&self.resp[node])
    }

    fn metric(&self, node: usize, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.metrics[node]).expect("the page");
        stream.set_read_timeout(Some(common::PATIENCE)).expect("set");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("an answer");
        let name = format!("highwire_store_{name}");
        let line = page.lines().find(|line| line.split(' ').next() == Some(&name));
        let line = line.unwrap_or_else(|| panic!("{name} is missing: {page}"));
        line.rsplit(' ').next().expect("a value").parse().expect("a number")
    }

    /// A client that waits, when it does: `places` clients and keys wait at its node then.
    fn waiting(&self, node: usize, line: &str, places: u64) -> Wire {
        let mut wire = self.client(node);
        wire.write(format!("{line}\r\n"));
        until("a client that waits", || (self.metric(node, "waiting") == places).then_some(()));
        wire
    }

    /// What `INFO` says of clients that wait, however many keys each waits for.
    fn blocked(&self, node: usize) -> u64 {
        let info = text(self.client(node).ask("INFO clients"));
        let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        line.unwrap_or_else(|| panic!("{info}")).parse().expect("a number")
    }

    /// No client has found an element without a hint.
    fn check_hints(&self) {
        for node in 0..3 {
            assert_eq!(self.metric(node, "waits_total{event=\"rescued\"}"), 0, "node {node}");
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn an_element_that_is_added_at_any_node_wakes_who_waits() {
    let nodes = Nodes::start();
    for from in 0..3 {
        let mut list = nodes.waiting(0, "BLPOP none queue 0", 2);
        assert_eq!([nodes.blocked(0), nodes.blocked(1)], [1, 0]);
        assert_eq!(nodes.client(from).ask("RPUSH queue x"), b":1\r\n");
        assert_eq!(text(list.reply()), "*2\r\n$5\r\nqueue\r\n$1\r\nx\r\n");
        // It is served like any other from now on.
        assert_eq!(list.ask("LLEN queue"), b":0\r\n");
        let mut sorted = nodes.waiting(0, "BZPOPMIN none scores 0", 2);
        assert_eq!(nodes.client(from).ask("ZADD scores 2 b 1 a"), b":2\r\n");
        assert_eq!(text(sorted.reply()), "*3\r\n$6\r\nscores\r\n$1\r\na\r\n$1\r\n1\r\n");
        assert_eq!(sorted.ask("ZPOPMAX scores"), b"*2\r\n$1\r\nb\r\n$1\r\n2\r\n");
        let mut many = nodes.waiting(0, "BLMPOP 0 2 none queue RIGHT COUNT 2", 2);
        let mut pusher = nodes.client(from);
        pusher.write("MULTI\r\nRPUSH queue 1 2\r\nRPUSH queue 3\r\nEXEC\r\n");
        assert_eq!(text(many.reply()), "*2\r\n$5\r\nqueue\r\n*2\r\n$1\r\n3\r\n$1\r\n2\r\n");
        assert_eq!(many.ask("DEL queue"), b":1\r\n");
    }
    until("nobody waits", || (nodes.metric(0, "waiting") == 0).then_some(()));
    assert_eq!(nodes.blocked(0), 0);
    // One that has just come may find the element with its first look.
    let served = nodes.metric(0, "waits_total{event=\"served\"}");
    assert!((1..=9).contains(&served), "{served}");
    nodes.check_hints();
}

#[test]
fn who_came_first_is_served_first() {
    let nodes = Nodes::start();
    let mut all: Vec<Wire> = (1..=4).map(|places| nodes.waiting(0, "BLPOP queue 0", places)).collect();
    // One that waits for another key as well is not in the way of those behind it.
    all.push(nodes.waiting(0, "BLPOP other queue 0", 6));
    all.push(nodes.waiting(0, "BRPOP queue 0", 7));
    assert_eq!(nodes.client(1).ask("RPUSH other z"), b":1\r\n");
    assert_eq!(text(all[4].reply()), "*2\r\n$5\r\nother\r\n$1\r\nz\r\n");
    assert_eq!(nodes.client(2).ask("RPUSH queue a b c d e"), b":5\r\n");
    for (at, element) in [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (5, "e")] {
        assert_eq!(text(all[at].reply()), format!("*2\r\n$5\r\nqueue\r\n$1\r\n{element}\r\n"));
    }
    // A newcomer does not overtake one that waits, even if there is an element.
    let first = nodes.waiting(0, "BLMOVE queue target LEFT LEFT 0", 1);
    let mut second = nodes.waiting(0, "BLPOP queue 0", 2);
    assert_eq!(nodes.client(0).ask("SET target string"), b"+OK\r\n");
    assert_eq!(nodes.client(0).ask("RPUSH queue f"), b":1\r\n");
    let mut first = first;
    assert!(text(first.reply()).starts_with("-WRONGTYPE"));
    // The one that could not take it has left it to the next.
    assert_eq!(text(second.reply()), "*2\r\n$5\r\nqueue\r\n$1\r\nf\r\n");
    nodes.check_hints();
}

#[test]
fn an_element_that_moves_wakes_the_next_who_waits_for_it() {
    let nodes = Nodes::start();
    let mut last = nodes.waiting(2, "BLPOP third 0", 1);
    let mut second = nodes.waiting(1, "BRPOPLPUSH second third 0", 1);
    let mut first = nodes.waiting(0, "BLMOVE first second LEFT RIGHT 0", 1);
    assert_eq!(nodes.client(1).ask("LPUSH first x"), b":1\r\n");
    assert_eq!([first.reply(), second.reply()].map(text), ["$1\r\nx\r\n", "$1\r\nx\r\n"]);
    assert_eq!(text(last.reply()), "*2\r\n$5\r\nthird\r\n$1\r\nx\r\n");
    nodes.check_hints();
}

#[test]
fn a_wait_ends_with_its_time_or_its_connection_and_takes_nothing() {
    let nodes = Nodes::start();
    let mut wire = nodes.client(0);
    assert_eq!(wire.ask("BLPOP queue 0.01"), b"*-1\r\n");
    assert_eq!(wire.ask("BZMPOP 0.01 2 queue other MIN"), b"*-1\r\n");
    assert_eq!(wire.ask("BLMOVE queue other LEFT LEFT 0.01"), b"*-1\r\n");
    // Commands behind it are carried out after it, and in their order.
    wire.write("BLPOP queue 0.01\r\nRPUSH queue a\r\nBLPOP queue 0\r\nLLEN queue\r\n");
    let replies: Vec<String> = (0..4).map(|_| text(wire.reply())).collect();
    assert_eq!(replies, ["*-1\r\n", ":1\r\n", "*2\r\n$5\r\nqueue\r\n$1\r\na\r\n", ":0\r\n"]);
    // Two that are gone, one in the middle of its next command.
    let gone = nodes.waiting(0, "BLPOP queue 0", 1);
    let mut talks = nodes.waiting(0, "BLPOP queue 0", 2);
    talks.write("*3\r\n$3\r\nSET\r\n$1\r\nk");
    let mut stays = nodes.waiting(0, "BLPOP queue 0", 3);
    drop((gone, talks));
    until("they are gone", || (nodes.metric(0, "waiting") == 1).then_some(()));
    assert_eq!(nodes.client(1).ask("RPUSH queue b c"), b":2\r\n");
    assert_eq!(text(stays.reply()), "*2\r\n$5\r\nqueue\r\n$1\r\nb\r\n");
    assert_eq!(text(nodes.client(2).ask("LRANGE queue 0 -1")), "*1\r\n$1\r\nc\r\n");
    // One that sends without end loses its connection.
    let mut floods = nodes.waiting(0, "BLPOP nothing 0", 1);
    floods.write(vec![b'x'; 2 << 20]);
    until("its end", || (nodes.metric(0, "waiting") == 0).then_some(()));
    assert!(text(floods.reply()).starts_with("-ERR at most 1048576 bytes may follow"));
    nodes.check_hints();
}

#[test]
fn in_a_transaction_nobody_waits_and_what_is_added_there_wakes() {
    let nodes = Nodes::start();
    let mut wire = nodes.client(0);
    for line in ["MULTI", "BLPOP queue 0", "BLMOVE queue other LEFT LEFT 0", "RPUSH queue a", "BRPOP queue 0"]
    {
        wire.ask(line);
    }
    assert_eq!(text(wire.ask("EXEC")), "*4\r\n*-1\r\n$-1\r\n:1\r\n*2\r\n$5\r\nqueue\r\n$1\r\na\r\n");
    let mut waits = nodes.waiting(1, "BLPOP queue 0", 1);
    for line in
        ["MULTI", "RPUSH queue gone", "LPOP queue", "EXEC", "MULTI", "ZADD queue 1 x", "EXEC", "DEL queue"]
    {
        wire.ask(line);
    }
    // A key that has held something else meanwhile is waited for.
    for line in ["MULTI", "SET queue string", "DEL queue", "RPUSH queue b", "EXEC"] {
        wire.ask(line);
    }
    assert_eq!(text(waits.reply()), "*2\r\n$5\r\nqueue\r\n$1\r\nb\r\n");
    nodes.check_hints();
}

#[test]
fn messages_reach_the_subscribers_of_all_nodes() {
    let nodes = Nodes::start();
    let (mut one, mut other, mut pattern) = (nodes.client(0), nodes.client(2), nodes.client(1));
    assert_eq!(
        [one.ask("SUBSCRIBE news sport"), one.reply()].map(text),
        ["*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n", "*3\r\n$9\r\nsubscribe\r\n$5\r\nsport\r\n:2\r\n"]
    );
    other.ask("HELLO 3");
    assert_eq!(text(other.ask("SUBSCRIBE news")), ">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    assert_eq!(text(pattern.ask("PSUBSCRIBE n?ws")), "*3\r\n$10\r\npsubscribe\r\n$4\r\nn?ws\r\n:1\r\n");
    for node in 0..3 {
        let payload = format!("from-{node}");
        assert_eq!(nodes.client(node).ask(&format!("PUBLISH news {payload}")), b":3\r\n");
        let rest = format!("$4\r\nnews\r\n$6\r\n{payload}\r\n");
        assert_eq!(text(one.reply()), format!("*3\r\n$7\r\nmessage\r\n{rest}"));
        assert_eq!(text(other.reply()), format!(">3\r\n$7\r\nmessage\r\n{rest}"));
        assert_eq!(text(pattern.reply()), format!("*4\r\n$8\r\npmessage\r\n$4\r\nn?ws\r\n{rest}"));
    }
    // Messages of one publisher keep their order.
    let mut publisher = nodes.client(1);
    publisher.write("PUBLISH sport 1\r\nPUBLISH sport 2\r\nPUBLISH nobody 3\r\n");
    assert_eq!(
        [publisher.reply(), publisher.reply(), publisher.reply()].map(text),
        [":1\r\n", ":1\r\n", ":0\r\n"]
    );
    for payload in [1, 2] {
        assert_eq!(text(one.reply()), format!("*3\r\n$7\r\nmessage\r\n$5\r\nsport\r\n$1\r\n{payload}\r\n"));
    }
    // A message that is queued is sent if the transaction commits.
    for line in ["MULTI", "PUBLISH sport 4", "SET a b"] {
        publisher.ask(line);
    }
    assert_eq!(publisher.ask("EXEC"), b"*2\r\n:1\r\n+OK\r\n");
    assert!(text(one.reply()).ends_with("$1\r\n4\r\n"));
    // In the second version a subscriber does nothing else; in the third it does.
    assert!(text(one.ask("GET warm")).starts_with("-ERR Can't execute 'get'"));
    assert_eq!(text(one.ask("PING")), "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    assert_eq!(text(other.ask("GET warm")), "$2\r\nup\r\n");
    assert_eq!(text(nodes.client(0).ask("PUBSUB NUMSUB news sport nobody")).matches(":1").count(), 2);
    assert_eq!(nodes.client(1).ask("PUBSUB NUMPAT"), b":1\r\n");
    assert_eq!(text(nodes.client(0).ask("PUBSUB CHANNELS n*")), "*1\r\n$4\r\nnews\r\n");
    // Who has left, or is gone, gets no more.
    assert_eq!(text(one.ask("UNSUBSCRIBE news")), "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    drop(other);
    until("it is gone", || (nodes.metric(2, "subscriptions") == 0).then_some(()));
    assert_eq!(nodes.client(2).ask("PUBLISH news last"), b":1\r\n");
    assert!(text(pattern.reply()).ends_with("$4\r\nlast\r\n"));
    // One that leaves all is an ordinary client again.
    assert_eq!(text(one.ask("UNSUBSCRIBE")), "*3\r\n$11\r\nunsubscribe\r\n$5\r\nsport\r\n:0\r\n");
    assert_eq!(text(one.ask("GET warm")), "$2\r\nup\r\n");
    assert!(text(one.ask("SUBSCRIBE x")).starts_with("*3"));
    assert_eq!(text(one.ask("RESET")), "+RESET\r\n");
    until("it has left", || (nodes.metric(0, "subscriptions") == 0).then_some(()));
}

#[test]
fn a_subscriber_that_waits_for_an_element_gets_its_messages() {
    let nodes = Nodes::start();
    let mut wire = nodes.client(0);
    wire.ask("HELLO 3");
    wire.ask("SUBSCRIBE news");
    wire.write("BLPOP queue 0\r\n");
    until("it waits", || (nodes.metric(0, "waiting") == 1).then_some(()));
    assert_eq!(nodes.client(1).ask("PUBLISH news x"), b":1\r\n");
    assert!(text(wire.reply()).starts_with(">3\r\n$7\r\nmessage"));
    assert_eq!(nodes.client(1).ask("RPUSH queue y"), b":1\r\n");
    assert_eq!(text(wire.reply()), "*2\r\n$5\r\nqueue\r\n$1\r\ny\r\n");
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected_and_disturbs_no_other() {
    let nodes = Nodes::start();
    let (mut slow, mut quick) = (nodes.client(0), nodes.client(0));
    slow.ask("SUBSCRIBE news");
    quick.ask("SUBSCRIBE news");
    let payload = "x".repeat(1 << 20);
    let mut publisher = nodes.client(1);
    let mut published = 0;
    until("its end", || {
        let reached = text(publisher.command(&["PUBLISH", "news", &payload]));
        assert!(quick.reply().len() > 1 << 20, "{published}");
        published += 1;
        assert!(published < 200, "nobody is disconnected");
        (reached == ":1\r\n").then_some(())
    });
    until("it is counted", || {
        (nodes.metric(0, "connections_ended_total{why=\"subscriber\"}") == 1).then_some(())
    });
    assert!(nodes.metric(0, "messages_dropped_total") >= 1);
    until("its memory is free", || (nodes.metric(0, "held_bytes") == 0).then_some(()));
    assert_eq!(nodes.metric(0, "subscriptions"), 1);
    assert!(nodes.metric(0, "held_bytes_max") <= 40 << 20);
    // What it had not read is lost with its connection, which ends.
    let mut rest = 0;
    while let Some(reply) = slow.try_reply() {
        rest += reply.len();
    }
    assert!(rest < published * (payload.len() + 100));
}

#[test]
fn a_killed_node_takes_nothing_with_it_and_the_others_go_on() {
    let folder = Folder::new(3, "f = 1\nlease_ms = 500\n");
    let resp: Vec<String> = (0..3).map(|_| free_address()).collect();
    let mut processes: Vec<Process> =
        (0..3).map(|node| Process::start_with_resp(&folder.file(), node, &resp[node])).collect();
    folder.wait_for(&[0, 1, 2], 3);
    let mut dies = Wire::connect(&resp[2]);
    dies.write("BLPOP queue 0\r\n");
    let mut subscriber = Wire::connect(&resp[0]);
    subscriber.ask("SUBSCRIBE news");
    // It waits: what is added elsewhere reaches it.
    assert_eq!(Wire::connect(&resp[1]).ask("RPUSH queue first"), b":1\r\n");
    assert_eq!(text(dies.reply()), "*2\r\n$5\r\nqueue\r\n$5\r\nfirst\r\n");
    dies.write("BLPOP queue 0\r\n");
    let mut waits = Wire::connect(&resp[0]);
    waits.write("BLPOP queue 0\r\n");
    drop(processes.pop());
    folder.wait_for(&[0, 1], 2);
    let mut pusher = Wire::connect(&resp[1]);
    until("an element is added", || pusher.ask("RPUSH queue second").starts_with(b":").then_some(()));
    assert_eq!(text(waits.reply()), "*2\r\n$5\r\nqueue\r\n$6\r\nsecond\r\n");
    assert_eq!(pusher.ask("PUBLISH news x"), b":1\r\n");
    assert!(text(subscriber.reply()).ends_with("$1\r\nx\r\n"));
}

#[test]
fn this_process_is_a_node() {
    common::be_a_node_if_asked();
}
