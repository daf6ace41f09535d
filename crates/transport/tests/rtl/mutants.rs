//! Faults that are built in on purpose must be found, each in the port that it spoils.

use crate::bench::{Bench, Ports};
use crate::blocks::{Steps, pipelined, play, usual};
use crate::compare::cycles;

fn check<I: Ports, O: Ports>(
    top: &'static str,
    latency: usize,
    of: impl Fn(Steps) -> Vec<(I, O)>,
    mutants: &[(&'static str, &str)],
) {
    for &(mutant, port) in mutants {
        // One build has all faults of a block, and an argument switches one on.
        let Some(bench) = Bench::build::<I, O>(&usual().block(top)) else { return };
        let bench = bench.with_fault(mutant);
        let difference = (0..3).find_map(|seed| {
            let steps = of(play(seed, usual(), cycles()));
            pipelined(seed, latency, &steps).difference(&bench, mutant)
        });
        let difference = difference.unwrap_or_else(|| panic!("{top}: {mutant} is not found"));
        println!("{difference}");
        assert!(difference.contains(&format!("port {port}")), "{top}: {difference}");
    }
}

#[test]
fn faults_in_receive_data_are_found() {
    check(
        "irn_receive_data",
        4,
        |steps| steps.data,
        &[
            ("MUTANT_UNSIGNED_PSN", "out_kind"),
            ("MUTANT_WINDOW_END", "out_kind"),
            ("MUTANT_EVERY_END_COMPLETES", "out_completions"),
            ("MUTANT_REPEATED_CLASS", "out_second"),
        ],
    );
}

#[test]
fn faults_in_tx_free_are_found() {
    check(
        "irn_tx_free",
        3,
        |steps| steps.link,
        &[
            ("MUTANT_CAP", "out_sends"),
            ("MUTANT_SEARCH_FROM_LAST", "out_psn"),
            ("MUTANT_HOLES_ABOVE", "out_psn"),
            ("MUTANT_PRESUMED_IS_EVIDENT", "out_evident"),
        ],
    );
}

#[test]
fn faults_in_receive_ack_are_found() {
    check(
        "irn_receive_ack",
        4,
        |steps| steps.ack,
        &[
            ("MUTANT_STALE_MOVES", "out_stale"),
            ("MUTANT_BELIEVES_ALL", "out_invalid"),
            ("MUTANT_RUN_REACHES_FRONT", "out_sacked"),
            ("MUTANT_NEVER_RECOVERS", "out_recovered"),
            ("MUTANT_LOWER_SACK_SEARCHES", "out_flags"),
        ],
    );
}

#[test]
fn faults_in_timeout_are_found() {
    check(
        "irn_timeout",
        1,
        |steps| steps.timer,
        &[
            ("MUTANT_QUICK_BOUND", "out_timer"),
            ("MUTANT_EXTENDS_FOR_EVER", "out_flags"),
            ("MUTANT_RESENDS_LAST", "out_retransmit"),
        ],
    );
}
