//! A campaign gives the same bytes with any number of threads, whole or in parts.
#![allow(
    clippy::disallowed_types,
    reason = "an archive is shared by the threads that play; it is no state machine"
)]

mod common;

use std::collections::BTreeMap;
use std::sync::Mutex;

use common::{SMALL, read};
use highwire_fabric::Time;
use highwire_sim::campaign::{Archive, Campaign, MergeError, Part, Played, Shard, Status, Witness, merge};
use highwire_sim::plan::{Plan, Run};
use highwire_sim::report::{self, Measures};
use highwire_sim::{Flow, Outcome, RunError, Scenario};

fn play(plan: &Plan, shard: Shard, threads: usize) -> Vec<Measures> {
    played(plan, shard, threads).whole().unwrap_or_else(|error| panic!("{error}"))
}

fn played(plan: &Plan, shard: Shard, threads: usize) -> Played {
    let plans = std::slice::from_ref(plan);
    let mut campaign = Campaign::new(plans, shard);
    campaign.check().expect("the plan is right");
    let mut last = 0;
    let observe = |status: Status| {
        assert!(status.done <= status.total && status.total == campaign.work());
        last = status.done;
    };
    let mut results = Vec::new();
    campaign.play(threads, observe, |_, played| results.push(played));
    assert_eq!((last, results.len()), (campaign.work(), 1));
    results.remove(0)
}

/// Everything that a campaign leaves behind.
fn files(plan: &Plan, runs: &[Run], measures: &[Measures]) -> (String, Vec<u8>, String, String) {
    let verdicts = report::judge(plan, runs, measures);
    (
        report::csv(plan, runs, measures),
        report::parquet(plan, runs, measures).expect("Parquet takes it"),
        report::page(plan, runs, measures, &[]),
        report::table(plan, runs, measures) + &report::verdicts(&verdicts),
    )
}

#[test]
fn threads_and_shards_leave_the_same_bytes() {
    let plan = read(SMALL);
    let runs = plan.runs();
    let whole = files(&plan, &runs, &play(&plan, Shard::WHOLE, 1));
    assert_eq!(whole, files(&plan, &runs, &play(&plan, Shard::WHOLE, 3)), "threads");
    let mut parts: Vec<Part> = Vec::new();
    for number in ["3/3", "1/3", "2/3"] {
        let shard: Shard = number.parse().expect("it is right");
        let json = Part::new(&plan, shard, played(&plan, shard, 2)).to_json();
        parts.push(Part::from_json(&json).expect("as it was written"));
    }
    let merged = merge(&parts).expect("all are there");
    assert!(merged.failures.is_empty());
    assert_eq!(whole, files(&merged.plan, &merged.runs, &merged.measures), "shards");
    let missing = merge(&parts[..2]).expect_err("the second third is missing");
    assert_eq!(missing, MergeError::Missing { runs: 2, shard: "2/3".into() });
    assert!(matches!(merge(&[]), Err(MergeError::Nothing)));
}

#[test]
fn parts_of_another_plan_are_refused() {
    let (plan, other) = (read(SMALL), read(&SMALL.replace("load = 0.4", "load = 0.5")));
    let nothing = || Played { runs: Vec::new(), measures: Vec::new(), failures: Vec::new() };
    let part = |plan| Part::new(plan, "1/2".parse().expect("it is right"), nothing());
    let error = merge(&[part(&plan), part(&other)]).expect_err("they differ");
    assert!(matches!(error, MergeError::OtherPlan { .. }), "{error}");
}

#[test]
fn what_plans_have_in_common_is_played_once() {
    let plans = [read(SMALL), read(&SMALL.replace("title = \"t\"", "title = \"another\""))];
    let campaign = Campaign::new(&plans, Shard::WHOLE);
    assert_eq!(campaign.job_count(), plans[0].runs().len());
    let mut results = Vec::new();
    campaign.play(2, |_| (), |plan, played| results.push((plan, played.whole().ok())));
    let [(0, Some(first)), (1, Some(second))] = &results[..] else { panic!("a result per plan") };
    assert_eq!(first, second);
}

#[test]
fn a_film_is_no_reason_to_play_twice() {
    let unfilmed = SMALL.split("[film]").next().expect("a text has a beginning");
    let plans = [read(unfilmed), read(SMALL), read(unfilmed)];
    let campaign = Campaign::new(&plans, Shard::WHOLE);
    assert_eq!(campaign.job_count(), plans[0].runs().len());
    let mut results = BTreeMap::new();
    campaign.play(2, |_| (), |plan, played| drop(results.insert(plan, played.whole().expect("it is right"))));
    let films = |plan: usize| results[&plan].iter().filter(|measures| measures.film.is_some()).count();
    assert_eq!([films(0), films(1), films(2)], [0, 2, 0]);
    assert_eq!(results[&0], play(&plans[0], Shard::WHOLE, 1));
}

#[derive(Debug, Default)]
struct Shelf(Mutex<BTreeMap<String, Measures>>);

impl Archive for Shelf {
    fn find(&self, key: &str) -> Option<Measures> {
        self.0.lock().expect("nobody panics").get(key).cloned()
    }

    fn keep(&self, key: &str, measures: &Measures) {
        self.0.lock().expect("nobody panics").insert(key.into(), measures.clone());
    }
}

#[test]
fn what_an_archive_has_is_not_played() {
    let (shelf, plan) = (Shelf::default(), read(SMALL));
    let play = |plan: &Plan| {
        let campaign = Campaign::new(std::slice::from_ref(plan), Shard::WHOLE).with_archive(&shelf);
        let (mut played, mut measures) = (0, Vec::new());
        campaign.play(
            2,
            |status| played = status.runs,
            |_, played| measures = played.whole().expect("it is right"),
        );
        assert_eq!(played + campaign.kept_count(), campaign.job_count());
        (played, measures)
    };
    let (first, again) = (play(&plan), play(&plan));
    assert_eq!((first.0, again.0), (6, 0));
    assert_eq!(first.1, again.1);
    let unfilmed = SMALL.split("[film]").next().expect("a text has a beginning");
    assert_eq!(play(&read(unfilmed)).0, 0, "what was filmed serves without a film");
    let more = play(&read(&SMALL.replace("seeds = 2", "seeds = 3")));
    assert_eq!(more.0, 3, "only the new seed is played");
    assert_eq!(play(&read(&SMALL.replace("load = 0.4", "load = 0.5"))).0, 6, "another plan is another plan");
}

/// A campaign that was stopped: of what is not kept nothing is played, and nothing fails.
#[test]
fn what_is_kept_is_reported_by_itself() {
    let (shelf, whole) = (Shelf::default(), read(&SMALL.replace("seeds = 2", "seeds = 3")));
    let one = [read(&SMALL.replace("seeds = 2", "seeds = 1"))];
    let first = Campaign::new(&one, Shard::WHOLE).with_archive(&shelf);
    first.play(2, |_| (), |_, played| assert!(played.failures.is_empty()));
    let campaign = Campaign::new(std::slice::from_ref(&whole), Shard::WHOLE).with_archive(&shelf).only_kept();
    let mut reported = None;
    campaign.play(2, |status| panic!("a run was played: {status:?}"), |_, played| reported = Some(played));
    let played = reported.expect("the plan is reported");
    assert!(played.failures.is_empty());
    assert_eq!(played.runs.iter().map(|run| run.seed).collect::<Vec<_>>(), [1, 1, 1]);
    let verdicts = highwire_sim::report::judge(&whole, &played.runs, &played.measures);
    assert!(verdicts.iter().all(|verdict| verdict.seeds() == 1), "{verdicts:?}");
}

/// RoCE does not look at IRN's parameters: it is played once for all points.
#[test]
fn what_a_run_does_not_look_at_is_no_reason_to_play_it_again() {
    let axis = "[[axis]]\nkey = \"transport.rto_low_n\"\nvalues = [3, 10, 15]\n\n[film]";
    let plan = read(&SMALL.replace("[film]", axis));
    let campaign = Campaign::new(std::slice::from_ref(&plan), Shard::WHOLE);
    assert_eq!(campaign.runs(0).len(), 3 * 3 * 2);
    // IRN at three points, RoCE and iWARP once, by two seeds each.
    assert_eq!(campaign.job_count(), (3 + 1 + 1) * 2);
    let measures = play(&plan, Shard::WHOLE, 2);
    let of_scheme = |scheme: usize, point: usize| {
        let place = campaign.runs(0).iter().position(|run| run.scheme == scheme && run.points == [point]);
        measures[place.expect("every combination is played")].fingerprint
    };
    assert!((0..3).all(|point| of_scheme(1, point) == of_scheme(1, 0)));
}

#[test]
fn a_run_that_cannot_be_says_which_it_is() {
    let plan = read(&SMALL.replace("hosts = 6", "hosts = 1"));
    let error = Campaign::new(std::slice::from_ref(&plan), Shard::WHOLE).check().expect_err("one host");
    assert!(error.to_string().starts_with("small: scheme IRN, seed 1: "), "{error}");
}

#[test]
fn every_run_has_a_row_with_every_parameter() {
    let plan = read(SMALL);
    let measures = play(&plan, Shard::WHOLE, 2);
    let csv = report::csv(&plan, &plan.runs(), &measures);
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().expect("names");
    assert_eq!(&names[..5], ["plan", "point", "scheme", "seed", "network_shape"]);
    let rows: Vec<_> = lines.collect();
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| row.len() == names.len()));
    let column = |name: &str| names.iter().position(|n| *n == name).expect(name);
    assert!(rows.iter().all(|row| row[column("network_pfc_headroom")] == "auto"));
    let schemes: Vec<&str> = rows.iter().map(|row| row[column("scheme")]).collect();
    assert_eq!(schemes, ["IRN", "IRN", "RoCE-PFC", "RoCE-PFC", "iWARP", "iWARP"]);
    let value = |row: &[&str], name: &str| row[column(name)].parse::<f64>().expect(name);
    for row in &rows {
        assert!(value(row, "slowdown_mean") >= 1.0 && value(row, "rct_s") > 200e-6, "{row:?}");
        assert!(row[column("network_pfc")] == "false" || value(row, "dropped_percent") == 0.0, "{row:?}");
    }
}

/// Without timeouts a flow that loses its last packet never ends. Seeds decide which runs lose one.
const SOME_HANG: &str = r#"
figure = "none"
title = "t"
claim = "c"
seeds = 8
network = { shape = "star", hosts = 3, pfc = true, packet_loss = 0.005 }
workload = { pattern = "permutation", bytes = "40KB", time_limit = "2ms" }
[[scheme]]
name = "RoCE"
transport = { protocol = "roce" }
[[scheme]]
name = "IRN"
[[expect]]
claim = "c"
paper = "p"
metric = "fct_mean_s"
scheme = "RoCE"
over = "IRN"
at_least = 0
"#;

#[test]
fn a_run_that_fails_takes_no_other_with_it() {
    let plan = read(SOME_HANG);
    let all = plan.runs();
    let whole = played(&plan, Shard::WHOLE, 2);
    assert!(!whole.failures.is_empty() && whole.failures.len() < 8, "{:?}", whole.failures);
    assert_eq!(whole.runs.len() + whole.failures.len(), all.len());
    assert_eq!(whole.runs.len(), whole.measures.len());
    for (index, failure) in &whole.failures {
        let text = failure.to_string();
        let seed = all[*index].seed;
        assert!(text.starts_with(&format!("small: scheme RoCE, seed {seed}: ")), "{text}");
        assert!(text.contains("not over") && text.contains("transport.timeouts = \"on\""), "{text}");
    }
    // What has ended is compared seed by seed with the same seed of the other scheme.
    let verdicts = report::judge(&plan, &whole.runs, &whole.measures);
    assert_eq!(verdicts.len(), 1);
    let ratios: Vec<f64> = (whole.runs.iter().zip(&whole.measures))
        .filter(|(run, _)| run.scheme == 0)
        .map(|(run, measures)| {
            let same = |other: &&Run| other.scheme == 1 && other.seed == run.seed;
            let place = whole.runs.iter().position(|other| same(&other)).expect("IRN ends");
            let fct = |measures: &Measures| measures.get(report::Metric::FctMean).expect("flows have ended");
            fct(measures) / fct(&whole.measures[place])
        })
        .collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((verdicts[0].here[0].range.0 - least).abs() < 1e-12);
    let csv = report::csv(&plan, &whole.runs, &whole.measures);
    assert_eq!(csv.lines().count(), 1 + whole.runs.len());
    // Shards keep failures, too, and merge to the same.
    let parts: Vec<Part> = ["1/2", "2/2"]
        .map(|number| {
            let shard = number.parse().expect("it is right");
            Part::from_json(&Part::new(&plan, shard, played(&plan, shard, 1)).to_json()).expect("as written")
        })
        .into();
    let merged = merge(&parts).expect("all are there");
    assert_eq!((merged.runs, merged.measures), (whole.runs, whole.measures));
    let failures: Vec<String> = whole.failures.iter().map(|(_, failure)| failure.to_string()).collect();
    assert_eq!(merged.failures, failures);
}

/// A ring of switches on which every host sends half-way round in one direction: paused links close a circle.
#[test]
fn a_deadlock_names_the_links_that_wait_for_each_other() {
    let ring = 7;
    let mut graph = String::from("default 40Gbps 2us\n");
    for node in 0..ring {
        graph += &format!("host h{node}\nswitch s{node}\nlink h{node} s{node}\n");
    }
    for node in 0..ring {
        graph += &format!("link s{node} s{}\n", (node + 1) % ring);
    }
    let scheme = "transport = { protocol = \"roce\" }\nnetwork = { pfc = true, buffer = \"60KB\" }\n";
    let plan = common::graph_plan(&graph, scheme);
    let mut scenario = plan.runs()[0].scenario(&plan).expect("it is right");
    scenario.flows =
        (0..ring).map(|host| Flow::new(host, (host + 3) % ring, 20_000_000, Time::ZERO)).collect();
    let error = highwire_sim::run(&scenario, &mut ()).expect_err("nothing ends");
    let RunError::Deadlock { circle, .. } = &error else { panic!("{error}") };
    assert_eq!(circle.len(), ring as usize + 1, "{circle:?}");
    assert_eq!(circle.first(), circle.last());
    let number = |name: &String| name.trim_start_matches('s').parse::<u32>().expect("a switch");
    assert!(circle.windows(2).all(|pair| number(&pair[1]) == (number(&pair[0]) + 1) % ring), "{circle:?}");
    let text = error.to_string();
    assert!(text.contains("paused links wait for each other: s") && text.contains("seed 1"), "{text}");
}

#[derive(Debug, Default)]
struct Seen(Mutex<Vec<(String, usize, usize)>>);

impl Witness for Seen {
    fn on_outcome(&self, plan: &Plan, run: &Run, scenario: &Scenario, outcome: &Outcome) {
        assert_eq!(scenario.flows.len(), outcome.flows.len());
        let columns = highwire_sim::report::flow_columns_of(plan, run, scenario, outcome);
        assert!(columns.iter().all(|column| column.len() == outcome.flows.len()));
        self.0.lock().expect("nobody panics").push((plan.name.clone(), run.index, outcome.flows.len()));
    }
}

/// Two plans share runs that are played once; both see their flows.
#[test]
fn a_witness_sees_each_run_of_each_plan() {
    let (seen, mut plans) = (Seen::default(), [read(SMALL), read(SMALL)]);
    plans[1].name = "other".into();
    let campaign = Campaign::new(&plans, Shard::WHOLE).with_witness(&seen);
    assert_eq!(campaign.job_count(), 6);
    campaign.play(2, |_| (), |_, played| assert!(played.failures.is_empty()));
    let mut seen = seen.0.into_inner().expect("nobody panics");
    seen.sort();
    let names: Vec<(&str, usize)> = seen.iter().map(|(name, run, _)| (name.as_str(), *run)).collect();
    let expected: Vec<(&str, usize)> =
        ["other", "small"].iter().flat_map(|name| (0..6).map(|run| (*name, run))).collect();
    assert_eq!(names, expected);
    assert!(seen.iter().all(|(.., flows)| *flows > 4));
}

#[test]
fn a_campaign_that_is_told_to_stop_stops() {
    let plan = read(&SMALL.replace("seeds = 2", "seeds = 500"));
    let campaign = Campaign::new(std::slice::from_ref(&plan), Shard::WHOLE);
    let (mut looks, mut finished) = (0, 0);
    let watch = |_| {
        looks += 1;
        looks < 3
    };
    campaign.play_while(2, watch, |_, _| finished += 1);
    assert_eq!((looks, finished), (3, 0));
}
