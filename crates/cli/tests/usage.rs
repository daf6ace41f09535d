//! The contract of every command: help, exit status, and errors that say what to do.

mod common;

use common::highwire;

fn check(args: &[&str], status: i32, mention: &str) {
    let output = highwire(args).output().expect("it starts");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
    assert!(text.contains(mention), "{args:?}: {text}");
}

#[test]
fn help_shows_examples() {
    for command in [
        &["perf"][..],
        &["perf", "send"],
        &["perf", "write"],
        &["perf", "read"],
        &["perf", "atomic"],
        &["pcap"],
        &["pingpong"],
        &["demo"],
        &["completions"],
        &["devices"],
        &["run"],
        &["env"],
        &["stats"],
    ] {
        check(&[command, &["--help"]].concat(), 0, "Examples:");
    }
}

#[test]
fn asked_wrongly_is_status_2() {
    check(&[], 2, "Usage:");
    check(&["prf"], 2, "perf");
    check(&["perf", "write", "lat", "--recovery", "hope"], 2, "go-back-n");
    check(&["perf", "write", "lat", "--service", "ud"], 2, "--service rc");
    check(&["perf", "send", "bw", "--loss", "much"], 2, "1%");
}

#[test]
fn nobody_there_is_status_1_and_says_what_to_do() {
    check(&["perf", "write", "lat", "127.0.0.1", "--port", "1"], 1, "--listen");
}
