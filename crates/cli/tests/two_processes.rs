//! Two `highwire` processes exchange real packets. The tests check their output, never their speed.

mod common;

use std::process::Output;

use common::highwire;
use serde_json::Value;

fn json(words: &str) -> Value {
    let Output { status, stdout, stderr } =
        highwire(words.split_whitespace()).arg("--json").output().expect("it starts");
    let error = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "highwire {words}: {error}");
    serde_json::from_slice(&stdout).expect("it prints one document")
}

fn counter(document: &Value, side: &str, name: &str) -> u64 {
    document[side][name].as_u64().unwrap_or(0)
}

#[test]
fn every_byte_comes_back_over_both_links_and_all_services() {
    for link in ["udp", "shm"] {
        for service in ["rc", "uc", "ud"] {
            let document = json(&format!("pingpong --iters 50 --link {link} --service {service}"));
            let (messages, lost) = (&document["messages"], &document["lost"]);
            assert_eq!(messages.as_u64().zip(lost.as_u64()), Some((50, 0)), "{link} {service}: {document}");
        }
    }
}

#[test]
fn long_messages_come_back() {
    let document = json("pingpong --iters 5 --size 1M --link udp");
    assert_eq!(document["messages"], 5);
}

#[test]
fn a_lossy_network_loses_nothing_of_a_reliable_connection() {
    for recovery in ["irn", "go-back-n"] {
        let words = format!(
            "pingpong --iters 100 --size 20000 --recovery {recovery} --loss 2% --dup 2% --reorder 2% --corrupt 1% --seed 7"
        );
        let document = json(&words);
        assert_eq!(document["messages"], 100, "{recovery}");
        let resent = counter(&document, "counters_here", "retransmitted")
            + counter(&document, "counters_there", "retransmitted");
        assert!(resent > 0, "{recovery}: with so many faults something is sent again: {document}");
    }
}

#[test]
fn shared_memory_has_faults_where_they_are_asked_for() {
    let echo = json("pingpong --iters 100 --link shm --loss 5% --seed 7");
    let write = json("perf write bw --iters 500 --size 4K --link shm --loss 1% --no-floor");
    for document in [&echo, &write] {
        assert_eq!(document["link"], "shared_memory");
        let either = |name| ["counters_here", "counters_there"].map(|side| counter(document, side, name));
        assert!(either("fault_dropped").iter().sum::<u64>() > 0, "{document}");
        assert_eq!(either("direct"), [0, 0], "nothing gets around them: {document}");
    }
    assert_eq!((&echo["messages"], &write["messages"]), (&100.into(), &500.into()));
}

#[test]
fn every_operation_can_be_measured() {
    for operation in ["send", "write", "read", "atomic"] {
        for link in ["udp", "shm"] {
            let lat = json(&format!("perf {operation} lat --iters 200 --link {link} --no-floor"));
            assert_eq!((&lat["samples"], &lat["lost"]), (&200.into(), &0.into()), "{operation} {link}");
            let size = if operation == "atomic" { "" } else { "--size 4K" };
            let bw = json(&format!("perf {operation} bw --iters 300 {size} --link {link} --no-floor"));
            assert_eq!(bw["messages"], 300, "{operation} {link}");
        }
    }
}

#[test]
fn one_sided_operations_within_a_machine_need_no_packets() {
    // The first requests meet an unknown neighbour, and go as packets. Deeper pipelines would stay with
    // packets as long as one is in flight, which is a matter of chance.
    for operation in ["write", "read", "atomic"] {
        let words = format!("perf {operation} bw --iters 2000 --depth 1 --link shm --size 8 --no-floor");
        let document = json(&words);
        let direct = counter(&document, "counters_here", "direct");
        assert!(direct > 1900, "{operation}: the peer's memory is at hand: {document}");
    }
}

#[test]
fn the_machine_decides_for_shared_memory() {
    let document = json("perf send lat --iters 100 --no-floor");
    assert_eq!(document["link"], "shared_memory");
}

#[test]
fn a_recorded_run_can_be_read_back() {
    let folder = std::env::temp_dir().join(format!("highwire-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let file = folder.join("lossy.pcap");
    for link in ["udp", "shm"] {
        let words = format!("perf write bw --iters 50 --size 8K --loss 2% --no-floor --link {link} --pcap");
        let output = highwire(words.split_whitespace()).arg(&file).output().expect("it starts");
        assert!(output.status.success(), "{link}: {}", String::from_utf8_lossy(&output.stderr));
        let summary = highwire(["pcap", "--summary"]).arg(&file).output().expect("it starts");
        let text = String::from_utf8_lossy(&summary.stdout).into_owned();
        assert!(summary.status.success(), "{link}: {text}");
        assert!(text.contains("every ICRC is right") && text.contains("0 not RoCEv2"), "{link}: {text}");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_device_is_listed_with_its_address() {
    let document = json("devices");
    assert_eq!(document[0]["protocol"], "RoCEv2");
    let address = document[0]["address"].as_str().unwrap_or_default();
    assert!(address.parse::<std::net::IpAddr>().is_ok(), "{document}");
}

#[test]
fn stats_without_a_device_say_so() {
    let output = highwire(["stats", "203.0.113.1"]).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no device of yours runs at 203.0.113.1"), "{error}");
}
