//! `highwire nanopu` with numbers at the ends of their ranges, and programs that trap, sleep and end.

mod common;
#[path = "common/riscv.rs"]
mod riscv;

use common::lab;
use riscv::{bare, handled, program};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

fn run(words: &[&str]) -> (i32, String, String) {
    let output = lab(words).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

/// The numeric flags of a command, as its help lists them: those with a value whose default is a number, and those named here.
fn numeric_flags(command: &str, more: &[&str]) -> Vec<String> {
    let (status, help, _) = run(&["nanopu", command, "--help"]);
    assert_eq!(status, 0);
    let mut flags: Vec<String> = more.iter().map(|&flag| flag.to_owned()).collect();
    let mut flag = None;
    for line in help.lines().map(str::trim) {
        if line.starts_with("--") {
            flag = line.split_whitespace().next().map(str::to_owned);
        }
        let default = line.split("[default: ").nth(1).and_then(|rest| rest.split(']').next());
        if default.is_some_and(|default| default.parse::<u64>().is_ok()) {
            flags.extend(flag.clone());
        }
    }
    flags.sort();
    flags.dedup();
    flags
}

#[test]
fn every_number_beyond_its_range_is_refused_with_the_range() {
    const MOST: &str = "18446744073709551615";
    // Every number decides a run; a seed may be any.
    let commands: [(&str, &[&str]); 4] = [
        ("run", &["--quota", "--message-bytes-max"]),
        ("bench", &["--interval"]),
        ("theory", &["--threads"]),
        ("figures", &[]),
    ];
    for (command, more) in commands {
        let flags = numeric_flags(command, more);
        assert!(flags.len() >= if command == "figures" { 1 } else { 4 }, "{command}: {flags:?}");
        for flag in flags.iter().filter(|flag| *flag != "--seed") {
            for value in [MOST, "18446744073709551616", "-1", "4294967296"] {
                let mut words = vec!["nanopu", command];
                if command == "run" {
                    words.push("x.elf");
                }
                if flag == "--cycles-max" {
                    words.push("--bare");
                }
                if flag == "--message-memory" {
                    words.extend(["--message-bytes-max", "4096"]);
                }
                let given = format!("{flag}={value}");
                words.push(&given);
                // A run may be as long as this, and patience too.
                if ["--patience", "--cycles-max"].contains(&flag.as_str()) && value == "4294967296" {
                    continue;
                }
                let (status, _, err) = run(&words);
                assert_eq!(status, 2, "{words:?}: {err}");
                let names_range = err.contains("is not in ") || err.contains("at most ");
                assert!(names_range && err.contains(flag.as_str()), "{words:?}: {err}");
            }
        }
    }
}

#[test]
fn nothing_to_do_is_refused() {
    for words in [["--count", "0"], ["--patience", "0"], ["--cores", "0"], ["--memory", "0"]] {
        let (status, _, err) = run(&[&["nanopu", "run", "x.elf"][..], &words].concat());
        assert!(status == 2 && err.contains("is not in 1.."), "{words:?}: {err}");
    }
    let (status, _, err) = run(&["nanopu", "bench", "x.elf", "--count", "0"]);
    assert!(status == 2 && err.contains("is not in 1.."), "{err}");
    let empty = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-requests.csv");
    std::fs::write(&empty, "sent,context,words\n").unwrap();
    let Some(program) = program("loopback") else { return };
    let words = ["nanopu", "run", program.to_str().unwrap(), "--requests", empty.to_str().unwrap()];
    let (status, _, err) = run(&words);
    assert!(status == 2 && err.contains("no-requests.csv: there is no request"), "{err}");
}

#[test]
fn numbers_that_are_too_much_together_are_refused() {
    let Some(program) = program("loopback") else { return };
    let path = program.to_str().unwrap();
    let many = ["--count", "1000000", "--bytes", "65535", "--message-bytes-max", "65535"];
    let (status, _, err) = run(&[&["nanopu", "run", path], &many[..]].concat());
    assert!(status == 2 && err.contains("at most 4096 of them"), "{err}");
    let (status, _, err) = run(&["nanopu", "bench", path, "--count", "1000000", "--bytes", "2048"]);
    assert!(status == 2 && err.contains("at most 131072 of them"), "{err}");
    let (status, _, err) = run(&["nanopu", "bench", path, "--cores", "4096", "--interval", "1"]);
    assert!(status == 2 && err.contains("--interval 1") && err.contains("at most"), "{err}");
    let (status, _, err) = run(&["nanopu", "theory", "--threads", "256", "--requests", "100000000"]);
    assert!(status == 2 && err.contains("at most 2 with"), "{err}");
}

#[test]
fn the_ends_of_the_ranges_are_played() {
    let Some(program) = program("loopback") else { return };
    let play = |more: &[&str]| {
        let (status, out, err) =
            run(&[&["nanopu", "run", program.to_str().unwrap(), "--json"], more].concat());
        assert_eq!(status, 0, "{more:?}: {out}{err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let report = play(&["--count", "1", "--link", "2000000", "--patience", "10000000"]);
    assert!(report["response_cycles"]["median"].as_f64().unwrap() > 4e6, "{report}");
    let report = play(&["--link", "0", "--interval", "0", "--count", "2"]);
    assert_eq!(report["answered"], 2);
}

/// The status, the report and the problem of a program on the core alone.
fn alone(name: &str, more: &[&str]) -> Option<(i32, Value)> {
    let program = bare(name)?;
    let words = [&["nanopu", "run", "--bare", program.to_str().unwrap(), "--json"], more].concat();
    let (status, out, err) = run(&words);
    let report = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{name}: {out}{err}"));
    Some((status, report))
}

#[test]
fn a_sleeping_program_wakes_on_its_timer() {
    let Some((status, report)) = alone("timer", &[]) else { return };
    assert_eq!((status, &report["exit_code"]), (0, &Value::from(0)), "{report}");
    // Three times 2,000 ticks of 100 cycles.
    let cycles = report["cycles"].as_u64().unwrap();
    assert!((590_000..620_000).contains(&cycles) && report["traps"] == 0, "{report}");
    let Some((status, report)) = alone("asleep", &[]) else { return };
    let problem = report["problem"].as_str().unwrap();
    assert!(status == 1 && problem.contains("asleep") && problem.contains("nanopu_main"), "{report}");
    let Some((status, report)) = alone("timer", &["--cycles-max", "300000"]) else { return };
    assert!(status == 1 && report["problem"].as_str().unwrap().contains("--cycles-max"), "{report}");
}

#[test]
fn reservations_on_a_device_are_access_faults() {
    let Some((status, report)) = alone("reservation", &[]) else { return };
    assert_eq!(
        (status, &report["exit_code"], &report["traps"]),
        (0, &Value::from(0), &Value::from(3)),
        "{report}"
    );
}

#[test]
fn the_first_trap_of_a_program_without_a_handler_is_told() {
    let Some((status, report)) = alone("no_handler", &[]) else { return };
    let problem = report["problem"].as_str().unwrap();
    assert_eq!(status, 1);
    assert!(problem.contains("store access fault (0x10)") && problem.contains(" in fault"), "{problem}");
}

#[test]
fn memory_is_as_large_as_asked_for() {
    let Some(program) = bare("large") else { return };
    let (status, _, err) = run(&["nanopu", "run", "--bare", program.to_str().unwrap()]);
    assert!(status == 1 && err.contains("--memory 16") && err.contains("more memory"), "{err}");
    let Some((status, report)) = alone("large", &["--memory", "64"]) else { return };
    assert_eq!((status, &report["exit_code"]), (0, &Value::from(0)), "{report}");
    // With a NIC, the program ends without an answer.
    let words = ["nanopu", "run", program.to_str().unwrap(), "--patience", "20000", "--count", "1"];
    let (status, _, err) = run(&words);
    assert!(status == 1 && err.contains("--memory 16"), "{err}");
    let (status, out, err) = run(&[&words[..], &["--memory", "64"]].concat());
    assert!(status == 1 && out.contains("the program exited with 0"), "{out}{err}");
}

#[test]
fn exceptions_that_the_program_handles_go_on() {
    let Some(program) = handled("handled") else { return };
    for more in [&[][..], &["--cores", "1", "--shared-cache"]] {
        let words = [&["nanopu", "run", program.to_str().unwrap(), "--count", "20", "--json"], more].concat();
        let (status, out, err) = run(&words);
        assert_eq!(status, 0, "{out}{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&report["answered"], &report["sent"]["repeated"]), (&Value::from(20), &Value::from(0)));
    }
}

#[test]
fn exceptions_that_nobody_handles_are_told_with_their_first_cause() {
    for (name, rest) in [("lost", ""), ("stuck", "its handler has not returned")] {
        let Some(program) = handled(name) else { return };
        let words = ["nanopu", "run", program.to_str().unwrap(), "--count", "1", "--patience", "20000"];
        let (status, out, err) = run(&words);
        assert_eq!(status, 1, "{name}: {out}{err}");
        let told: Vec<&str> = out.lines().filter(|line| line.contains("core 0 trapped")).collect();
        assert_eq!(told.len(), 1, "{name}: {out}");
        assert!(
            told[0].contains(" in fault, cycle ") && told[0].contains("store access fault (0x10)"),
            "{told:?}"
        );
        assert!(told[0].contains(rest), "{told:?}");
    }
}

#[test]
fn answers_and_times_are_told_for_each_message() {
    let Some(program) = program("loopback") else { return };
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (times, commits) = (directory.join("times.csv"), directory.join("commits.txt"));
    let files = ["--times", times.to_str().unwrap(), "--commits", commits.to_str().unwrap()];
    let words = ["nanopu", "run", program.to_str().unwrap(), "--count", "3", "--bytes", "12", "--answers"];
    let words = [&words[..], &files].concat();
    let (status, out, err) = run(&words);
    assert_eq!(status, 0, "{out}{err}");
    let told: Vec<&str> = out.lines().filter(|line| line.starts_with("message ")).collect();
    assert_eq!(told.len(), 3, "{out}");
    assert!(
        told[2].contains("sent in cycle 14000, context 0: ") && told[2].ends_with("cycles, 0x1 0x0"),
        "{out}"
    );
    let (_, out, _) = run(&[&words[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&out).unwrap();
    let answers = report["answers"].as_array().unwrap();
    let slowest = answers.iter().map(|answer| answer["response_cycles"].as_u64().unwrap()).max().unwrap();
    assert_eq!(report["response_cycles"]["maximum"].as_f64().unwrap(), slowest as f64);
    let text = std::fs::read_to_string(times).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "sent,context,response_cycles,words"), "{text}");
    assert!(lines[3].starts_with("14000,0,") && lines[3].ends_with(",0x1 0x0"), "{text}");
    let log = std::fs::read_to_string(commits).unwrap();
    assert_eq!(log.lines().count() as u64, report["instructions"].as_u64().unwrap());
    assert!(log.starts_with("core 0, cycle "), "{}", &log[..200]);
}

#[test]
fn the_log_of_a_program_alone_has_each_of_its_instructions() {
    let commits = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("commits-bare.txt");
    let Some((status, report)) = alone("reservation", &["--commits", commits.to_str().unwrap()]) else {
        return;
    };
    assert_eq!(status, 0, "{report}");
    let log = std::fs::read_to_string(commits).unwrap();
    let of_program = log.lines().filter(|line| line.contains("80000")).count() as u64;
    assert!(of_program >= report["instructions"].as_u64().unwrap(), "{report}");
}

/// The example of the page: the token makes twelve hops, so each node but the first sees it three times.
#[test]
fn a_token_goes_round_a_ring_of_four_nodes() {
    let Some(ring) = program("ring") else { return };
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nanopu/ring.toml");
    let text = std::fs::read_to_string(example).unwrap();
    let play = |name: &str, text: &str| {
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let text = text.replace("../../riscv/build/ring.elf", ring.to_str().unwrap());
        std::fs::write(&file, text).unwrap();
        let (status, out, err) = run(&["nanopu", "cluster", file.to_str().unwrap(), "--json"]);
        (status, serde_json::from_str::<Value>(&out).unwrap_or_default(), err)
    };
    let (status, report, err) = play("ring.toml", &text);
    assert_eq!(status, 0, "{report} {err}");
    let answers = &report["messages"];
    // Each node says whom it has been told, and the token that it has made its hops.
    for (at, neighbour) in ["0xa000003", "0xa000004", "0xa000005", "0xa000002"].iter().enumerate() {
        assert_eq!(answers[at]["words"], serde_json::json!([neighbour]), "{report}");
    }
    assert_eq!(answers[4]["words"], serde_json::json!(["0xc", "0x4"]), "{report}");
    // Thirteen nodes were visited, and every way between two hosts has two links.
    let cycles = answers[4]["response_cycles"].as_u64().unwrap();
    assert!((14 * 2 * 140..14 * 2 * 140 + 14 * 200).contains(&cycles), "{report}");
    let received: Vec<u64> =
        (0..4).map(|at| report["nodes"][at]["messages_received"].as_u64().unwrap()).collect();
    assert_eq!(received, [1 + 4, 1 + 3, 1 + 3, 1 + 3], "{report}");
    // The same with the other transport, and the same words.
    let (status, homa, err) = play("ring-homa.toml", &format!("transport = \"homa\"\n{text}"));
    assert_eq!((status, &homa["messages"][4]["words"]), (0, &answers[4]["words"]), "{homa} {err}");
    // A token to a node that nobody has told where to send it ends there; one that comes too late is missed.
    let (status, report, _) =
        play("ring-late.toml", &text.replace("cycles_max = 1_000_000", "cycles_max = 30_000"));
    let problem = report["problems"][0].as_str().unwrap();
    assert!(status == 1 && problem.contains("1 messages have no answer after 30000 cycles"), "{report}");
    let (status, report, err) = play("ring-wrong.toml", &text.replace("@west", "@up"));
    assert!(status == 2 && report.is_null() && err.contains("no node has the name \"up\""), "{err}");
}

#[test]
fn the_signature_is_what_lies_between_its_symbols_at_the_end() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("signature.txt");
    let words = ["--signature", file.to_str().unwrap()];
    let Some((status, report)) = alone("signature", &words) else { return };
    assert_eq!((status, &report["exit_code"]), (0, &Value::from(0)), "{report}");
    let expected = "deadbeef\n12345678\n000000ab\ndeadbef0\n";
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
    // A program without one is refused before it runs.
    let Some(program) = bare("timer") else { return };
    let program = ["nanopu", "run", "--bare", program.to_str().unwrap()];
    let (status, out, err) = run(&[&program[..], &words].concat());
    assert!(status != 0 && err.contains("no symbol begin_signature"), "{out}{err}");
    let (status, _, err) = run(&[&program[..2], &["x.elf"], &words].concat());
    assert!(status == 2 && err.contains("--bare"), "{err}");
}

/// Short requests in pairs, the first of which works long; and what was recorded of them.
#[test]
fn recorded_requests_are_played_under_either_scheduler_and_compared() {
    let recorded = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorded.csv");
    let mut text = String::from("context,sent_time,service_time,resp_time\n");
    for pair in 0..20u64 {
        let at = 140 * 600 * pair;
        text.push_str(&format!("1,{at}.0,20000.0,20340.0\n0,{}.0,1600.0,2080.0\n", at + 140 * 10));
    }
    std::fs::write(&recorded, text).unwrap();
    let urgent = |name: &str, more: &[&str]| {
        let program = program(name)?;
        let files =
            ["--prototype", "--requests", recorded.to_str().unwrap(), "--warm-up", "140000", "--json"];
        let words = [&["nanopu", "run", program.to_str().unwrap()], &files[..], more].concat();
        let (status, out, err) = run(&words);
        assert_eq!(status, 0, "{name}: {out}{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&report["answered"], &report["sent"]["repeated"]), (&Value::from(40), &Value::from(0)));
        let compared = &report["compared"][0];
        assert_eq!((&compared["context"], &compared["recorded"][0]), (&Value::from(0), &Value::from(2080.0)));
        assert_eq!(compared["unanswered_here"], 0);
        compared["here"][2].as_f64()
    };
    let (Some(hardware), Some(timer)) = (urgent("service_replay", &[]), urgent("service_timer", &[])) else {
        return;
    };
    assert!(hardware < 2300.0, "the scheduler interrupts at once: {hardware}");
    assert!(timer > 3.0 * hardware, "a slice passes before the timer does: {timer} and {hardware}");
    assert!(urgent("service_bounded", &[]).is_some());
}

#[test]
fn each_message_of_a_trace_has_its_answer_in_view() {
    let Some(program) = program("loopback") else { return };
    let page = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("load.html");
    // Messages come faster than they are answered; others have no payload.
    for (bytes, interval) in [("64", "10"), ("0", "2000")] {
        let words =
            ["--trace", page.to_str().unwrap(), "--count", "8", "--bytes", bytes, "--interval", interval];
        let (status, out, err) = run(&[&["nanopu", "run", program.to_str().unwrap()], &words[..]].concat());
        assert_eq!(status, 0, "{out}{err}");
        let text = std::fs::read_to_string(&page).unwrap();
        let data = text.lines().find_map(|line| line.strip_prefix("const data = ")).expect("the data");
        let data: Value = serde_json::from_str(data.trim_end_matches(';')).unwrap();
        let messages = data["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 8, "{bytes}: {messages:?}");
        let stamps = data["stamps"].as_array().unwrap();
        for message in messages {
            assert!(message[1].as_u64().unwrap() > message[0].as_u64().unwrap(), "{bytes}: {messages:?}");
            let is_answer = |stamp: &&Value| stamp[0] == message[1] && stamp[1] == "wire out";
            assert_eq!(stamps.iter().filter(is_answer).count(), 1, "{bytes}: {message}");
        }
        let listing = data["commits"].to_string();
        assert!(
            listing.contains("x30") && listing.contains("MESSAGES_READY") && !listing.contains("t5"),
            "{bytes}"
        );
    }
}

/// The account of each core, whose parts must add up.
fn accounts(report: &Value) -> Vec<Value> {
    let accounts = report["stalls"].as_array().cloned().unwrap_or_default();
    for account in &accounts {
        let stalls: u64 = account["stalls"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        let number = |name: &str| account[name].as_u64().unwrap();
        assert_eq!(number("commits") + number("traps") + stalls, number("cycles"), "{account}");
    }
    accounts
}

#[test]
fn stalls_are_told_by_cause() {
    let (Some(service), Some(dma)) = (program("service4"), program("loopback_dma")) else { return };
    let play = |more: &[&str]| {
        let (status, out, err) = run(&[&["nanopu", "run"], more].concat());
        assert_eq!(status, 0, "{more:?}: {out}{err}");
        out
    };
    let json = |more: &[&str]| serde_json::from_str::<Value>(&play(&[more, &["--json"]].concat())).unwrap();
    let words = [service.to_str().unwrap(), "--cores", "4"];
    let report = json(&[&words[..], &["--stalls"]].concat());
    let found = accounts(&report);
    assert_eq!(found.len(), 4, "{report}");
    for (core, account) in found.iter().enumerate() {
        assert_eq!((&account["core"], &account["cycles"]), (&Value::from(core), &report["cycles"]));
        // Each core begins with lines that are nowhere.
        assert!(account["stalls"]["instruction-line"].as_u64().unwrap() > 100, "{account}");
    }
    let commits: u64 = found.iter().filter_map(|account| account["commits"].as_u64()).sum();
    assert_eq!(report["instructions"], commits);
    // Nothing else changes, and without the flag there is no account.
    let silent = json(&words);
    assert!(silent.get("stalls").is_none());
    for same in ["cycles", "instructions", "response_cycles", "received", "sent"] {
        assert_eq!(silent[same], report[same], "{same}");
    }
    let text = play(&[&words[..], &["--stalls"]].concat());
    for mention in ["cycles since reset", "core 3", "misprediction", "instruction-line", "all"] {
        assert!(text.contains(mention), "{mention}: {text}");
    }
    // With the prototype's rounds, a DMA NIC, and alone.
    assert_eq!(accounts(&json(&[&words[..], &["--stalls", "--prototype"]].concat())).len(), 4);
    let report = json(&[dma.to_str().unwrap(), "--nic", "dma", "--stalls"]);
    let found = accounts(&report);
    assert_eq!((found.len(), &found[0]["commits"]), (1, &report["instructions"]));
    assert!(found[0]["stalls"]["device"].as_u64().unwrap() > 0, "{report}");
    let (_, report) = alone("timer", &["--stalls"]).expect("built before");
    let found = accounts(&report);
    assert!(found[0]["stalls"]["sleep"].as_u64().unwrap() > 500_000, "{report}");
}

/// The page after its script has run, in a window of so many pixels; nothing without a browser.
fn drawn(page: &std::path::Path, width: u32) -> Option<String> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut candidates =
        std::env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
    let Some(browser) = candidates.find(|path| path.is_file()) else {
        println!("skipped: no chromium here");
        return None;
    };
    let profile = page.with_extension(format!("profile-{width}"));
    let output = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={width},1000"))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("it starts");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_traces_page_has_colours_stalls_and_stages() {
    let Some(program) = program("loopback") else { return };
    let page = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("drawn.html");
    // The second message is on the wire while the first is answered.
    let words = ["--trace", page.to_str().unwrap(), "--count", "6", "--bytes", "64", "--interval", "40"];
    let (status, out, err) = run(&[&["nanopu", "run", program.to_str().unwrap()], &words[..]].concat());
    assert_eq!(status, 0, "{out}{err}");
    let text = std::fs::read_to_string(&page).unwrap();
    let data = text.lines().find_map(|line| line.strip_prefix("const data = ")).expect("the data");
    let data: Value = serde_json::from_str(data.trim_end_matches(';')).unwrap();
    // A message of eight words is nine words for the core, all with its number, at each place that they pass.
    for place in ["word to queue", "x30 read", "x31 written", "word to NIC"] {
        for message in 0..6 {
            let stamps = data["stamps"].as_array().unwrap().iter();
            let own = stamps.filter(|stamp| stamp[1] == place && stamp[4] == message).count();
            assert_eq!(own, 9, "{place} of message {message}");
        }
    }
    for place in ["ingress", "reassembled", "packet to arbiter"] {
        let stamps = data["stamps"].as_array().unwrap().iter();
        let numbers: Vec<_> =
            stamps.filter(|stamp| stamp[1] == place).filter_map(|stamp| stamp[4].as_u64()).collect();
        assert!((0..6).all(|message| numbers.contains(&message)), "{place}: {numbers:?}");
    }
    // Where no instruction commits, a stall says why.
    let commits = data["commits"].as_array().unwrap();
    let cycles: Vec<u64> = commits.iter().map(|commit| commit[0].as_u64().unwrap()).collect();
    let covered = |cycle: u64| {
        data["stalls"].as_array().unwrap().iter().any(|stall| {
            let from = stall[0].as_u64().unwrap();
            (from..from + stall[2].as_u64().unwrap()).contains(&cycle)
        })
    };
    for pair in cycles.windows(2).take(2_000) {
        assert!((pair[0] + 1..pair[1]).all(covered), "{pair:?}");
    }
    for width in [1280, 480] {
        let Some(dom) = drawn(&page, width) else { return };
        let count = |name: &str| {
            let (_, rest) = dom.split_once(&format!("data-{name}=\"")).unwrap_or_else(|| panic!("no {name}"));
            rest.split_once('"').unwrap().0.parse::<u64>().unwrap()
        };
        assert!(!dom.contains("data-failed"), "{width}");
        assert!(count("marks") > 100 && count("hues") > 1 && count("stalls") > 5, "{width}");
        assert!(count("stages") > 100, "{width}: {}", count("stages"));
        assert_eq!(count("overflow"), 0, "{width}: the page scrolls sideways");
        drawn_where_it_happened(&dom, &data);
    }
}

/// A part of a drawn page, from one element to the next.
fn part<'a>(dom: &'a str, id: &str, next: &str) -> &'a str {
    let (_, rest) = dom.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
    rest.split_once(&format!("id=\"{next}\"")).map_or(rest, |(part, _)| part)
}

/// The elements of this name with their attributes, and the text up to the next tag under the name `text`.
fn elements(part: &str, name: &str) -> Vec<HashMap<String, String>> {
    let start = format!("<{name} ");
    let all = part.split(&start).skip(1).filter_map(|rest| rest.split_once('>'));
    let read = |(head, text): (&str, &str)| {
        let attributes = head.split("\" ").filter_map(|pair| pair.split_once("=\""));
        let attributes = attributes.map(|(key, value)| (key, value.trim_end_matches('"')));
        let text = ("text", text.split('<').next().unwrap_or_default());
        attributes.chain([text]).map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    all.map(read).collect()
}

/// Each event of the message that the page begins with, the last of six, stands in the row of its place, at its cycle and in the
/// message's colour; stalls have a colour per cause; each instruction's stages end with its commit.
fn drawn_where_it_happened(dom: &str, data: &Value) {
    let number = |value: &Value| value.as_u64().unwrap();
    let (from, end) = (number(&data["messages"][5][0]), number(&data["messages"][5][1]));
    let view = part(dom, "view", "legend");
    let at = |attributes: &HashMap<String, String>, key: &str| attributes[key].parse::<f64>().unwrap();
    let labels = elements(view, "text");
    let row_of = |name: &str| {
        let label =
            labels.iter().find(|label| label["text"] == name).unwrap_or_else(|| panic!("no row {name}"));
        at(label, "y") - 13.0
    };
    let marks = elements(view, "rect");
    let found = |cycle: u64, row: &str| {
        let (x, y) = (151.0 + 14.0 * (cycle - from) as f64, row_of(row));
        marks.iter().filter(move |mark| at(mark, "x") == x && at(mark, "y") == y).collect::<Vec<_>>()
    };
    let mut own = BTreeSet::new();
    for stamp in data["stamps"].as_array().unwrap() {
        let cycle = number(&stamp[0]);
        if stamp[4] == 5 && (from..end).contains(&cycle) {
            let here = found(cycle, stamp[1].as_str().unwrap());
            let here =
                here.iter().find(|mark| mark["opacity"] == "1").unwrap_or_else(|| panic!("no {stamp}"));
            own.insert(here["fill"].clone());
        }
    }
    assert_eq!(own.len(), 1, "a message has one colour: {own:?}");
    let faint: BTreeSet<_> =
        marks.iter().filter(|mark| mark["opacity"] != "1").map(|mark| mark["fill"].clone()).collect();
    assert!(faint.len() > 1 && faint.is_disjoint(&own), "{faint:?} beside {own:?}");
    let mut causes: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for stall in data["stalls"].as_array().unwrap() {
        let (first, cycles) = (number(&stall[0]), number(&stall[2]));
        if first >= from && first + cycles <= end {
            let row = format!("core {} stalls", stall[1]);
            let here = found(first, &row);
            let width = (14.0 * cycles as f64 - 2.0).max(2.0);
            let here =
                here.iter().find(|mark| at(mark, "width") == width).unwrap_or_else(|| panic!("no {stall}"));
            causes.entry(stall[3].as_str().unwrap()).or_default().insert(here["fill"].clone());
        }
    }
    let colours: BTreeSet<_> = causes.values().flatten().collect();
    assert!(causes.len() > 1 && colours.len() == causes.len(), "a colour per cause: {causes:?}");
    let letters = elements(part(dom, "stages", "rows"), "text");
    let written: Vec<_> = letters.iter().filter(|letter| letter["text"] == "W").collect();
    let commits = data["commits"].as_array().unwrap().iter().map(|commit| number(&commit[0]));
    for (place, cycle) in commits.filter(|cycle| (from..end).contains(cycle)).take(300).enumerate() {
        let x = 266.5 + 14.0 * (cycle - from + 3) as f64;
        assert_eq!(
            (at(written[place], "x"), at(written[place], "y")),
            (x, 33.0 + 18.0 * place as f64),
            "{cycle}"
        );
    }
    assert!(written.len() > 20);
}
