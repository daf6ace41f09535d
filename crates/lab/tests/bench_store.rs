//! `highwire bench store`: its processes work together and its figures are consistent. Speed is not tested.

mod common;

use common::lab;
use serde_json::Value;

/// A few transactions, however long they take.
const FEW: [&str; 8] = ["bench", "store", "--keys", "600", "--transactions", "150", "--warm-up", "0s"];

fn json(args: &[&str]) -> Value {
    let output =
        lab([&FEW[..], args, &["--seconds", "600s", "--json"]].concat()).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("a document")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_workload_commits_on_every_node_over_either_link() {
    let runs = json(&["--workload", "tatp,smallbank,objects,ycsb"]);
    let others = json(&["--workload", "smallbank", "--link", "udp"]);
    let runs: Vec<&Value> =
        runs.as_array().into_iter().flatten().chain(others.as_array().into_iter().flatten()).collect();
    assert_eq!(runs.len(), 5);
    for run in runs {
        assert_eq!(run["problems"], Value::Array(Vec::new()), "{run}");
        let outcome = &run["outcomes"][0];
        assert!(outcome["committed_by_node"].as_array().is_some_and(|nodes| nodes.len() == 3), "{outcome}");
        assert_eq!(outcome["total"]["begun"], 450);
        assert_eq!(outcome["requests"], outcome["forecast"]);
        assert!(number(&outcome["committed_per_cpu_second"]) > 0.0);
        assert_eq!(number(&run["memory"]["copies"]), 3.0 * number(&run["memory"]["rows"]));
        let latency = &outcome["latency_ns"];
        assert!(number(&latency["p50"]) <= number(&latency["p99"]) && number(&latency["p50"]) > 0.0);
    }
}

#[test]
fn each_benchmark_has_a_name_of_its_own() {
    for (name, words) in
        [("tatp", &[][..]), ("objects", &["--reads", "3"][..]), ("ycsb", &["--theta", "0.5"][..])]
    {
        let words = [&["bench", name], &FEW[2..], words, &["--seconds", "600s", "--json"]].concat();
        let output = lab(words).output().expect("it starts");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let runs: Value = serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(runs[0]["workload"], name, "{runs}");
        assert_eq!(runs[0]["problems"], Value::Array(Vec::new()), "{runs}");
    }
}

#[test]
fn a_client_is_answered_over_tcp_and_by_rpcs() {
    let output = lab(["bench", "clients", "--rounds", "1", "--operations", "50", "--json"]).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sides: Value = serde_json::from_slice(&output.stdout).expect("a document");
    for way in ["tcp", "rpc"] {
        for what in ["get", "transaction"] {
            let times = &sides[way][what];
            assert_eq!(times["operations"], 50, "the turn before does not count: {sides}");
            assert!(number(&times["median_us"]) > 0.0, "{sides}");
        }
    }
}

#[test]
fn with_journals_commits_are_on_disks_and_nothing_is_left_there_in_the_end() {
    let parent = std::env::temp_dir().join(format!("highwire-bench-data-{}", std::process::id()));
    std::fs::create_dir_all(&parent).expect("a folder");
    let folder = parent.display().to_string();
    let runs = json(&["--workload", "tatp,smallbank", "--data", &folder]);
    for run in runs.as_array().expect("runs") {
        assert_eq!(run["problems"], Value::Array(Vec::new()), "{run}");
        assert_eq!(run["outcomes"][0]["total"]["begun"], 450);
        // Each row is in three journals, and each commit as well; a row's key and version are sixteen bytes.
        assert!(number(&run["journal_bytes"]) > 16.0 * number(&run["memory"]["copies"]), "{run}");
    }
    assert_eq!(json(&["--workload", "tatp"])[0]["journal_bytes"], Value::Null);
    std::fs::remove_dir(&parent).expect("an empty folder");
}

#[test]
fn contention_is_a_parameter_and_shows_in_the_share_of_aborts() {
    let runs = json(&["--workload", "smallbank", "--hot", "2,600", "--workers", "4"]);
    let outcomes = &runs[0]["outcomes"];
    let (few, many) = (number(&outcomes[0]["abort_rate"]), number(&outcomes[1]["abort_rate"]));
    assert!(few > 2.0 * many, "{few} with a hot set of two customers, {many} with all of them");
}

#[test]
fn half_the_load_is_offered_in_an_open_loop_and_said_to_be_kept_or_not() {
    let output = lab([
        "bench",
        "store",
        "--keys",
        "600",
        "--seconds",
        "300ms",
        "--warm-up",
        "0s",
        "--half-load",
        "--rate",
        "1e7",
        "--json",
    ])
    .output()
    .expect("it starts");
    assert_eq!(output.status.code(), Some(2), "a rate and half of one");
    let run = |more: &[&str]| -> Value {
        let words = ["bench", "store", "--keys", "600", "--seconds", "300ms", "--warm-up", "0s", "--json"];
        let output = lab([&words[..], more].concat()).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("a document")
    };
    let outcomes = run(&["--half-load"])[0]["outcomes"].clone();
    assert_eq!(outcomes[0]["open_loop"], Value::Null);
    let (closed, open) = (&outcomes[0], &outcomes[1]["open_loop"]);
    let finished = (number(&closed["total"]["commits"]) + number(&closed["total"]["refusals"]))
        / number(&closed["seconds"]);
    assert!((number(&open["offered_per_second"]) / finished - 0.5).abs() < 0.01, "{open}");
    assert!(open["is_kept"].is_boolean());
    let hopeless = run(&["--rate", "1e7"])[0]["outcomes"][0]["open_loop"].clone();
    assert_eq!((&hopeless["is_kept"], number(&hopeless["never_begun"]) > 0.0), (&Value::Bool(false), true));
}

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    let check = |args: &[&str], expected: &str| {
        let output = lab([&["bench", "store"], args].concat()).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    };
    check(&["--nodes", "2", "--replicas", "3"], "there are 2 nodes");
    check(&["--reads", "2", "--writes", "3"], "--writes 3");
    check(&["--hot", "700", "--keys", "600"], "not so many customers");
    check(&["--theta", "1"], "below 1");
    check(&["--rate", "0"], "above 0");
    check(&["--workload", "tpcc"], "tpcc");
}
