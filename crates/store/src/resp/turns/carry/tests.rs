//! What is remembered, and a primary that dies while commands are carried to it: nothing is lost, and nothing is done twice.

use super::*;
use crate::client::Client;
use crate::config::ClusterConfig;
use crate::engine::Engine;
use crate::fresh::fresh_name;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn a_contested_row_is_remembered_for_a_while_and_few_are() {
    let mut shipping = Shipping::default();
    shipping.note(7, 100);
    assert!(shipping.is_contested(7, 100) && shipping.is_contested(7, 99 + CONTESTED_NS));
    assert!(!shipping.is_contested(7, 100 + CONTESTED_NS) && !shipping.is_contested(8, 100));
    (0..2 * CONTESTED_MAX as u64).for_each(|place| shipping.note(place, 200));
    assert_eq!(shipping.contested.len(), CONTESTED_MAX);
    shipping.note(u64::MAX, 300 + CONTESTED_NS);
    assert!(shipping.is_contested(u64::MAX, 300 + CONTESTED_NS));
    assert_eq!(shipping.contested.len(), 1, "what is over makes room");
}

struct Nodes {
    engines: Vec<Option<Engine>>,
    resp: Vec<String>,
    doors: Vec<String>,
    folder: PathBuf,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        (0..self.engines.len()).for_each(|node| self.end(node));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Nodes {
    fn start(count: u16) -> Nodes {
        let folder = std::env::temp_dir().join(format!("highwire-carry-{}", fresh_name().expect("a name")));
        std::fs::create_dir_all(&folder).expect("a folder");
        // All ports are there at the same time, so none is given twice.
        let listeners: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let mut addresses: Vec<String> =
            listeners.iter().map(|one| one.local_addr().expect("bound").to_string()).collect();
        drop(listeners);
        let resp = addresses.split_off(usize::from(count));
        let mut text = format!("register = {:?}\nf = 1\nlease_ms = 1000\n", folder.join("register"));
        for (id, door) in addresses.iter().enumerate() {
            text.push_str(&format!("[[node]]\nid = {id}\ndoor = \"{door}\"\n"));
        }
        let config = ClusterConfig::parse(&text).expect("a cluster");
        let engines = (0..count).map(|id| Some(Engine::start(&config, id).expect("a node"))).collect();
        let nodes = Nodes { engines, resp, doors: addresses, folder };
        for node in 0..nodes.engines.len() {
            nodes.store(node).open_resp(&nodes.resp[node]).expect("the endpoint");
        }
        nodes.wait_for(usize::from(count));
        nodes
    }

    fn store(&self, node: usize) -> &Store {
        self.engines[node].as_ref().expect("it runs").store()
    }

    fn end(&mut self, node: usize) {
        if let Some(engine) = self.engines[node].take() {
            engine.store().stop();
            engine.join().expect("no panic");
        }
    }

    fn wait_for(&self, members: usize) {
        let mut client = Client::new(self.doors.clone());
        until("all members", || {
            client
                .status()
                .is_ok_and(|status| status.is_open && status.is_settled && status.members.len() == members)
        });
    }

    fn carried(&self, node: usize, event: usize) -> u64 {
        self.store(node).hub.turns().carried()[event].1
    }
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Says lines, and returns as many replies of one line.
fn say(stream: &mut BufReader<TcpStream>, lines: &str) -> Vec<String> {
    stream.get_mut().write_all(lines.as_bytes()).expect("written");
    let reply = |_| {
        let mut reply = String::new();
        stream.read_line(&mut reply).expect("a reply");
        reply
    };
    lines.lines().map(reply).collect()
}

fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("the endpoint");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    BufReader::new(stream)
}

/// Two keys count upwards from numbers that are far apart, so that a reply tells of which one it is.
const FAR: i64 = 1_000_000_000;

/// What clients have heard of one key.
#[derive(Default)]
struct Heard {
    /// What each count that was confirmed has made of it.
    confirmed: BTreeSet<i64>,
    /// Counts of which the outcome is not known.
    unknown: i64,
    wrong: Vec<String>,
}

impl Heard {
    fn take(&mut self, reply: &str, from: i64) {
        match reply.strip_prefix(':').map(|number| number.trim().parse::<i64>()) {
            // A number that was there before is the same count, heard twice.
            Some(Ok(number)) if number / FAR * FAR == from && self.confirmed.insert(number) => {}
            None if reply.starts_with("-ERR it is not known") => self.unknown += 1,
            None if reply.starts_with("-TRYAGAIN") || reply.starts_with("-CLUSTERDOWN") => {}
            _ => self.wrong.push(reply.into()),
        }
    }
}

#[test]
fn a_primary_that_dies_with_what_was_carried_to_it_has_done_it_once_or_not_at_all() {
    let mut nodes = Nodes::start(3);
    let mut client = Client::new(nodes.doors.clone());
    let names: Vec<String> = (0..64).map(|key| format!("hot-{key}")).collect();
    let asked: Vec<(&str, &[u8])> = names.iter().map(|name| ("redis", name.as_bytes())).collect();
    let primaries = client.primaries(&asked).expect("located");
    let primary = usize::from(primaries[0]);
    let other_key = (1..64).find(|&key| primaries[key] == primaries[0]).expect("another key of this primary");
    let keys = [(&names[0], 0), (&names[other_key], FAR)];
    let others: Vec<usize> = (0..3).filter(|&node| node != primary).collect();
    let mut first = connect(&nodes.resp[others[0]]);
    for (key, from) in keys {
        until("a commit", || say(&mut first, &format!("SET {key} {from}\r\n")) == ["+OK\r\n"]);
    }
    let (heard, is_over) = (Mutex::new([Heard::default(), Heard::default()]), AtomicBool::new(false));
    let count = |resp: &str| {
        let mut stream = connect(resp);
        let lines: String = (0..6).map(|at| format!("INCR {}\r\n", keys[at % 2].0)).collect();
        while !is_over.load(Ordering::SeqCst) {
            let replies = say(&mut stream, &lines);
            let mut heard = heard.lock().expect("no panic");
            replies.iter().enumerate().for_each(|(at, reply)| heard[at % 2].take(reply, keys[at % 2].1));
        }
    };
    let resp = nodes.resp.clone();
    std::thread::scope(|scope| {
        // The clients end if an assertion fails here.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let _ends = Ends(&is_over);
        for at in 0..4 {
            let (count, resp) = (&count, &resp[others[at % 2]]);
            scope.spawn(move || count(resp));
        }
        until("commands that are carried", || {
            others.iter().map(|&node| nodes.carried(node, 0)).sum::<u64>() > 60
        });
        // What comes from now on is done, and nobody hears of it.
        nodes.store(primary).hub.turns().keeps_silent.store(true, Ordering::SeqCst);
        let before = nodes.carried(primary, 1);
        until("commands whose replies are lost", || nodes.carried(primary, 1) >= before + 6);
        nodes.end(primary);
        let unknown = |nodes: &Nodes| others.iter().map(|&node| nodes.carried(node, 3)).sum::<u64>();
        until("outcomes that are not known", || unknown(&nodes) >= 6);
        let of = |heard: &Mutex<[Heard; 2]>| {
            heard.lock().expect("no panic").iter().map(|heard| heard.confirmed.len()).sum::<usize>()
        };
        let before = of(&heard);
        until("clients that go on", || of(&heard) > before + 50);
    });
    let mut stream = connect(&nodes.resp[others[1]]);
    for (heard, (key, from)) in heard.into_inner().expect("no panic").iter().zip(keys) {
        assert!(heard.wrong.is_empty(), "{key}: {:?}", heard.wrong);
        let last = std::cell::Cell::new(0);
        until("an answer", || {
            let said = say(&mut stream, &format!("INCRBY {key} 0\r\n"));
            let number = said[0].strip_prefix(':').and_then(|number| number.trim().parse::<i64>().ok());
            last.set(number.unwrap_or_default());
            number.is_some()
        });
        let (done, confirmed) = (last.get() - from, heard.confirmed.len() as i64);
        assert!(confirmed <= done, "{key}: {confirmed} were confirmed, and {done} are there");
        assert!(
            done <= confirmed + heard.unknown,
            "{key}: {done} are there, {confirmed} confirmed and {} unknown",
            heard.unknown
        );
        assert!(heard.unknown > 0, "{key}: replies were lost");
    }
}
