//! Programs on the nanoPU, as a user runs them.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::highwire;
use serde_json::Value;

/// A program of `riscv/`, built with Debian's gcc; nothing, and the reason printed, without it.
fn program(name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../riscv");
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("riscv");
    if Command::new("riscv64-unknown-elf-gcc").arg("--version").output().is_err() {
        println!("skipped: no riscv64-unknown-elf-gcc, from Debian's gcc-riscv64-unknown-elf");
        return None;
    }
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(source).arg(format!("BUILD={}", build.display()));
    assert!(make.status().expect("make runs").success());
    Some(build.join(format!("{name}.elf")))
}

fn run(words: &[&str]) -> (i32, String, String) {
    let output = highwire(words).output().expect("it starts");
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
fn a_program_that_nobody_answers_for_says_where_it_is() {
    let Some(program) = program("loopback") else { return };
    let words = ["nanopu", "run", program.to_str().unwrap(), "--context", "3", "--patience", "20000"];
    let (status, out, _) = run(&words);
    assert_eq!(status, 1);
    assert!(out.contains("no answer") && out.contains("nanopu_main") && out.contains("context"), "{out}");
}

#[test]
fn what_is_no_program_is_refused() {
    let (status, _, err) = run(&["nanopu", "run", env!("CARGO_BIN_EXE_highwire")]);
    assert_eq!(status, 1);
    assert!(err.contains("RISC-V"), "{err}");
    assert_eq!(run(&["nanopu", "run", "x.elf", "--select", "jbsq:0"]).0, 2);
    assert_eq!(run(&["nanopu", "run", "x.elf", "--bytes", "4096"]).0, 2);
    let (status, _, err) = run(&["nanopu", "run", "/nowhere/x.elf"]);
    assert_eq!(status, 1);
    assert!(err.contains("/nowhere/x.elf"), "{err}");
}
