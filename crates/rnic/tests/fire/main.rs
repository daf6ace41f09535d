//! Two ends under fire: seeded runs of whole RNICs over a network that loses, doubles, reorders, delays and damages.
//!
//! A seed chooses everything: topology, services, recoveries, queues, workload, faults. The workload runs against a
//! reference model; checkers look at every completion, every packet and, once the faults are over and everything has
//! completed, at every byte. Each seed runs twice and must do the same.
//!
//! `HIGHWIRE_SEED=n` runs one seed with a trace of its packets, `HIGHWIRE_SEEDS=n` runs n seeds.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod flow;
mod plan;
mod run;
mod stage;

use plan::{Plan, Theme};
use run::{Outcome, Run};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds of each theme, unless the environment says otherwise.
const SEEDS: u64 = 500;

#[allow(clippy::disallowed_methods, reason = "a test's size is the caller's choice")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

fn run_once(theme: Theme, seed: u64, with_trace: bool) -> Outcome {
    let plan = Plan::from_seed(theme, seed);
    if with_trace {
        eprintln!("{plan:#?}");
    }
    let mut run = Run::new(&plan, with_trace);
    let result = catch_unwind(AssertUnwindSafe(|| run.finish()));
    if with_trace {
        run.print_trace();
    }
    result.unwrap_or_else(|_| {
        panic!(
            "seed {seed} broke; repeat: HIGHWIRE_SEED={seed} cargo test -p highwire-rnic --test fire {}",
            theme.test()
        )
    })
}

fn fire(theme: Theme) {
    let one = number("HIGHWIRE_SEED");
    let count = number("HIGHWIRE_SEEDS").unwrap_or(SEEDS);
    let mut total = Outcome::default();
    for seed in one.map_or(0..count, |seed| seed..seed + 1) {
        let first = run_once(theme, seed, one.is_some());
        let second = run_once(theme, seed, false);
        assert_eq!(
            first.hash,
            second.hash,
            "seed {seed} ran differently the second time; repeat: HIGHWIRE_SEED={seed} cargo test -p highwire-rnic --test fire {}",
            theme.test()
        );
        total.add(&first);
    }
    println!("{}: {total:?}", theme.test());
    // Giving up after all retries is allowed while the faults last, but not as a habit.
    assert!(
        theme == Theme::Hostile || total.broken * 20 <= total.connections,
        "too many connections broke: {total:?}"
    );
}

#[test]
fn rc_go_back_n_under_fire() {
    fire(Theme::GoBackN);
}

#[test]
fn rc_irn_under_fire() {
    fire(Theme::Irn);
}

#[test]
fn rc_mixed_recoveries_under_fire() {
    fire(Theme::Mixed);
}

#[test]
fn uc_under_fire() {
    fire(Theme::Uc);
}

#[test]
fn ud_under_fire() {
    fire(Theme::Ud);
}

#[test]
fn many_queue_pairs_that_share_queues_under_fire() {
    fire(Theme::Many);
}

#[test]
fn nothing_outside_a_region_is_touched_by_forged_packets() {
    fire(Theme::Hostile);
}

#[test]
fn an_incast_of_three_under_fire() {
    fire(Theme::Incast);
}
