//! Algorithms from outside, by name in a plan, on the simulated network.

use highwire_sim::plan::{Plan, Scale};
use highwire_sim::{Outcome, run};

fn plan() -> Plan {
    example_congestion::register().expect("both names are free");
    let nothing = |name: &str| Err(format!("there is no file {name}"));
    let text = include_str!("../compare.toml");
    Plan::read("compare.toml", text, Scale::Small, &nothing).unwrap_or_else(|error| panic!("{error}"))
}

fn outcomes() -> Vec<(String, Outcome)> {
    let plan = plan();
    assert_eq!(plan.review(), []);
    let play = |run_: highwire_sim::plan::Run| {
        let scenario = run_.scenario(&plan).expect("it is right");
        let outcome = run(&scenario, &mut ()).expect("no invariant breaks");
        assert_eq!(
            outcome,
            run(&scenario, &mut ()).expect("no invariant breaks"),
            "a seed gives one outcome"
        );
        (plan.schemes[run_.scheme].name.clone(), outcome)
    };
    plan.runs().into_iter().map(play).collect()
}

fn queue_bytes_max(outcome: &Outcome) -> u64 {
    outcome.ports.iter().map(|port| port.queue_bytes_max).max().expect("there are ports")
}

/// Eight senders, one receiver. The first round trip is the same for all, since every flow starts with a whole bandwidth-delay product;
/// then the queue is the algorithm's.
#[test]
fn swift_and_hpcc_lose_nothing_and_fill_the_link_where_dcqcn_is_told_by_marks() {
    let outcomes = outcomes();
    let [(_, dcqcn), (_, swift), (_, hpcc)] = &outcomes[..] else { panic!("three schemes") };
    assert!(dcqcn.totals.cnps > 0, "DCQCN hears of marks");
    assert_eq!((swift.totals.cnps, hpcc.totals.cnps), (0, 0), "the others do not");
    let seconds = |outcome: &Outcome| outcome.groups[0].rct().expect("it ended").as_secs_f64();
    // 8 MB at 40 Gb/s with headers.
    let ideal = 8e6 * 1086.0 / 1024.0 * 8.0 / 40e9;
    for (name, outcome) in &outcomes[1..] {
        assert_eq!(outcome.totals.dropped_packets, 0, "{name}");
        assert_eq!(outcome.totals.retransmitted, 0, "{name}: nothing was rescued");
        assert!(seconds(outcome) < 1.25 * ideal, "{name}: {} s of {ideal}", seconds(outcome));
        assert!(seconds(outcome) <= 1.02 * seconds(dcqcn), "{name} and DCQCN: {}", seconds(dcqcn));
    }
    // What waits when half of the bytes have come is the algorithm's own: HPCC's queue is gone by then.
    assert!(queue_bytes_max(hpcc) <= queue_bytes_max(dcqcn));
}

/// Switches write nothing unless the algorithm asks; HPCC without its telemetry does not move.
#[test]
fn telemetry_can_be_switched_off_and_is_missed() {
    example_congestion::register().expect("both names are free");
    let text = include_str!("../compare.toml").replace("hosts = 9", "hosts = 9\ntelemetry = \"off\"");
    let nothing = |name: &str| Err(format!("there is no file {name}"));
    let plan = Plan::read("compare.toml", &text, Scale::Small, &nothing).expect("it can be read");
    let warned = plan.review();
    assert!(warned.iter().any(|f| f.about.key == "network.telemetry" && !f.is_error), "{warned:?}");
    let runs = plan.runs();
    let play =
        |at: usize| run(&runs[at].scenario(&plan).expect("right"), &mut ()).expect("no invariant breaks");
    let (swift, hpcc) = (play(1), play(2));
    let told = outcomes();
    assert_eq!(swift.totals.fingerprint, told[1].1.totals.fingerprint, "Swift needs no telemetry");
    assert_ne!(hpcc.totals.fingerprint, told[2].1.totals.fingerprint);
}

/// The rule of another crate, by name in a plan: every byte arrives, three packets beyond a loss bring its repetition, and one loss
/// in a window costs no timeout.
#[test]
fn a_recovery_from_outside_repairs_losses_by_its_own_rule() {
    example_congestion::register().expect("the names are free");
    let text = include_str!("../compare.toml")
        .replace("congestion = \"swift\"", "loss_recovery = \"three-duplicates\"");
    let text = text.replace("hosts = 9", "hosts = 9\npacket_loss = 0.003");
    let text = text.replace("senders = 8", "senders = 2").replace("8MB", "1MB");
    let nothing = |name: &str| Err(format!("there is no file {name}"));
    let plan = Plan::read("compare.toml", &text, Scale::Small, &nothing).unwrap_or_else(|e| panic!("{e}"));
    let run_ = plan.runs().into_iter().nth(1).expect("three schemes");
    let outcome = run(&run_.scenario(&plan).expect("right"), &mut ()).expect("no invariant breaks");
    assert!(outcome.flows.iter().all(|flow| flow.received.is_some()));
    let totals = &outcome.totals;
    assert!(totals.lost_packets > 0 && totals.retransmitted > 0, "{totals:?}");
    assert!(totals.timeouts < totals.retransmitted, "most losses are found by duplicates: {totals:?}");
    let wrong = text.replace("three-duplicates", "three-duplicate");
    let error =
        Plan::read("compare.toml", &wrong, Scale::Small, &nothing).expect_err("no such rule").to_string();
    assert!(error.contains("is it \"three-duplicates\"?"), "{error}");
}

/// IRN's own rule behind another name: without congestion control nobody can tell the two apart, and with it the flows that hear of
/// fewer losses end sooner.
#[test]
fn irns_own_rule_can_be_wrapped_by_one_from_outside() {
    example_congestion::register().expect("the names are free");
    let text = include_str!("../compare.toml");
    let (head, _) = text.split_once("[[scheme]]").expect("it has schemes");
    let head = head.replace("hosts = 9", "hosts = 9\npacket_loss = 0.002");
    let head = head.replace("senders = 8", "senders = 2").replace("8MB", "4MB");
    let scheme = |name: &str, rule: &str, control: &str| {
        format!(
            "[[scheme]]\nname = \"{name}\"\ntransport = {{ loss_recovery = \"{rule}\", congestion = \"{control}\" }}\n"
        )
    };
    let schemes = [
        scheme("IRN", "sack", "none"),
        scheme("the same", "sparing", "none"),
        scheme("IRN with AIMD", "sack", "aimd"),
        scheme("spared", "sparing", "aimd"),
    ];
    let text = head + &schemes.concat();
    let nothing = |name: &str| Err(format!("there is no file {name}"));
    let plan = Plan::read("wrapped.toml", &text, Scale::Small, &nothing).unwrap_or_else(|e| panic!("{e}"));
    let play = |run_: highwire_sim::plan::Run| {
        run(&run_.scenario(&plan).expect("right"), &mut ()).expect("no invariant breaks")
    };
    let outcomes: Vec<Outcome> = plan.runs().into_iter().map(play).collect();
    let [irn, same, aimd, spared] = &outcomes[..] else { panic!("four schemes") };
    assert!(irn.totals.retransmitted > 0, "{:?}", irn.totals);
    assert_eq!(irn.totals.fingerprint, same.totals.fingerprint);
    let end = |outcome: &Outcome| outcome.groups[0].rct().expect("it ended");
    assert!(end(spared) < end(aimd), "{:?} and {:?}", end(spared), end(aimd));
}
