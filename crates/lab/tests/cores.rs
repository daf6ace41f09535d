//! `highwire bench cores` and `highwire sim cores`: they measure and read this machine's constants, and the
//! model gives results. Times are not tested.

mod common;

use std::path::PathBuf;
use std::process::Output;

use common::lab;
use serde_json::Value;

/// The costs of no real machine: looks are coarse, so that a run takes few steps.
const COSTS: &str = "relax_ns = 200
turn_ns = 100
event_ns = 200
fetch_ns = 80
clock_ns = 30
call_ns = 300
census_ns = 12000
spawn_ns = 20000
move_ns = 5000
wake_idle_ns = 4000
wake_busy_ns = 2000
wake_here_ns = 700
sleep_ns = 400
from_idle_ns = 7000
from_busy_ns = 12000
switch_ns = 700
idle_exit_ns = 8000
interrupt_ns = 1500
slice_ns = 200000
tick_ns = 400000
";

fn run(args: &[&str]) -> Output {
    lab(args).output().expect("it starts")
}

fn json(args: &[&str]) -> Value {
    let output = run(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// A file of this test's own.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("the folder is ours");
    path
}

/// The constants of this machine; `None`, after printing why, on a machine with one core.
fn measured() -> Option<String> {
    let output = run(&["bench", "cores"]);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("it takes two cores") {
        println!("skipped: {error}");
        return None;
    }
    assert!(output.status.success(), "{error}");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn what_is_measured_here_is_what_the_model_asks_for() {
    let Some(text) = measured() else { return };
    let path = file("measured.toml", &text);
    let path = path.to_str().expect("text");
    let rows =
        json(&["sim", "cores", "--costs", path, "--cores", "2", "--threads", "8", "--ms", "1", "--json"]);
    let rows = rows.as_array().expect("a list");
    // Five strategies that sleep; the two with a leader have a seat for each core or one for all.
    assert_eq!(rows.len(), 7, "{rows:?}");
    assert!(rows.iter().all(|row| row["simulated"] == true && row["events"].as_u64() > Some(0)), "{rows:?}");
}

#[test]
fn the_model_is_held_against_this_machine() {
    if measured().is_none() {
        return;
    }
    let path = file("validated.toml", "");
    let scenes = ["--threads", "1,4", "--strategy", "event,affine", "--rounds", "1", "--turn-ms", "2"];
    let out = ["--json", "--out", path.to_str().expect("text")];
    let document = json(&[&["bench", "cores", "--validate"][..], &scenes, &out].concat());
    let costs = document["costs"].as_object().expect("constants");
    let written = std::fs::read_to_string(&path).expect("it was written");
    assert_eq!(written.lines().count(), costs.len());
    for line in written.lines() {
        let (name, ns) = line.split_once(" = ").expect("a constant");
        assert_eq!(costs[name].to_string(), ns, "{name}");
    }
    let rows = document["scenes"].as_array().expect("a list");
    // Idle, busy and one core: own events of one thread, own and other events of four.
    assert_eq!(rows.len(), 3 * 3 * 2, "{rows:?}");
    for row in rows {
        let ratio =
            row["simulated_p50_ns"].as_f64().expect("ns") / row["measured_p50_ns"].as_f64().expect("ns");
        assert!((row["p50_ratio"].as_f64().expect("a ratio") - ratio).abs() < 1e-9, "{row}");
    }
}

#[test]
fn the_same_options_give_the_same_result_and_say_that_it_is_simulated() {
    let path = file("coarse.toml", COSTS);
    let path = path.to_str().expect("text");
    let ask = |seed: &str, form: &[&str]| {
        let args =
            ["sim", "cores", "--costs", path, "--cores", "4", "--threads", "64", "--ms", "2", "--seed", seed];
        let output = run(&[&args[..], form].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(ask("1", &["--json"]), ask("1", &["--json"]));
    assert_ne!(ask("1", &["--json"]), ask("2", &["--json"]));
    assert!(ask("1", &[]).starts_with("simulated\n"));
    assert!(ask("1", &["--markdown"]).starts_with("| simulated cores |"));
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    let path = file("sense.toml", COSTS);
    let path = path.to_str().expect("text");
    let broken = file("broken.toml", &COSTS.replace("relax_ns = 200", "relax_ns = 0"));
    let unknown = file("unknown.toml", &format!("{COSTS}teapot_ns = 1\n"));
    let less = file("less.toml", COSTS.trim_end().rsplit_once('\n').expect("lines").0);
    let negative = file("negative.toml", &COSTS.replace("clock_ns = 30", "clock_ns = -30"));
    let word = file("word.toml", &COSTS.replace("clock_ns = 30", "clock_ns = soon"));
    let endless = file("endless.toml", &COSTS.replace("sleep_ns = 400", "sleep_ns = 99999999999"));
    let garbled = file("garbled.toml", "\u{1}\u{2} not a file of constants");
    let empty = file("empty.toml", "");
    for (costs, args, status, mention) in [
        (path, &["--cores", "16", "--threads", "8"][..], 2, "leave some of 16 cores without any"),
        (path, &["--cores", "2", "--threads", "8", "--hogs", "3"], 2, "there is one for each"),
        ("nowhere.toml", &[], 1, "highwire bench cores > nowhere.toml"),
        (broken.to_str().expect("text"), &[], 1, "relax_ns is 0"),
        (unknown.to_str().expect("text"), &[], 1, "teapot_ns"),
        (less.to_str().expect("text"), &[], 1, "tick_ns"),
        (negative.to_str().expect("text"), &[], 1, "-30"),
        (word.to_str().expect("text"), &[], 1, "clock_ns = soon"),
        (
            endless.to_str().expect("text"),
            &[],
            1,
            "sleep_ns is 99999999999; it is to be from 0 to 1000000000",
        ),
        (garbled.to_str().expect("text"), &[], 1, "is not what `highwire bench cores` prints"),
        (empty.to_str().expect("text"), &[], 1, "missing field `relax_ns`"),
        (env!("CARGO_TARGET_TMPDIR"), &[], 1, "highwire bench cores"),
    ] {
        let output = run(&[&["sim", "cores", "--costs", costs][..], args].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
        assert!(text.contains(mention), "{args:?}: {text}");
    }
}
