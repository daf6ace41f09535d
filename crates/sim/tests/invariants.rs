//! Invariants of every run, under every scheme.

use highwire_fabric::{Balancing, Ecn, Rate, Span, Time};
use highwire_sim::scenario::{
    AckPriority, Cap, CongestionChoice, GoBackN, HeaderBytes, Irn, LinkEvent, LinkFault, LossRecovery,
    PfcChoice, QueuePairs, Record, Shape, Stop, Tcp, Transport,
};
use highwire_sim::{Flow, FlowId, Outcome, RunError, Scenario, ScenarioError, Tick, run, run_on};
use highwire_stdx::Rng;

/// Flows of all sizes between random hosts, many of them at once.
fn mixed(seed: u64, hosts: u32, count: u32) -> Vec<Flow> {
    let mut rng = Rng::new(seed);
    let mut flow = || {
        let source = rng.below(u64::from(hosts)) as u32;
        let other = rng.below(u64::from(hosts) - 1) as u32;
        let bytes = match rng.below(4) {
            0 | 1 => rng.between(32, 1024),
            2 => rng.between(1_000, 50_000),
            _ => rng.between(100_000, 400_000),
        };
        Flow::new(source, other + u32::from(other >= source), bytes, Time::from_ns(rng.below(200_000)))
    };
    (0..count).map(|_| flow()).collect()
}

fn leaf_spine(seed: u64) -> Scenario {
    let mut scenario = Scenario { seed, flows: mixed(seed, 16, 120), ..Scenario::default() };
    scenario.network.shape = Shape::LeafSpine { leaves: 4, spines: 2, hosts_per_leaf: 4, uplink_rate: None };
    scenario
}

/// Checks the outcome of a run to its end.
fn check(scenario: &Scenario, outcome: &Outcome) {
    for flow in &outcome.flows {
        let fct = flow.fct().expect("every flow is over");
        assert!(fct >= flow.ideal, "flow {} took {fct} and cannot take less than {}", flow.id.0, flow.ideal);
        assert!(flow.acknowledged >= flow.received, "{flow:?}");
        assert_eq!(flow.bytes, scenario.flows[flow.id.0 as usize].bytes);
    }
    let totals = &outcome.totals;
    let needed: u64 = outcome.flows.iter().map(|f| u64::from(f.packets)).sum();
    assert!(totals.data_packets >= needed);
    assert_eq!(totals.data_packets - totals.retransmitted, needed, "every packet leaves once, then again");
    if scenario.network.pfc != PfcChoice::Off {
        assert_eq!(totals.dropped_packets, 0);
    }
}

fn schemes() -> Vec<(Transport, PfcChoice)> {
    let irn = |recovery| Transport::Irn(Irn { recovery, ..Irn::default() });
    let selective = irn(LossRecovery::SelectiveRepeat);
    vec![
        (selective.clone(), PfcChoice::Off),
        (selective, PfcChoice::Computed),
        (irn(LossRecovery::SelectiveWithoutSack), PfcChoice::Off),
        (irn(LossRecovery::GoBackN), PfcChoice::Off),
        (Transport::Irn(Irn { cap: Cap::Unlimited, ..Irn::default() }), PfcChoice::Off),
        (Transport::Irn(Irn { ack_delay: Span::from_us(4), ..Irn::default() }), PfcChoice::Off),
        (Transport::GoBackN(GoBackN::default()), PfcChoice::Computed),
        (Transport::Tcp(Tcp::default()), PfcChoice::Off),
        (Transport::GoBackN(GoBackN { window_packets: Some(111), ..GoBackN::without_pfc() }), PfcChoice::Off),
    ]
}

/// TCP has a congestion control of its own.
fn control(transport: &Transport, congestion: CongestionChoice) -> CongestionChoice {
    if matches!(transport, Transport::Tcp(_)) { CongestionChoice::NONE } else { congestion }
}

#[test]
fn every_scheme_with_every_congestion_control_delivers_every_byte_once() {
    let controls = [
        CongestionChoice::NONE,
        CongestionChoice::DCQCN,
        CongestionChoice::DCQCN_CONNECTX,
        CongestionChoice::TIMELY,
        CongestionChoice::AIMD,
        CongestionChoice::DCTCP,
    ];
    for (number, (transport, pfc)) in schemes().into_iter().enumerate() {
        for (other, congestion) in controls.into_iter().enumerate() {
            let mut scenario = leaf_spine(1 + (number * 10 + other) as u64);
            scenario.network.pfc = pfc;
            scenario.network.ecn = Some(Ecn::red(5_000, 200_000, 0.01));
            scenario.scheme.transport = transport.clone();
            scenario.scheme.congestion = control(&transport, congestion);
            let outcome = run(&scenario, &mut ())
                .unwrap_or_else(|error| panic!("{transport:?} {pfc:?} {congestion:?}: {error}"));
            check(&scenario, &outcome);
        }
    }
}

#[test]
fn losses_failures_spraying_and_shared_queue_pairs_lose_nothing() {
    for (number, (transport, pfc)) in schemes().into_iter().enumerate() {
        let mut scenario = leaf_spine(100 + number as u64);
        scenario.scheme.transport = transport.clone();
        scenario.network.pfc = pfc;
        scenario.scheme.queue_pairs = QueuePairs::PerPair;
        scenario.scheme.headers = HeaderBytes { is_encoded: true, extra: 16, gap: 20 };
        if pfc == PfcChoice::Off {
            scenario.network.balancing = Balancing::Spray;
            scenario.network.faults = vec![LinkFault { link: None, bit_error_rate: 1e-7, packet_loss: 1e-3 }];
            // A leaf loses one of its uplinks for a while.
            let link = 16;
            scenario.network.events = vec![
                LinkEvent { at: Time::from_us(60), link, is_up: false },
                LinkEvent { at: Time::from_us(400), link, is_up: true },
            ];
        }
        let outcome =
            run(&scenario, &mut ()).unwrap_or_else(|error| panic!("{transport:?} {pfc:?}: {error}"));
        let over = outcome.flows.iter().all(|f| f.received.is_some() && f.acknowledged.is_some());
        assert!(over, "{transport:?}");
        assert!(pfc != PfcChoice::Off || outcome.totals.lost_packets > 0);
    }
}

#[test]
fn the_same_scenario_has_the_same_outcome_on_any_number_of_threads() {
    for (number, (transport, pfc)) in schemes().into_iter().enumerate() {
        let mut scenario = leaf_spine(200 + number as u64);
        let congestion = if number % 2 == 0 { CongestionChoice::DCQCN } else { CongestionChoice::TIMELY };
        scenario.scheme.congestion = control(&transport, congestion);
        scenario.scheme.transport = transport;
        scenario.network.ecn = Some(Ecn::red(5_000, 200_000, 0.01));
        scenario.network.pfc = pfc;
        scenario.record = Record { sample_every: Some(Span::from_us(33)), ports: true };
        let alone = run(&scenario, &mut ()).expect("it runs");
        check(&scenario, &alone);
        assert_eq!(alone, run(&scenario, &mut ()).expect("it runs"), "twice the same");
        for threads in [2, 4] {
            let together = run_on(&scenario, threads, &mut ()).expect("it runs");
            assert_eq!(alone.totals, together.totals, "{threads} threads, scheme {number}");
            assert!(alone == together, "{threads} threads, scheme {number}");
        }
    }
}

#[test]
fn looking_at_a_run_does_not_change_it() {
    let mut scenario = leaf_spine(7);
    let blind = run(&scenario, &mut ()).expect("it runs");
    scenario.record = Record { sample_every: Some(Span::from_ns(700)), ports: true };
    let mut ticks = Vec::new();
    let seen = run(&scenario, &mut |tick: &Tick| {
        ticks.push(tick.received);
        true
    });
    let seen = seen.expect("it runs");
    assert_eq!(blind.flows, seen.flows);
    assert_eq!(blind.totals, seen.totals);
    assert!(ticks.is_sorted() && !ticks.is_empty());
    assert_eq!(run(&scenario, &mut |_: &Tick| false), Err(RunError::Cancelled));
    let peak = seen.samples.iter().flat_map(|s| &s.queue_bytes).max().copied().unwrap_or(0);
    let most = seen.ports.iter().map(|p| p.queue_bytes_max).max().unwrap_or(0);
    assert!(u64::from(peak) <= most && most > 0);
}

#[test]
fn a_lone_flow_takes_exactly_the_ideal_time() {
    for bytes in [1, 1024, 1025, 4096, 100_000, 3_000_000] {
        for (transport, is_encoded) in [
            (Transport::Irn(Irn::default()), false),
            (Transport::Irn(Irn::default()), true),
            (Transport::GoBackN(GoBackN::default()), false),
            (Transport::GoBackN(GoBackN::default()), true),
        ] {
            let flows = vec![Flow::new(3, 50, bytes, Time::from_us(5))];
            let mut scenario = Scenario { flows, ..Scenario::default() };
            scenario.scheme.transport = transport;
            scenario.scheme.headers.is_encoded = is_encoded;
            // The cap rounds the bandwidth-delay product up without counting transmission times of hops.
            if let Transport::Irn(irn) = &mut scenario.scheme.transport {
                irn.cap = Cap::Packets(200);
            }
            let outcome = run(&scenario, &mut ()).expect("it runs");
            let flow = &outcome.flows[0];
            assert_eq!(flow.fct(), Some(flow.ideal), "{bytes} bytes, encoded: {is_encoded}");
            assert_eq!(flow.slowdown(), Some(1.0));
        }
    }
}

#[test]
fn flows_wait_for_those_that_they_follow() {
    let mut scenario = Scenario::default();
    scenario.network.shape = Shape::Star { hosts: 4 };
    // A ring: each host passes on what it has received.
    scenario.flows = (0..8).map(|i| Flow::new(i % 4, (i + 1) % 4, 10_000, Time::ZERO)).collect();
    for i in 1..8 {
        scenario.flows[i].after = vec![FlowId(i as u32 - 1)];
    }
    // And host 0 sends once more when its first flow is acknowledged.
    let last = Flow { after: vec![FlowId(0)], group: Some(1), ..Flow::new(0, 2, 5_000, Time::ZERO) };
    scenario.flows.push(last);
    let outcome = run(&scenario, &mut ()).expect("it runs");
    for pair in outcome.flows[..8].windows(2) {
        assert_eq!(pair[1].start, pair[0].received);
    }
    assert_eq!(outcome.flows[8].start, outcome.flows[0].acknowledged);
    assert_eq!(outcome.groups[1].rct(), outcome.flows[8].fct());
    assert_eq!(outcome.groups[0].bytes, 0);
}

#[test]
fn a_run_may_end_early_and_says_what_is_missing() {
    let mut scenario = leaf_spine(9);
    scenario.stop = Stop::At(Time::from_us(100));
    let outcome = run(&scenario, &mut ()).expect("it runs");
    let summary = outcome.summary(|_| true);
    assert!(summary.received > 0 && summary.unfinished > 0);
    assert_eq!(outcome.totals.end, Time::from_us(100));

    scenario.stop = Stop::WhenReceived(30);
    let outcome = run(&scenario, &mut ()).expect("it runs");
    assert!(outcome.flows[..30].iter().all(|f| f.received.is_some()));

    // Without a timeout, a lost packet is lost for good.
    let mut scenario = leaf_spine(10);
    scenario.stop = Stop::WhenDone;
    scenario.scheme.transport = Transport::GoBackN(GoBackN::default());
    scenario.network.faults = vec![LinkFault { link: None, bit_error_rate: 0.0, packet_loss: 0.05 }];
    let error = run(&scenario, &mut ()).expect_err("some flow hangs");
    assert!(matches!(error, RunError::Unfinished { .. }), "{error}");
    assert!(error.to_string().contains("(seed 10)"), "{error}");
}

#[test]
fn too_little_headroom_is_refused_or_fails_loudly() {
    use highwire_fabric::{Pfc, Priorities};
    let mut scenario = leaf_spine(11);
    scenario.scheme.transport = Transport::GoBackN(GoBackN::default());
    let paper = Pfc {
        priorities: Priorities::ALL,
        xoff_bytes: 220_000,
        xon_bytes: 220_000,
        headroom_bytes: 20_000,
        frame_bytes: 64,
    };
    scenario.network.pfc = PfcChoice::Thresholds(paper);
    let error = run(&scenario, &mut ()).expect_err("the link's product alone is too little");
    assert!(error.to_string().contains("headroom"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    type Change = fn(&mut Scenario);
    let cases: [(Change, &str); 9] = [
        (|s| s.scheme.mtu_bytes = 1000, "scheme.mtu_bytes: 1000 is none of"),
        (|s| s.flows[3].destination = s.flows[3].source, "flow 3: host"),
        (|s| s.flows[4].bytes = 0, "flow 4: 0 bytes"),
        (|s| s.flows[5].destination.0 = 99, "flow 5: there is no host 99, only 0 to 15"),
        (|s| s.flows[6].after = vec![FlowId(5000)], "flow 6: it waits for flow 5000"),
        (|s| s.network.shape = Shape::FatTree { k: 5 }, "network.shape: "),
        (
            |s| s.network.faults = vec![LinkFault { link: Some(999), bit_error_rate: 0.0, packet_loss: 0.0 }],
            "no link",
        ),
        (|s| s.record.sample_every = Some(Span::ZERO), "record.sample_every: "),
        (
            |s| s.scheme.transport = Transport::Irn(Irn { cap: Cap::Packets(0), ..Irn::default() }),
            "scheme.transport.irn.cap: ",
        ),
    ];
    for (change, expected) in cases {
        let mut scenario = leaf_spine(1);
        change(&mut scenario);
        let error = run(&scenario, &mut ()).expect_err(expected);
        assert!(matches!(
            error,
            RunError::Scenario(
                ScenarioError::Value { .. } | ScenarioError::Flow { .. } | ScenarioError::Shape(_)
            )
        ));
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn acknowledgements_may_have_a_priority_of_their_own() {
    let mut scenario = leaf_spine(12);
    scenario.network.pfc = PfcChoice::Computed;
    let behind = run(&scenario, &mut ()).expect("it runs");
    scenario.scheme.ack_priority = AckPriority::Above;
    let above = run(&scenario, &mut ()).expect("it runs");
    check(&scenario, &above);
    assert_ne!(behind.totals.fingerprint, above.totals.fingerprint);
}

#[test]
fn any_graph_can_be_a_network() {
    let text = "default 40Gbps 2us\nhost a b c\nswitch s t\nlink a s\nlink b s\nlink c t 10Gbps\nlink s t 100Gbps 500ns\n";
    let mut scenario = Scenario { flows: mixed(3, 3, 20), ..Scenario::default() };
    scenario.network.shape = Shape::Graph(text.into());
    scenario.network.rate = Rate::from_gbps(40);
    check(&scenario, &run(&scenario, &mut ()).expect("it runs"));
}
