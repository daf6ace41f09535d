//! Processes that share an address, as they come and go. The tests check traces and losses, never times.

mod common;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use common::{highwire, lab};
use highwire_host::broker;
use highwire_link::shm::Registry;
use serde_json::Value;

/// An address that only this test uses.
fn address(last: u8) -> String {
    let (d, rest) = (std::process::id() % 254 + 1, std::process::id() / 254);
    format!("127.{}.{}.{d}", 160 + last, rest as u8)
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
    lab(["churn", "--role", "echo", "--address", address])
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
    // The message that a program gets whose device cannot be opened.
    let output = lab(["churn", "--role", "visitor", "--address", &address]).output().expect("it starts");
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
        let output = lab(["churn", "--role", "visitor", "--address", &address])
            .env("HIGHWIRE_BROKER", broker)
            .output()
            .expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(expected), "{error}");
    }
}

#[test]
fn a_killed_broker_leaves_those_who_are_there_alone_and_the_address_usable() {
    let address = address(4);
    let registry = Registry::open().expect("a registry");
    let ip = address.parse().expect("an address");
    let kill_broker = || {
        let pid = broker::process(&registry, ip).expect("a broker");
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().expect("it starts").success());
        pid
    };
    let mut child = sharer(&address);
    let killed = kill_broker();
    let device = || json(highwire(["devices"]).env("HIGHWIRE_ADDR", &address))[0].clone();
    // Waits until the next broker is there, and asks again then.
    while broker::process(&registry, ip).is_none_or(|pid| pid == killed) {
        let during = device();
        assert_eq!(
            (&during["state"], &during["processes"][0]["pid"]),
            (&"active".into(), &child.id().into())
        );
    }
    assert!(child.try_wait().expect("a status").is_none(), "it goes on");
    // Now no process is left that would restore the broker. The process takes a moment to end.
    child.kill().expect("kills");
    child.wait().expect("ends");
    kill_broker();
    while broker::process(&registry, ip).is_some() || UdpSocket::bind((ip, 4791)).is_err() {}
    assert_eq!(device()["state"], "active");
    // A process that starts a broker, for any address, removes the traces of a killed one, unless another
    // process is doing so.
    for last in 6.. {
        let mut other = sharer(&self::address(last));
        other.kill().expect("kills");
        other.wait().expect("ends");
        if !registry.is_shared(ip) {
            break;
        }
        assert!(last < 20, "it stays");
    }
    let mut next = sharer(&address);
    assert_eq!(device()["processes"][0]["pid"], next.id());
    next.kill().expect("kills");
    next.wait().expect("ends");
}

#[test]
fn a_registry_that_others_can_enter_is_refused_with_the_reason() {
    use std::os::unix::fs::PermissionsExt;
    let root = std::env::temp_dir().join(format!("highwire-open-{}", std::process::id()));
    std::fs::create_dir(&root).expect("a directory");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).expect("its owner may");
    for arguments in [&["churn"][..], &["churn", "--role", "visitor"], &["devices"]] {
        let mut command = if arguments == ["devices"] { highwire(arguments) } else { lab(arguments) };
        let output = command.env("HIGHWIRE_SHM_DIR", &root).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let directory = root.display().to_string();
        assert!(
            output.status.code() == Some(1) && error.contains(&directory) && error.contains("must be 0700"),
            "{arguments:?}: {error}"
        );
        assert_eq!(error.lines().count(), 1, "it is said once: {error}");
    }
    std::fs::remove_dir(&root).expect("nothing was put there");
}

#[test]
fn processes_that_come_go_and_are_killed_leave_nothing_and_disturb_nobody() {
    let arguments = ["--processes", "14", "--steps", "60", "--seed", "7", "--broker-kills", "3"];
    let report = json(lab(["churn"]).args(arguments));
    let number = |name: &str| report[name].as_u64().unwrap_or(0);
    assert!(number("killed") > 0 && number("ended") > 0 && number("orphaned") > 0, "{report}");
    assert!(number("echoes") > 0 && number("brokers_killed") > 0, "{report}");
    assert_eq!(report["left_behind"].as_array().map(Vec::len), Some(0), "{report}");
}
