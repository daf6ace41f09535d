//! `highwire bench wake`, `bells`, `server` and `idle`: they measure, and they find a lost wake-up. Times are not
//! tested.

mod common;

use common::lab;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let output = lab(args).output().expect("it starts");
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
fn every_bell_wakes_its_sleeper_in_every_place() {
    let rows = json(&["bench", "bells", "--rounds", "2", "--turn-ms", "3", "--json"]);
    let rows = rows.as_array().expect("a list");
    for way in ["datagram", "pipe", "event-descriptor", "futex"] {
        let of = rows.iter().filter(|row| row["way"] == way);
        let places: Vec<_> = of.clone().map(|row| (row["cores"].as_u64(), row["busy"].as_bool())).collect();
        let all = [(1, false), (1, true), (2, false), (2, true)];
        assert_eq!(places, all.map(|(cores, busy)| (Some(cores), Some(busy))), "{way}");
        assert!(of.clone().all(|row| row["wakes"].as_u64() >= Some(4)), "{way}: no turn there and back");
    }
}

#[test]
fn every_server_answers() {
    let rows = json(&["bench", "server", "--quick", "--turn-ms", "20", "--json"]);
    let rows = rows.as_array().expect("a list");
    // Five modes, poll and epoll over each of two links; threads and epoll over TCP.
    assert_eq!(rows.len(), 2 * 7 + 2, "{rows:?}");
    assert!(rows.iter().all(|row| row["per_second"].as_f64() > Some(0.0)), "{rows:?}");
}

fn soak(args: &[&str]) -> (bool, String) {
    let output = lab([&["bench", "wake", "--soak"], args].concat()).output().expect("it starts");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

#[test]
fn a_soak_loses_nothing_and_says_how_events_were_found() {
    let (is_well, text) = soak(&["20000", "--threads", "1,16", "--patience", "60"]);
    assert!(is_well && text.contains("20000 events, 20000 taken, no wake-up lost, in 5 turns"), "{text}");
    for strategy in ["event", "dispatcher", "leader-follower", "affine", "adaptive"] {
        assert!(text.contains(&format!("  {strategy:<16}{:>14}", 4000)), "{strategy}: {text}");
    }
    let (is_well, text) = soak(&["20000", "--threads", "1"]);
    assert!(!is_well && text.contains("two threads"), "{text}");
}

#[test]
fn a_soak_goes_on_where_its_file_ends_and_refuses_that_of_another() {
    let file = std::env::temp_dir().join(format!("highwire-soaked-{}.json", std::process::id()));
    let file = file.to_str().expect("a name");
    let resume = |events: &str, threads: &str| {
        soak(&[events, "--threads", threads, "--strategy", "event", "--patience", "60", "--resume", file])
    };
    let expect = |events: &str, whole: &str| {
        let (is_well, text) = resume(events, "4");
        assert!(is_well && text.contains(whole), "{text}");
    };
    expect("300", "300 events, 300 taken, no wake-up lost, in 1 turns");
    expect("500", "500 events, 500 taken, no wake-up lost, in 2 turns");
    // There is nothing left to do.
    expect("500", "500 events, 500 taken, no wake-up lost, in 2 turns");
    let (is_well, text) = resume("600", "6");
    assert!(!is_well && text.contains("--seed 0 --threads 4 --depth 64 --strategy event"), "{text}");
    std::fs::remove_file(file).expect("it was kept");
}

/// Planted: a thread that sleeps is not told of its event; and a thread arms after its last look. Both are found, and how to play that again.
#[test]
fn a_soak_finds_the_thread_that_sleeps_though_its_event_is_there() {
    for strategy in ["event", "dispatcher", "affine"] {
        let common =
            ["1000000000", "--threads", "16", "--strategy", strategy, "--patience", "2", "--seed", "5"];
        for planted in [&["--plant-lost", "100"][..], &["--plant-order"]] {
            // A dispatcher runs when no other thread of its core does: its events hardly ever come between a look and the arming.
            if strategy == "dispatcher" && planted == ["--plant-order"] {
                continue;
            }
            let (is_well, text) = soak(&[&common[..], planted].concat());
            let repeat = format!("--strategy {strategy} --threads 16 --depth 64 --seed ");
            assert!(
                !is_well && text.contains("a wake-up was lost") && text.contains(&repeat),
                "{strategy}, {planted:?}: {text}"
            );
        }
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
