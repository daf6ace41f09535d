//! Plans: every one that ships is right, and wrong ones are told where and why.

use highwire_sim::campaign::{Campaign, Shard};
use highwire_sim::plan::{Plan, Scale, reference, shipped};

fn nothing(name: &str) -> Result<String, String> {
    Err(format!("there is no file {name}"))
}

/// A plan that is right, to be spoilt.
const RIGHT: &str = "figure = \"none\"
title = \"t\"
claim = \"c\"

[network]
buffer = \"240KB\"

[[scheme]]
name = \"IRN\"

[[scheme]]
name = \"RoCE\"
transport = { protocol = \"roce\" }

[[axis]]
key = \"workload.load\"
values = [0.3, 0.7]

[[expect]]
claim = \"c\"
paper = \"p\"
metric = \"fct_mean_s\"
scheme = \"RoCE\"
over = \"IRN\"
at = \"0.7\"
band = [1, 2]
";

#[track_caller]
fn check_error(from: &str, to: &str, expected: &str) {
    assert!(RIGHT.contains(from), "{from}");
    let text = RIGHT.replacen(from, to, 1);
    let error = Plan::read("plans/p.toml", &text, Scale::Small, &nothing).expect_err(to).to_string();
    assert_eq!(error.lines().next(), Some(expected), "{error}");
}

#[test]
fn what_ships_can_be_played() {
    for plan in shipped() {
        for scale in [Scale::Small, Scale::Full] {
            let read = Plan::read(plan.path, plan.text, scale, &nothing);
            let mut read = read.unwrap_or_else(|error| panic!("{error}"));
            read.seeds = 1;
            let plans = [read];
            let mut campaign = Campaign::new(&plans, Shard::WHOLE);
            if scale == Scale::Small {
                campaign.check().unwrap_or_else(|error| panic!("{error}"));
            }
            assert!(plans[0].explain().contains("schemes"));
        }
    }
}

#[test]
fn everything_in_the_folder_ships() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
    let mut found = Vec::new();
    for group in std::fs::read_dir(folder).expect("it is there") {
        let group = group.expect("readable").path();
        for file in std::fs::read_dir(&group).into_iter().flatten() {
            let path = file.expect("readable").path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let relative = path.strip_prefix(folder).expect("beneath").display().to_string();
                found.push(format!("experiments/{relative}"));
            }
        }
    }
    found.sort();
    let mut shipped: Vec<_> = shipped().iter().map(|plan| plan.path.to_string()).collect();
    shipped.sort();
    assert_eq!(found, shipped);
}

#[test]
fn a_wrong_plan_is_told_where_and_what_would_be_right() {
    check_error(
        "buffer",
        "bufer",
        "plans/p.toml:6:1: `network.bufer`: there is no such key; is it `buffer`?",
    );
    check_error(
        "\"240KB\"",
        "240",
        "plans/p.toml:6:10: `network.buffer`: 240 is no value of it; expected bytes, like \"240KB\" (K is 1000, Ki is 1024)",
    );
    check_error(
        "\"roce\"",
        "\"rose\"",
        "plans/p.toml:13:26: `transport.protocol`: \"rose\" is no value of it; is it \"roce\"? (one of \"irn\", \"roce\", \"iwarp\")",
    );
    check_error(
        "[[scheme]]",
        "[[schema]]",
        "plans/p.toml:8:3: `schema`: there is no such key; is it `scheme`?",
    );
    check_error("name = \"IRN\"", "", "plans/p.toml:8:1: `name`: is missing: add `name = \"…\"` here");
    check_error(
        "name = \"RoCE\"",
        "name = \"IRN\"",
        "plans/p.toml:12:8: `name`: there are two schemes `IRN`",
    );
    check_error(
        "over = \"IRN\"",
        "over = \"IRM\"",
        "plans/p.toml:24:8: `over`: `IRM`: there is no such scheme; is it `IRN`?",
    );
    check_error(
        "fct_mean_s",
        "fct_maen_s",
        "plans/p.toml:22:10: `metric`: there is no such metric; is it `fct_mean_s`?",
    );
    check_error(
        "workload.load",
        "workload.lode",
        "plans/p.toml:16:7: `workload.lode`: there is no such parameter; is it `workload.load`?",
    );
    check_error(
        "at = \"0.7\"",
        "at = \"0.8\"",
        "plans/p.toml:25:6: `at`: there is no such point of the first axis; is it `0.3`?",
    );
    check_error(
        "band = [1, 2]",
        "band = [2, 1]",
        "plans/p.toml:26:8: `band`: expected two numbers, the smaller first, like [1.5, 3]",
    );
    check_error(
        "[network]",
        "[workload]\nsizes = \"web-serch\"\n[network]",
        "plans/p.toml:6:9: `workload.sizes`: there is no file web-serch, and there is no such distribution; is it `web-search`?",
    );
    let unquoted = RIGHT.replacen("title = \"t\"", "title = t", 1);
    let error =
        Plan::read("p.toml", &unquoted, Scale::Small, &nothing).expect_err("a word without quotation marks");
    assert_eq!((error.line, error.column), (2, 9));
}

#[test]
fn a_file_beside_the_plan_is_read_and_its_line_named() {
    let text = RIGHT.replacen("[network]", "[workload]\nsizes = \"my.cdf\"\n[network]", 1);
    let load = |name: &str| match name {
        "my.cdf" => Ok("0 0\n1000 90\n".to_string()),
        other => nothing(other),
    };
    let error = Plan::read("p.toml", &text, Scale::Small, &load).expect_err("it ends at 90 %").to_string();
    assert!(error.contains("my.cdf: line 2: the last line must be at 100 percent"), "{error}");
}

#[test]
fn every_combination_is_played_with_every_seed() {
    let text = format!("seeds = 3\n{RIGHT}");
    let plan = Plan::read("p.toml", &text, Scale::Small, &nothing).expect("it is right");
    let runs = plan.runs();
    assert_eq!(runs.len(), 2 * 2 * 3);
    assert!(runs.iter().enumerate().all(|(place, run)| run.index == place));
    let names: Vec<String> = runs.iter().step_by(3).map(|run| plan.point_name(&run.points)).collect();
    assert_eq!(names, ["0.3", "0.3", "0.7", "0.7"]);
}

#[test]
fn the_reference_is_up_to_date() {
    let page = include_str!("../../../docs/experiments.md");
    let (_, rest) = page.split_once("<!-- begin: parameters -->\n").expect("the section is marked");
    let (section, _) = rest.split_once("<!-- end: parameters -->").expect("the section ends");
    let expected = reference();
    assert!(section == expected, "docs/experiments.md should have\n{expected}");
}
