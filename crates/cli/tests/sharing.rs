//! Processes that share an address, as they come and go. What is checked is what is left and what was lost, never times.

mod common;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use common::highwire;
use serde_json::Value;

/// An address of this test alone.
fn address(last: u8) -> String {
    let [.., c, d] = std::process::id().to_be_bytes();
    format!("127.{}.{c}.{}", 160 + last, d.clamp(1, 254))
}

fn json(command: &mut Command) -> Value {
    let output = command.arg("--json").output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("it prints one document")
}

/// A process with a part of the address; it ends with its input.
fn sharer(address: &str) -> Child {
    let mut child = start_sharer(address);
    until_it_has_its_part(&mut child);
    child
}

fn start_sharer(address: &str) -> Child {
    highwire(["churn", "--role", "echo", "--address", address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts")
}

fn until_it_has_its_part(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it speaks");
    assert!(line.starts_with("endpoint "), "{line}");
}

#[test]
fn a_shared_device_is_listed_with_those_who_share_it() {
    let address = address(1);
    let list = || json(highwire(["devices"]).env("HIGHWIRE_ADDR", &address))[0].clone();
    let before = list();
    assert_eq!((&before["name"], &before["address"]), (&"hw0".into(), &address.as_str().into()));
    assert_eq!((&before["state"], before["processes"].as_array().map(Vec::len)), (&"active".into(), Some(0)));
    let mut sharers = [sharer(&address), sharer(&address)];
    let during = list();
    let pids: Vec<u64> = (0..2).filter_map(|index| during["processes"][index]["pid"].as_u64()).collect();
    assert_eq!(pids, sharers.each_ref().map(|child| u64::from(child.id())), "{during}");
    assert_eq!((&during["shared"], &during["links"][0]), (&true.into(), &"shm".into()));
    for child in &mut sharers {
        child.kill().expect("kills");
        child.wait().expect("ends");
    }
}

#[test]
fn those_who_come_first_together_get_one_broker() {
    let address = address(5);
    let mut children: Vec<Child> = (0..8).map(|_| start_sharer(&address)).collect();
    children.iter_mut().for_each(until_it_has_its_part);
    let device = json(highwire(["devices"]).env("HIGHWIRE_ADDR", &address))[0].clone();
    let parts: std::collections::BTreeSet<u64> =
        (0..8).filter_map(|index| device["processes"][index]["shard"].as_u64()).collect();
    assert_eq!(parts.len(), children.len(), "{device}");
    for child in &mut children {
        drop(child.stdin.take());
        child.kill().expect("kills");
        child.wait().expect("ends");
    }
}

#[test]
fn whoever_has_the_port_is_named_with_the_ways_out() {
    let address = address(2);
    let socket = UdpSocket::bind((address.as_str(), 4791)).expect("a port");
    let device = json(highwire(["devices"]).env("HIGHWIRE_ADDR", &address))[0].clone();
    assert_eq!(device["state"], "unavailable");
    // As a program hears it whose device cannot be opened.
    let output = highwire(["churn", "--role", "visitor", "--address", &address]).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    for text in [device["reason"].as_str().unwrap_or_default(), &error] {
        let who = format!("process {}", std::process::id());
        assert!(
            text.contains(&who) && text.contains("Two ways out") && text.contains("HIGHWIRE_ADDR"),
            "{text}"
        );
    }
    drop(socket);
}

#[test]
fn a_broker_that_cannot_be_started_is_said_with_the_reason() {
    let address = address(3);
    for (broker, expected) in [("/nowhere/highwire", "/nowhere/highwire"), ("/bin/true", "without a word")] {
        let output = highwire(["churn", "--role", "visitor", "--address", &address])
            .env("HIGHWIRE_BROKER", broker)
            .output()
            .expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(expected), "{error}");
    }
}

/// The broker of an address, found as anybody would find it.
fn broker_pid(address: &str) -> Option<String> {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let mut found = processes.filter(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.contains(&b"broker".as_slice()) && words.contains(&address.as_bytes())
    });
    found.next().and_then(|process| process.file_name().into_string().ok())
}

#[test]
fn a_killed_broker_leaves_those_who_are_there_alone_and_the_address_usable() {
    let address = address(4);
    let mut child = sharer(&address);
    let broker = broker_pid(&address).expect("a broker");
    assert!(Command::new("kill").args(["-9", &broker]).status().expect("it starts").success());
    let device = || json(highwire(["devices"]).env("HIGHWIRE_ADDR", &address))[0].clone();
    // Its end takes a moment. Whoever holds the port is then whoever has a part of the address.
    let who = format!("process {}", child.id());
    while broker_pid(&address).is_some() {}
    let during = device();
    assert!(during["reason"].as_str().is_some_and(|text| text.contains(&who)), "{during}");
    assert!(child.try_wait().expect("a status").is_none(), "it goes on");
    child.kill().expect("kills");
    child.wait().expect("ends");
    assert_eq!(device()["state"], "active");
    // Whoever starts a broker, for whichever address, clears away what a killed one left.
    let registry = highwire_link::shm::Registry::open().expect("a registry");
    let ip = address.parse().expect("an address");
    let mut other = sharer(&self::address(6));
    assert!(!registry.is_shared(ip));
    other.kill().expect("kills");
    other.wait().expect("ends");
    let mut next = sharer(&address);
    assert_eq!(device()["processes"][0]["pid"], next.id());
    next.kill().expect("kills");
    next.wait().expect("ends");
}
