//! `highwire replay` and `highwire explain`, of records that this test writes, and what `highwire run --record` makes.
//! `cargo xtask programs record` tries them on programs.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use common::highwire;
use highwire::host::record::{About, Event, Recorder, Request, Shape, create};
use highwire::host::verbs::{Completion, CompletionOp, CompletionStatus, Gid, QpState, Service};
use highwire_stdx::Instant;
use highwire_wire::Qpn;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("highwire-replay-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        fs::write(path.join("libibverbs.so.1"), "").expect("a file");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("plain").to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn outcome(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

fn ask(words: &[&str]) -> (Option<i32>, String) {
    outcome(highwire(words))
}

/// A queue pair whose WRITE is refused, another one that is in order, and a call that is refused.
fn write(path: &str) {
    create(Path::new(path), Shape::of_bytes(0)).expect("a file");
    let recorder = Arc::new(Recorder::open(Path::new(path)).expect("a part"));
    let gid = Gid::from_ip([127, 83, 0, 1].into());
    // All at the time at which the device opens: the refusal comes behind it by the recorder's own clock, perhaps by less than a microsecond.
    let now = Instant::from_nanos(0);
    let tap = recorder.device(gid, "hw0", now);
    for (qpn, status) in [(0x12, CompletionStatus::RemoteAccess), (0x55, CompletionStatus::Success)] {
        let state = Event::State {
            qpn,
            service: Service::Rc,
            from: QpState::Rtr,
            to: QpState::Rts,
            peer_qpn: qpn + 1,
            peer: gid,
            retry_count: 7,
            rnr_retry: 7,
            timeout: 14,
        };
        tap.keep(now, &state);
        let operation = CompletionOp::Write;
        let (signaled, direct, va, rkey, to_qpn) = (true, false, 0x7000, 0x5d, 0);
        let request = Request { qpn, wr_id: 7, operation, length: 4096, signaled, direct, va, rkey, to_qpn };
        tap.posted(now, request);
        tap.completed(now, &Completion::new(7, status, operation, Qpn::new(qpn)));
    }
    recorder.text(About::Refusal, 0, "ibv_post_send fails with EINVAL: <it> is in ERR");
    recorder.note_end();
}

#[test]
fn a_record_is_replayed_as_it_is_asked_for() {
    let folder = Folder::new("replay");
    let file = folder.file("r.hwr");
    write(&file);
    let check = |options: &[&str], with: &[&str], without: &[&str]| {
        let words: Vec<&str> = [&["replay", &file][..], options].concat();
        let (code, text) = ask(&words);
        assert_eq!(code, Some(0), "{text}");
        with.iter().for_each(|part| assert!(text.contains(part), "{options:?}: {part} is not in {text}"));
        without.iter().for_each(|part| assert!(!text.contains(part), "{options:?}: {part} is in {text}"));
    };
    let write = "posts an RDMA WRITE of 4,096 bytes, wr_id 7, at 0x7000 with rkey 0x5d";
    let pair = "queue pair 0x12 (RC) on hw0, peer 0x13 at 127.83.0.1";
    check(&[], &[pair, write, "opens hw0", "IBV_WC_SUCCESS"], &["no exit was noted"]);
    check(&["--qp", "0x12"], &[write, "IBV_WC_REM_ACCESS_ERR"], &["0x55", "IBV_WC_SUCCESS"]);
    check(&["--qp", "85", "--only", "completions"], &["IBV_WC_SUCCESS"], &["posts", "RTS"]);
    check(&["--peer", "0x13"], &["0x12"], &["0x55"]);
    check(&["--peer", "127.0.0.9"], &["the record has no such entries"], &["0x12"]);
    check(&["--only", "lines"], &["ibv_post_send fails"], &["posts", "0x12"]);
    check(&["--from", "900s"], &["no such entries"], &["IBV_WC"]);
    check(&["--merged"], &["0x12 posts", "0x55 posts"], &[]);
    let json = ["\"qpn\":18", "\"subject\":\"requests\"", "\"device\":\"hw0\""];
    check(&["--json", "--qp", "18"], &json, &["\"qpn\":85"]);
    let page = folder.file("t.html");
    check(&["--html", &page], &[], &["posts"]);
    let page = fs::read_to_string(page).expect("it was written");
    for part in ["<!doctype html>", write, "&lt;it&gt; is in ERR", "<svg", "<b>2</b><span>queue pairs"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("http") && !page.contains("<script"), "it needs nothing from elsewhere");
    assert_eq!(ask(&["replay", &file, "--qp", "many"]).0, Some(2));
    assert_eq!(ask(&["replay", &file, "--only", "noise"]).0, Some(2));
}

#[test]
fn a_record_is_explained() {
    let folder = Folder::new("explain");
    let file = folder.file("r.hwr");
    write(&file);
    let (code, text) = ask(&["explain", &file]);
    assert_eq!(code, Some(0), "{text}");
    let first = text.find("wr_id 7, at 0x7000 with rkey 0x5d, ends with IBV_WC_REM_ACCESS_ERR").expect(&text);
    let second = text.find("ibv_post_send fails with EINVAL").expect(&text);
    assert!(first < second && !text.contains("nothing went wrong"), "{text}");
    let (_, json) = ask(&["explain", &file, "--json"]);
    assert!(json.contains("\"wrong\": [") && json.contains("\"time_ns\""), "{json}");
    let other = folder.file("program");
    fs::write(&other, "#!/bin/sh").expect("a file");
    let (code, text) = ask(&["explain", &other]);
    assert!(code == Some(1) && text.contains("this is no record"), "{text}");
    assert_eq!(ask(&["explain", "/nowhere.hwr"]).0, Some(1));
    assert_eq!(ask(&["explain"]).0, Some(2));
}

/// The file is there before the program begins, and what is no record stays as it is.
#[test]
fn run_makes_the_file_and_overwrites_records_only() {
    let folder = Folder::new("run");
    let (file, other) = (folder.file("r.hwr"), folder.file("program"));
    fs::write(&other, "#!/bin/sh").expect("a file");
    let run = |words: &[&str]| {
        let mut command = highwire(["run"]);
        command.args(words).env("HIGHWIRE_LIBS", &folder.0);
        outcome(command)
    };
    for _ in 0..2 {
        let (code, text) = run(&["--record", &file, "--", "sh", "-c", "echo $HIGHWIRE_RECORD; exit 42"]);
        assert!(code == Some(42) && text.lines().any(|line| line == file), "the program's own: {text}");
        let (_, text) = ask(&["explain", &file]);
        assert!(text.contains("no process has looked for RDMA devices"), "{text}");
    }
    let (code, text) = run(&["--record", &other, "--", "true"]);
    assert!(code == Some(1) && text.contains("it is not overwritten"), "{text}");
    assert_eq!(fs::read(&other).expect("it is there"), b"#!/bin/sh");
    assert_eq!(run(&["--record-size", "1M", "--", "true"]).0, Some(2), "it is about --record");
    assert_eq!(run(&["--record", "/nowhere/r.hwr", "--", "true"]).0, Some(1));
}
