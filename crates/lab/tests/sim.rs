//! `highwire sim`: plans from files, shards from several processes, and messages about wrong command lines.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::lab;

const PLAN: &str = r#"
figure = "none"
title = "a star"
claim = "c"
seeds = 2

[network]
shape = "star"
hosts = 6

[workload]
load = 0.4
duration = "200us"
sizes = "small.cdf"

[[scheme]]
name = "IRN"

[[scheme]]
name = "RoCE with PFC"
transport = { protocol = "roce" }
network = { pfc = true }

[[expect]]
claim = "RoCE against IRN"
paper = "nothing"
metric = "fct_mean_s"
scheme = "RoCE with PFC"
over = "IRN"
at_least = 0
"#;

/// A folder of its own with the plan and its files.
fn folder(name: &str, plan: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("star.toml"), plan).expect("a plan");
    std::fs::write(folder.join("small.cdf"), "100 0\n20000 100\n").expect("sizes");
    folder
}

#[track_caller]
fn check(folder: &Path, args: &[&str], status: i32, mentions: &[&str]) {
    let output = lab(args).current_dir(folder).output().expect("it starts");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
    for mention in mentions {
        assert!(text.contains(mention), "{args:?} says nothing of {mention}: {text}");
    }
}

#[test]
fn experiments_are_listed_explained_and_checked() {
    let folder = folder("list", PLAN);
    check(&folder, &["sim", "list"], 0, &["fig01", "IRN Figure 11", "incast-cross"]);
    check(
        &folder,
        &["sim", "explain", "fig01"],
        0,
        &["fat-tree", "RoCE with PFC", "2.8 to 3.7 times", "leaves open"],
    );
    check(&folder, &["sim", "check", "star.toml"], 0, &["star: right; 4 runs"]);
}

#[test]
fn a_wrong_plan_is_status_2_with_its_line() {
    let folder = folder("wrong", &PLAN.replace("hosts", "host"));
    let expected =
        ["star.toml:9:1: `network.host`: there is no such key; is it `hosts`?", " 9 | host = 6", "^^^^"];
    check(&folder, &["sim", "check", "star.toml"], 2, &expected);
    check(&folder, &["sim", "run", "star.toml"], 2, &expected);
    check(&folder, &["sim", "run", "nothing.toml"], 2, &["there is no file nothing.toml", "fig01"]);
    check(&folder, &["sim", "run", "fig01", "--shard", "3"], 2, &["3/16"]);
    check(&folder, &["sim", "merge", "."], 2, &["there are no parts"]);
}

#[test]
fn what_was_interrupted_goes_on_where_it_was() {
    let folder = folder("resume", PLAN);
    let run = |seeds: &str, mentions: &[&str]| {
        check(
            &folder,
            &["sim", "run", "star.toml", "--resume", "--seeds", seeds, "--out", "kept"],
            0,
            mentions,
        );
    };
    run("1", &["0 of 2 runs have been played before", "2 runs in"]);
    run("2", &["2 of 4 runs have been played before", "2 runs in"]);
    run("2", &["4 of 4 runs have been played before", "0 runs in", "RoCE against IRN"]);
    check(&folder, &["sim", "run", "star.toml", "--seeds", "2", "--out", "whole"], 0, &["4 runs in"]);
    for file in ["runs.csv", "result.json", "report.html"] {
        let read = |from: &str| std::fs::read(folder.join(from).join("star").join(file)).expect(file);
        assert!(read("whole") == read("kept"), "{file} differs");
    }
    // Of more seeds, those that are there are reported, and nothing is played.
    let kept = ["sim", "run", "star.toml", "--kept", "--seeds", "5", "--out", "kept"];
    check(&folder, &kept, 0, &["4 of 10 runs have been played before", "0 runs in", "RoCE against IRN"]);
    let result = std::fs::read_to_string(folder.join("kept/star/result.json")).expect("it was written");
    let result: serde_json::Value = serde_json::from_str(&result).expect("it is JSON");
    assert_eq!((&result["runs"], &result["verdicts"][0]["seeds"]), (&4.into(), &2.into()), "{result}");
    let nothing = ["sim", "run", "star.toml", "--kept", "--out", "nowhere"];
    check(&folder, &nothing, 1, &["no run of these plans by this program is kept in nowhere/.runs"]);
    // An incomplete run does not count.
    let runs = std::fs::read_dir(folder.join("kept/.runs")).expect("it is there");
    let one = runs.map(|entry| entry.expect("it is readable").path()).next().expect("there are four");
    std::fs::write(one, "{").expect("it is ours");
    run("2", &["3 of 4 runs have been played before", "1 run in"]);
}

/// As in `docs/experiments.md`: with `xargs` instead of GNU parallel, or of an array job.
#[test]
fn shards_of_several_processes_merge_to_the_same_bytes() {
    let folder = folder("shards", PLAN);
    check(
        &folder,
        &["sim", "run", "star.toml", "--out", "whole", "--threads", "2"],
        0,
        &["a star", "RoCE against IRN"],
    );
    let script = format!(
        "seq 3 | xargs -P 2 -I{{}} {} sim run star.toml --shard {{}}/3 --out parts",
        env!("CARGO_BIN_EXE_highwire-lab")
    );
    let shards = Command::new("sh").args(["-c", &script]).current_dir(&folder).output().expect("sh is there");
    assert!(shards.status.success(), "{}", String::from_utf8_lossy(&shards.stderr));
    check(&folder, &["sim", "merge", "parts"], 0, &["RoCE against IRN"]);
    for file in ["runs.csv", "runs.parquet", "report.html", "result.json"] {
        let read = |from: &str| std::fs::read(folder.join(from).join("star").join(file)).expect(file);
        assert!(read("whole") == read("parts"), "{file} differs");
    }
}

/// Without timeouts, flows that lose their last packet never end; seeds decide which.
const SOME_HANG: &str = r#"
figure = "none"
title = "a star"
claim = "c"
seeds = 8

[network]
shape = "star"
hosts = 3
pfc = true
packet_loss = 0.005

[workload]
pattern = "permutation"
bytes = "40KB"
time_limit = "2ms"

[[scheme]]
name = "RoCE"
transport = { protocol = "roce" }

[[scheme]]
name = "IRN"
"#;

#[test]
fn what_has_ended_is_reported_although_a_run_fails() {
    let folder = folder("hang", SOME_HANG);
    let warning = "warning: star.toml:11:15: `network.packet_loss`: RoCE over PFC has no timeouts";
    check(&folder, &["sim", "check", "star.toml"], 0, &[warning, "star: right; 16 runs"]);
    let named = ["star: scheme RoCE, seed ", "not over", "`transport.timeouts = \"on\"`", "average slowdown"];
    check(&folder, &["sim", "run", "star.toml", "--out", "whole"], 1, &named);
    let script = format!(
        "seq 2 | xargs -I{{}} {} sim run star.toml --shard {{}}/2 --out parts",
        env!("CARGO_BIN_EXE_highwire-lab")
    );
    // Both shards have runs that fail, and leave their parts all the same.
    Command::new("sh").args(["-c", &script]).current_dir(&folder).output().expect("sh is there");
    check(&folder, &["sim", "merge", "parts"], 1, &named);
    for file in ["runs.csv", "result.json", "report.html"] {
        let read = |from: &str| std::fs::read(folder.join(from).join("star").join(file)).expect(file);
        assert!(read("whole") == read("parts"), "{file} differs");
    }
    let result = std::fs::read_to_string(folder.join("whole/star/result.json")).expect("it is there");
    assert!(result.contains("scheme RoCE, seed "), "{result}");
    let page = std::fs::read_to_string(folder.join("whole/star/report.html")).expect("it is there");
    assert!(page.contains("star: scheme RoCE, seed "), "the page names the runs that failed");
    let rows = std::fs::read_to_string(folder.join("whole/star/runs.csv")).expect("it is there");
    assert!((9..17).contains(&rows.lines().count()), "{rows}");
}

#[test]
fn a_plan_that_cannot_be_is_status_2_with_every_line() {
    let plan = PLAN.replace("hosts = 6", "hosts = 6\npacket_loss = 1.5\nbuffer = \"100B\"");
    let folder = folder("impossible", &plan);
    let expected = ["star.toml:10:15: `network.packet_loss`: 1.5", "probability below 1"];
    check(&folder, &["sim", "check", "star.toml"], 2, &expected);
    check(&folder, &["sim", "run", "star.toml"], 2, &expected);
}

/// The fields of a file of CSV without quotes.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).expect("it was written");
    text.lines().map(|line| line.split(',').map(String::from).collect()).collect()
}

#[test]
fn one_run_leaves_a_row_per_flow_in_each_form() {
    let folder = folder("play", PLAN);
    let words = ["sim", "play", "star.toml", "--scheme", "RoCE with PFC", "--seed", "2"];
    let with = |more: &[&'static str]| [&words[..], more].concat();
    check(&folder, &with(&["--flows", "f.csv"]), 0, &["average slowdown", "flows"]);
    check(&folder, &with(&["--flows", "f.jsonl", "--outcome", "o.json"]), 0, &["average FCT"]);
    check(
        &folder,
        &with(&["--flows", "f.parquet", "--json", "--threads", "2"]),
        0,
        &["\"fct_mean_s\"", "fingerprint"],
    );
    let table = rows(&folder.join("f.csv"));
    assert_eq!(
        table[0].join(" "),
        "flow source destination bytes class group start_s received_s acknowledged_s fct_s ideal_s slowdown packets sent_packets"
    );
    assert!(table.len() > 10);
    for row in &table[1..] {
        let value = |name: &str| {
            let place = table[0].iter().position(|it| it == name).expect("a column");
            row[place].parse::<f64>().unwrap_or_else(|_| panic!("{name} of {row:?}"))
        };
        assert!((value("fct_s") - (value("received_s") - value("start_s"))).abs() < 1e-12, "{row:?}");
        assert!(
            (value("slowdown") - value("fct_s") / value("ideal_s")).abs() < 1e-9 && value("slowdown") >= 1.0
        );
        assert!(value("acknowledged_s") > value("received_s") && value("sent_packets") >= value("packets"));
        assert!(row[5].is_empty(), "no flow belongs to a group");
    }
    let lines = std::fs::read_to_string(folder.join("f.jsonl")).expect("it was written");
    assert_eq!(lines.lines().count(), table.len() - 1);
    assert!(std::fs::read(folder.join("f.parquet")).expect("it was written").starts_with(b"PAR1"));
    // The run as a file gives the same flows.
    check(&folder, &with(&["--scenario", "s.json"]), 0, &["s.json: "]);
    check(&folder, &["sim", "play", "s.json", "--flows", "g.csv"], 0, &["average slowdown"]);
    assert!(rows(&folder.join("g.csv")) == table);
}

#[test]
fn a_campaign_leaves_the_flows_of_each_run() {
    let folder = folder("flows", PLAN);
    check(&folder, &["sim", "run", "star.toml", "--flows", "csv", "--out", "out"], 0, &["4 runs in"]);
    check(
        &folder,
        &["sim", "play", "star.toml", "--scheme", "RoCE with PFC", "--seed", "2", "--flows", "f.csv"],
        0,
        &[],
    );
    let one = rows(&folder.join("f.csv"));
    // The last of four runs: the second scheme with the second seed.
    let same = rows(&folder.join("out/star/flows/00003.csv"));
    assert_eq!(same[1][..4], ["star", "", "RoCE with PFC", "2"].map(String::from));
    assert_eq!(same.len(), one.len());
    assert!(same.iter().zip(&one).all(|(of_run, of_play)| of_run[4..] == of_play[..]));
    assert_eq!(std::fs::read_dir(folder.join("out/star/flows")).expect("a folder").count(), 4);
}

#[test]
fn what_cannot_be_played_is_status_2() {
    let folder = folder("unplayable", PLAN);
    let usage =
        |args: &[&str], mentions: &[&str]| check(&folder, &[&["sim", "play"], args].concat(), 2, mentions);
    usage(&["star.toml", "--flows", "f.txt"], &["f.txt", ".csv, .parquet or .jsonl"]);
    usage(&["star.toml", "--scheme", "TCP"], &["there is no scheme \"TCP\"", "IRN, RoCE with PFC"]);
    usage(&["star.toml", "--point", "0.7"], &["nothing is varied"]);
    usage(&["nothing.json"], &["nothing.json"]);
    std::fs::write(folder.join("wrong.json"), "{\n \"flow\": []\n}").expect("it is ours");
    usage(&["wrong.json"], &["wrong.json", "unknown field `flow`", "line 2"]);
    usage(&["wrong.json", "--seed", "3"], &["--scheme, --point, --seed and --full are for plans"]);
    std::fs::write(
        folder.join("far.json"),
        "{\"flows\": [{\"source\": 0, \"destination\": 99, \"bytes\": 1}]}",
    )
    .expect("it is ours");
    usage(&["far.json"], &["far.json: flow 0"]);
    let kept = ["sim", "run", "star.toml", "--flows", "csv", "--resume"];
    check(&folder, &kept, 2, &["cannot be used with"]);
}
