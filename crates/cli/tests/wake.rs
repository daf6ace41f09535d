//! `highwire bench wake`, `server` and `idle`: they measure, and they find a lost wake-up. Times are not
//! tested.

mod common;

use common::highwire;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let output = highwire(args).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("a document")
}

#[test]
fn every_strategy_has_a_row_in_every_scene() {
    let rows = json(&["bench", "wake", "--quick", "--rounds", "1", "--turn-ms", "2", "--json"]);
    let rows = rows.as_array().expect("a list");
    for strategy in ["busy-poll", "event", "dispatcher", "leader-follower", "affine", "adaptive"] {
        let of = rows.iter().filter(|row| row["strategy"] == strategy && row["priority"] == "usual");
        // One thread; and 16, with own and other events, for all but those that would only spin: on two cores and on one, idle and busy.
        let expected = if strategy == "busy-poll" { 4 } else { 12 };
        assert_eq!(of.clone().count(), expected, "{strategy}");
        assert!(of.clone().all(|row| row["events"].as_u64() > Some(0)), "{strategy}: nothing happened");
        let urgent = rows.iter().filter(|row| row["strategy"] == strategy && row["priority"] == "fifo");
        // Beside the thread that computes, where this process may; never for one that would keep all others from running.
        let most = if strategy == "busy-poll" { 0 } else { 3 };
        assert!(urgent.clone().count() == most || urgent.count() == 0, "{strategy}");
    }
}

#[test]
fn a_curve_has_every_strategy_at_every_pace() {
    let curve = [
        "bench",
        "wake",
        "--pause-us",
        "0,500",
        "--threads",
        "4",
        "--rounds",
        "1",
        "--turn-ms",
        "3",
        "--json",
    ];
    let rows = json(&curve);
    let rows = rows.as_array().expect("a list");
    for strategy in ["event", "dispatcher", "leader-follower", "affine", "adaptive"] {
        let events = |pause: u64| {
            let row = rows.iter().filter(|row| row["strategy"] == strategy && row["pause_us"] == pause);
            let rows: Vec<&Value> = row.collect();
            assert_eq!(rows.len(), 1, "{strategy} after {pause} µs: {rows:?}");
            rows[0]["events"].as_u64().expect("a number")
        };
        assert!(events(0) > 0);
        // A turn of 3 ms has room for seven of them, and one more is under way when it is over.
        assert!((1..=8).contains(&events(500)), "{strategy}: no pause");
    }
}

#[test]
fn every_server_answers() {
    let rows = json(&["bench", "server", "--quick", "--turn-ms", "20", "--json"]);
    let rows = rows.as_array().expect("a list");
    // Four modes, poll and epoll over each of two links; threads and epoll over TCP.
    assert_eq!(rows.len(), 2 * 6 + 2, "{rows:?}");
    assert!(rows.iter().all(|row| row["per_second"].as_f64() > Some(0.0)), "{rows:?}");
}

#[test]
fn a_soak_loses_nothing() {
    let soak = ["bench", "wake", "--soak", "20000", "--threads", "1,16", "--patience", "60"];
    let output = highwire(soak).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("20000 events, 20000 answers, none lost"), "{text}");
}

#[test]
fn a_soak_goes_on_where_its_record_ends() {
    let record = std::env::temp_dir().join(format!("highwire-soaked-{}.json", std::process::id()));
    let soak = |events: &str| {
        let words =
            ["bench", "wake", "--soak", events, "--threads", "4", "--strategy", "event", "--patience", "60"];
        let output = highwire(words).arg("--record").arg(&record).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(soak("300").starts_with("300 events, 300 answers, none lost, in 1 turns"));
    assert!(soak("500").starts_with("500 events, 500 answers, none lost, in 2 turns"));
    assert!(
        soak("500").starts_with("500 events, 500 answers, none lost, in 2 turns"),
        "there was nothing left to do"
    );
    std::fs::remove_file(&record).expect("it was kept");
}

/// Planted: the thread that finds the hundredth event wakes no other. One event at a time: the next event for
/// the same thread would wake it for both.
#[test]
fn a_soak_finds_the_event_that_nobody_was_told_of() {
    for strategy in ["event", "dispatcher", "affine"] {
        let soak = ["bench", "wake", "--soak", "1000", "--threads", "4", "--strategy", strategy];
        let planted = ["--plant-lost", "100", "--patience", "2", "--depth", "1"];
        let output = highwire([&soak[..], &planted].concat()).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("an event was lost"), "{strategy}: {text}");
    }
}

/// A tenth of a per cent of a core is the aim. The bound is generous, and on CPU time, so that other programs do not matter.
#[test]
fn threads_that_wait_for_nothing_take_next_to_nothing() {
    for mode in ["latency", "balanced", "power"] {
        let idle = json(&["bench", "idle", "--threads", "512", "--seconds", "3", "--wake", mode, "--json"]);
        let share = idle["share"].as_f64().expect("a number");
        assert!(share < 0.02, "{mode}: {share} of a core");
    }
}
