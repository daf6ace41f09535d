//! Transports from outside, by name, on an incast.

use std::process::Command;

use example_transport::{LEAST_CYCLES, MESSAGES, Outcome, incast};
use highwire_nanopu::network::PrioritySwitch;
use highwire_nanopu::nic::{Ndp, TransportKind};

/// Everything leaves unasked, into switches that neither trim nor mark.
static BLAST: TransportKind = TransportKind {
    name: "blast",
    about: "as fast as the link carries",
    make: |_| Box::new(Ndp { rtt_packets: 64 }),
    switch: || PrioritySwitch { priorities: 2, pool_bytes: 1 << 20 }.config(),
};

fn named(name: &str) -> Outcome {
    example_transport::register().expect("the names are free");
    incast(TransportKind::named(name).expect("it was registered")).expect("a network")
}

/// Nothing is lost or sent twice, the link stays busy, and the queue stays far below that of senders that do not listen.
fn keeps_the_queue_short(name: &str) {
    let (outcome, blast) = (named(name), incast(&BLAST).expect("a network"));
    assert_eq!((outcome.arrived, blast.arrived), (8 * MESSAGES, 8 * MESSAGES));
    assert_eq!((outcome.repeated, outcome.timeouts), (0, 0), "{outcome:?}");
    assert!(outcome.queue_bytes * 4 < blast.queue_bytes, "{outcome:?} {blast:?}");
    assert!(outcome.cycles * 10 < LEAST_CYCLES * 14, "{outcome:?} of {LEAST_CYCLES}");
}

#[test]
fn delay_keeps_the_queue_short() {
    keeps_the_queue_short("delay");
}

#[test]
fn marks_keep_the_queue_short() {
    keeps_the_queue_short("marks");
}

#[test]
fn a_run_repeats_itself() {
    assert_eq!((named("delay"), named("marks")), (named("delay"), named("marks")));
}

#[test]
fn the_program_knows_its_own_names_and_says_which() {
    let program = || Command::new(env!("CARGO_BIN_EXE_example-transport"));
    let output = program().args(["ndp", "homa", "delay", "marks"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text.lines().count(), 5, "{text}");
    let output = program().arg("swift").output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("ndp, homa, delay, marks"), "{error}");
}
