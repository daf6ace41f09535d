//! `highwire pcap` on the golden captures, and on files that are no captures.

mod common;

use std::io::{Read, Write};
use std::process::Stdio;

use common::{highwire, vectors};

#[test]
fn every_golden_capture_decodes_and_every_icrc_is_right() {
    let mut files = 0;
    for entry in std::fs::read_dir(vectors()).expect("the captures are in the repository") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_some_and(|extension| extension == "pcap") {
            let output = highwire(["pcap", "--summary"]).arg(&path).output().expect("it starts");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{}: {text}", path.display());
            assert!(text.contains("every ICRC is right"), "{}: {text}", path.display());
            files += 1;
        }
    }
    assert!(files > 20, "only {files} captures");
}

#[test]
fn an_empty_capture_says_so() {
    let capture = std::fs::read(vectors().join("rc_send.pcap")).expect("a capture");
    let output = with_input(&["pcap", "-"], &capture[..24]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("the capture is EMPTY"), "{text}");
    assert!(!text.contains("every ICRC is right"), "{text}");
}

#[test]
fn a_wrong_icrc_is_shown_and_fails() {
    let mut capture = std::fs::read(vectors().join("rc_send.pcap")).expect("a capture");
    let last = capture.len() - 1;
    capture[last] ^= 1;
    let output = with_input(&["pcap", "-"], &capture);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("1 ICRC is WRONG"), "{text}");
}

#[test]
fn json_is_one_document_per_line() {
    let output =
        highwire(["pcap", "--json"]).arg(vectors().join("rc_write_imm.pcap")).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let documents: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
    let (summary, packets) = documents.split_last().expect("at least the counts");
    assert_eq!(summary["packets"], packets.len());
    assert!(packets.iter().all(|packet| packet["icrc_ok"] == true));
}

#[test]
fn half_a_capture_says_where_it_ends() {
    let capture = std::fs::read(vectors().join("rc_send.pcap")).expect("a capture");
    let output = with_input(&["pcap", "-"], &capture[..capture.len() - 3]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("damaged after"), "{error}");
}

#[test]
fn other_files_and_missing_ones_are_errors() {
    let output = with_input(&["pcap", "-"], b"not a capture at all, only some text");
    assert_eq!(output.status.code(), Some(1));
    let output = highwire(["pcap", "no-such-file.pcap"]).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no-such-file.pcap"), "{error}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = highwire(["pcap"])
        .arg(vectors().join("rc_write_big.pcap"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().expect("it was asked for").read_to_string(&mut error).expect("UTF-8");
    assert!(child.wait().expect("it ends").success(), "{error}");
    assert_eq!(error, "");
}

fn with_input(args: &[&str], input: &[u8]) -> std::process::Output {
    let mut child = highwire(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("it was asked for").write_all(input).expect("it reads its input");
    child.wait_with_output().expect("it ends")
}
