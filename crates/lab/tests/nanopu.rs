//! Programs on the nanoPU, as a user runs them.

mod common;
#[path = "common/riscv.rs"]
mod riscv;

use std::path::{Path, PathBuf};

use common::lab;
use riscv::{mistaken, program};
use serde_json::Value;

fn run(words: &[&str]) -> (i32, String, String) {
    let output = lab(words).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn messages_go_round() {
    let Some(program) = program("loopback") else { return };
    let (status, out, err) = run(&["nanopu", "run", program.to_str().unwrap(), "--count", "5", "--json"]);
    assert_eq!(status, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["answered"], &report["sent"]["messages"]), (&Value::from(5), &Value::from(5)));
    // 280 cycles of link, and about 47 in the node.
    let median = report["response_cycles"]["median"].as_f64().unwrap();
    assert!((320.0..340.0).contains(&median), "{median}");
}

#[test]
fn frames_go_round_through_memory() {
    let Some(program) = program("loopback_dma") else { return };
    let path = program.to_str().unwrap();
    let (status, out, err) = run(&["nanopu", "run", path, "--nic", "dma", "--count", "5", "--json"]);
    assert_eq!(status, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["answered"], &report["frames"]["delivered"]), (&Value::from(5), &Value::from(5)));
    assert!(report["response_cycles"]["median"].as_f64().unwrap() > 280.0 + 100.0);
    // Options that a DMA NIC does not have are refused, and losses are reported.
    for words in [["--cores", "4"], ["--trace", "trace.html"], ["--bytes", "2000"]] {
        let (status, _, err) = run(&[&["nanopu", "run", path, "--nic", "dma"][..], &words].concat());
        assert!(
            status == 2 && err.contains(words[0]) | err.contains("one frame"),
            "{words:?}: {status} {err}"
        );
    }
    let many =
        ["--nic", "dma", "--count", "300", "--bytes", "1024", "--interval", "1", "--patience", "90000"];
    let (status, out, _) = run(&[&["nanopu", "run", path][..], &many].concat());
    assert!(status == 1 && out.contains("found the NIC full"), "{out}");
}

#[test]
fn a_trace_can_be_looked_at_and_loaded() {
    let Some(program) = program("loopback") else { return };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (page, trace) = (directory.join("trace.html"), directory.join("trace.json"));
    for path in [&page, &trace] {
        let words = ["nanopu", "run", program.to_str().unwrap(), "--trace", path.to_str().unwrap()];
        assert_eq!(run(&words).0, 0);
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("x31 written"));
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["name"] == "x30 read"));
}

#[test]
fn requests_come_from_a_file() {
    let Some(program) = program("service") else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("requests.csv");
    std::fs::write(&file, "sent,context,words\n0,0,500 1\n5000,1,1000 2\n").unwrap();
    let words = ["nanopu", "run", program.to_str().unwrap(), "--requests", file.to_str().unwrap(), "--json"];
    let (status, out, err) = run(&words);
    assert_eq!(status, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(report["response_cycles"]["maximum"].as_f64().unwrap() >= 1280.0);
}

#[test]
fn threads_have_banks_where_the_node_has_them() {
    let Some(program) = program("service") else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("banks.csv");
    // The second request interrupts the work of the first.
    std::fs::write(&file, "sent,context,words\n0,1,2000 1\n900,0,500 2\n9000,1,2000 1\n9900,0,500 2\n")
        .unwrap();
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join("banks.json");
    let slowest = |more: &[&str]| {
        let files = ["--requests", file.to_str().unwrap(), "--trace", trace.to_str().unwrap(), "--json"];
        let words = [&["nanopu", "run", program.to_str().unwrap()], &files[..], more].concat();
        let (status, out, err) = run(&words);
        assert_eq!(status, 0, "{out}{err}");
        assert!(std::fs::read_to_string(&trace).unwrap().contains("thread switched"));
        serde_json::from_str::<Value>(&out).unwrap()["response_cycles"]["maximum"].as_f64().unwrap()
    };
    let (handler, banks) = (slowest(&[]), slowest(&["--context-banks"]));
    assert!(banks + 50.0 < handler, "no handler runs: {banks} {handler}");
}

#[test]
fn a_program_that_nobody_answers_for_says_where_it_is() {
    let Some(program) = program("loopback") else { return };
    let words = ["nanopu", "run", program.to_str().unwrap(), "--context", "3", "--patience", "20000"];
    let (status, out, _) = run(&words);
    assert_eq!(status, 1);
    assert!(out.contains("no answer") && out.contains("nanopu_main") && out.contains("context"), "{out}");
    assert!(out.contains("core 0 spins") && out.contains("cycle"), "{out}");
}

/// The sentences about a program's mistake, and the kinds in the report for programs.
fn complaints(name: &str, more: &[&str]) -> Option<(String, Vec<String>)> {
    let program = mistaken(name)?;
    let words = [&["nanopu", "run", program.to_str().unwrap(), "--patience", "20000"], more].concat();
    let (status, text, err) = run(&words);
    assert_eq!(status, 1, "{name}: {text}{err}");
    let (_, json, _) = run(&[&words[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let kinds = report["mistakes"].as_array().into_iter().flatten();
    Some((text, kinds.map(|mistake| mistake["kind"].as_str().unwrap().to_owned()).collect()))
}

/// Asserts that a program gets one complaint, which names kind, function, cycle and context.
fn complains(name: &str, more: &[&str], kind: &str, sentence: &str, function: &str) {
    let Some((text, kinds)) = complaints(name, more) else { return };
    assert_eq!(kinds, [kind], "{name}: {text}");
    let line = text.lines().find(|line| line.contains(sentence)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(line.contains(&format!(" in {function}, cycle ")) && line.contains("context "), "{name}: {line}");
}

#[test]
fn an_empty_queue_that_is_read_is_reported() {
    complains("empty_read", &[], "empty-read", "read x30 32 times with nothing there", "answer");
}

#[test]
fn a_read_before_any_context_is_known_is_reported() {
    complains("read_first", &[], "read-without-context", "never made known", "too_early");
}

#[test]
fn a_context_too_many_is_reported() {
    complains("contexts", &["--context", "4"], "too-many-contexts", "room for 4 contexts", "add");
}

/// A file with one request for `tests/mistakes/malformed.c`.
fn request(kind: u64) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("malformed-{kind}.csv"));
    std::fs::write(&file, format!("sent,context,words\n0,0,{kind}\n")).unwrap();
    file
}

#[test]
fn malformed_messages_are_reported() {
    let kinds = [
        (1, "message-too-long", "the first header says 4096 bytes"),
        (2, "message-empty", "without a byte"),
        (3, "message-unfinished", "lacks 1 of the words"),
        (4, "surplus-word", "the first, 0x4, was taken for a message's header"),
    ];
    for (kind, name, sentence) in kinds {
        let file = request(kind);
        complains("malformed", &["--requests", file.to_str().unwrap()], name, sentence, "answer");
    }
}

#[test]
fn a_word_that_comes_late_is_no_mistake_unless_it_comes_in_another_name() {
    let Some(program) = mistaken("late_word") else { return };
    let right = request(0);
    let (status, text, err) =
        run(&["nanopu", "run", program.to_str().unwrap(), "--requests", right.to_str().unwrap()]);
    assert_eq!(status, 0, "{text}{err}");
    assert!(!text.contains("core 0 "), "{text}");
    let wrong = request(1);
    let Some((text, kinds)) = complaints("late_word", &["--requests", wrong.to_str().unwrap()]) else {
        return;
    };
    assert!(kinds.contains(&"word-in-other-name".to_owned()), "{kinds:?} {text}");
    let line = text.lines().find(|line| line.contains("in the name of context 1")).expect("it is said");
    assert!(line.contains(" in divide, cycle ") && line.contains("context 0"), "{line}");
}

#[test]
fn an_overrun_of_the_transmit_queue_is_reported() {
    complains("overrun", &["--count", "1"], "transmit-queue-overrun", "while 512 words waited", "send");
}

#[test]
fn a_core_that_waits_for_a_word_says_so() {
    let Some(program) = program("loopback_blocking") else { return };
    let run = |more: &[&str]| {
        run(&[&["nanopu", "run", program.to_str().unwrap(), "--patience", "20000"], more].concat())
    };
    assert_eq!(run(&["--blocking-reads"]).0, 0);
    let (status, text, _) = run(&["--blocking-reads", "--context", "3", "--count", "1"]);
    assert_eq!(status, 1);
    let line = text
        .lines()
        .find(|line| line.contains("core 0 waits for a word"))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(" in nanopu_main since cycle ") && line.contains("context 0"), "{line}");
}

#[test]
fn messages_for_a_context_that_nobody_made_known_are_reported() {
    let Some((text, kinds)) = complaints("strange_context", &["--context", "3", "--count", "2"]) else {
        return;
    };
    assert!(kinds.is_empty(), "the NIC keeps them from the cores: {kinds:?}");
    assert!(text.contains("2 packets were for a context") && text.contains("; first in cycle 10"), "{text}");
    assert!(text.contains(", context 3"), "{text}");
}

#[test]
fn a_trap_is_reported() {
    let Some((text, _)) = complaints("trap", &["--count", "1"]) else { return };
    assert!(text.contains("core 0 trapped at 0x") && text.contains(" in fault, cycle "), "{text}");
    assert!(text.contains("store access fault (0x10)"), "{text}");
}

#[test]
fn the_nic_goes_beyond_the_prototype_where_it_is_told_to() {
    let Some(relay) = program("relay") else { return };
    let median = |more: &[&str]| {
        let words = [&["nanopu", "run", relay.to_str().unwrap(), "--link", "0", "--json"], more].concat();
        let (status, out, err) = run(&words);
        assert_eq!(status, 0, "{more:?}: {out}{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        report["response_cycles"]["median"].as_f64().unwrap()
    };
    let (stored, cut) = (median(&["--bytes", "1024"]), median(&["--bytes", "1024", "--cut-through"]));
    assert!(cut < 0.2 * stored, "{cut} and {stored}, to the first word of the answer");
    let long = ["--count", "4", "--interval", "40000", "--bytes", "64000", "--message-bytes-max", "65535"];
    assert!((8_000.0..20_000.0).contains(&median(&long)));
    // The first words of the message go back while the last ones come in.
    assert!(median(&[&long[..], &["--stream-messages", "--blocking-reads"]].concat()) < 1_000.0);
    let Some(service) = program("service4") else { return };
    let many = ["--cores", "256", "--select", "tree:32", "--selection-delays", "--count", "600"];
    let words = [&["nanopu", "run", service.to_str().unwrap(), "--interval", "12"][..], &many].concat();
    assert_eq!(run(&words).0, 0);
    // Memory for four kibibytes bounds messages.
    let words = ["nanopu", "run", "x.elf", "--bytes", "8000", "--message-bytes-max", "9000"];
    let (status, _, err) = run(&[&words[..], &["--message-memory", "4"]].concat());
    assert!(status == 2 && err.contains("at most 4096"), "{status} {err}");
    for select in ["tree:0", "tree", "tree:x", "tree:300"] {
        assert_eq!(run(&["nanopu", "run", "x.elf", "--select", select]).0, 2, "{select}");
    }
    let (status, _, err) = run(&["nanopu", "run", "x.elf", "--message-memory", "4"]);
    assert!(status == 2 && err.contains("--message-bytes-max"), "{status} {err}");
}

#[test]
fn what_is_no_program_is_refused() {
    let (status, _, err) = run(&["nanopu", "run", env!("CARGO_BIN_EXE_highwire-lab")]);
    assert_eq!(status, 1);
    assert!(err.contains("RISC-V"), "{err}");
    assert_eq!(run(&["nanopu", "run", "x.elf", "--select", "jbsq:0"]).0, 2);
    assert_eq!(run(&["nanopu", "run", "x.elf", "--bytes", "4096"]).0, 2);
    let (status, _, err) = run(&["nanopu", "run", "/nowhere/x.elf"]);
    assert_eq!(status, 1);
    assert!(err.contains("/nowhere/x.elf"), "{err}");
}
