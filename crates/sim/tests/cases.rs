//! Plans that researchers would write: chains, mixed rates, long hauls with loss, shared queue pairs, spraying. Each says what
//! must come out.

mod common;

use common::{graph_plan, nothing, read};
use highwire_fabric::{Balancing, Service, Span, Time};
use highwire_sim::plan::{Plan, Scale};
use highwire_sim::scenario::{
    Cap, Entropy, GoBackN, Irn, LinkFault, PartialAcks, PfcChoice, QueuePairs, Shape, Transport,
};
use highwire_sim::{Flow, Outcome, RunError, Scenario, run};

/// The outcome of each run of a plan.
fn outcomes(plan: &Plan) -> Vec<Outcome> {
    let play = |run_of: &highwire_sim::plan::Run| {
        let scenario = run_of.scenario(plan).expect("it is right");
        run(&scenario, &mut ()).unwrap_or_else(|error| panic!("{error}"))
    };
    plan.runs().iter().map(play).collect()
}

fn slowdowns(plan: &Plan) -> Vec<f64> {
    outcomes(plan).iter().map(|outcome| outcome.summary(|_| true).slowdown_mean).collect()
}

/// A chain of five switches, with hosts at both ends and in the middle, whichever is named first.
#[test]
fn a_chain_gives_the_same_by_any_name() {
    let links = "link m s3\nlink a s1\nlink b s5\nlink s1 s2\nlink s2 s3\nlink s3 s4\nlink s4 s5\n";
    let mut seen = Vec::new();
    for hosts in ["a m b", "m a b", "b a m"] {
        let graph = format!("default 100Gbps 5us\nhost {hosts}\nswitch s1 s2 s3 s4 s5\n{links}");
        let plan = graph_plan(&graph, "workload = { pattern = \"permutation\", bytes = \"5MB\" }");
        let scenario = plan.runs()[0].scenario(&plan).expect("it is right");
        // Six links of 5 us there and back, at 100 Gb/s.
        assert_eq!(scenario.network.bandwidth_delay_product(), Ok(750_000));
        seen.push(slowdowns(&plan)[0]);
    }
    assert!(seen.iter().all(|slowdown| *slowdown == seen[0]), "{seen:?}");
    assert!(seen.iter().all(|&slowdown| (1.0..1.1).contains(&slowdown)), "{seen:?}");
}

/// Four hosts at 100 Gb/s, a rate that no key of the plan names.
#[test]
fn a_graph_at_another_rate_than_the_default_is_played_at_its_own() {
    let graph = "default 100Gbps 1us\nhost a b c d\nswitch s\nlink a s\nlink b s\nlink c s\nlink d s\n";
    let workload = "workload = { pattern = \"permutation\", bytes = \"3MB\" }\n";
    for scheme in [
        "transport = { protocol = \"irn\" }",
        "transport = { protocol = \"roce\" }\nnetwork = { pfc = true }",
        "transport = { protocol = \"roce\", congestion = \"dcqcn\" }\nnetwork = { pfc = true }",
    ] {
        let slowdown = slowdowns(&graph_plan(graph, &format!("{workload}{scheme}")))[0];
        assert!((1.0..1.1).contains(&slowdown), "{scheme}: {slowdown}");
    }
}

/// 30 ms one way, with loss: timeouts are longer than receivers used to be kept.
#[test]
fn flows_over_a_long_haul_with_loss_end() {
    let plan = |scheme: &str| {
        read(&format!(
            "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nseeds = 2\n\
             network = {{ shape = \"dumbbell\", left = 2, right = 2, rate = \"10Gbps\", delay = \"10ms\", buffer = \"20MB\", packet_loss = 0.02 }}\n\
             workload = {{ load = 0.02, duration = \"40ms\", time_limit = \"60s\" }}\n[[scheme]]\nname = \"s\"\n{scheme}"
        ))
    };
    for scheme in ["irn", "roce\", window = \"unlimited", "iwarp"] {
        let plan = plan(&format!("transport = {{ protocol = \"{scheme}\" }}"));
        for outcome in outcomes(&plan) {
            assert!(outcome.totals.lost_packets > 0 && outcome.totals.timeouts > 0, "{scheme}");
            assert!(outcome.flows.iter().all(|flow| flow.acknowledged.is_some()));
            assert_eq!(outcome.totals.dropped_packets, 0, "{scheme}: only links lose packets");
        }
    }
}

#[test]
fn a_run_that_reaches_its_limit_names_the_key() {
    let plan = read(
        "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nseeds = 1\nnetwork = { shape = \"star\", hosts = 2 }\n\
         workload = { pattern = \"permutation\", bytes = \"50MB\", time_limit = \"3ms\" }\n[[scheme]]\nname = \"s\"\n",
    );
    let scenario = plan.runs()[0].scenario(&plan).expect("it is right");
    let error = run(&scenario, &mut ()).expect_err("50 MB take 10 ms");
    assert!(matches!(error, RunError::Unfinished { limit: Some(limit), .. } if limit == Time::from_ms(3)));
    assert!(error.to_string().contains("`time_limit` of 3"), "{error}");
    // With more time it ends.
    run(&Scenario { time_limit: Time::from_ms(30), ..scenario }, &mut ()).expect("it ends");
}

#[test]
fn roce_without_timeouts_says_how_to_switch_them_on() {
    let mut scenario = Scenario::default();
    scenario.network.shape = Shape::Star { hosts: 2 };
    scenario.network.pfc = PfcChoice::Computed;
    scenario.network.faults = vec![LinkFault { link: None, bit_error_rate: 0.0, packet_loss: 0.2 }];
    scenario.scheme.transport = Transport::GoBackN(GoBackN::default());
    scenario.flows = (0..6).map(|_| Flow::new(0, 1, 3_000, Time::ZERO)).collect();
    let error = run(&scenario, &mut ()).expect_err("some lose their last packet").to_string();
    assert!(error.contains("`transport.timeouts = \"on\"`"), "{error}");
    assert!(!error.contains("limit"), "nothing moves any more: {error}");
    scenario.scheme.transport =
        Transport::GoBackN(GoBackN { timeout: Some(Span::from_us(320)), ..GoBackN::default() });
    run(&scenario, &mut ()).expect("with timeouts it ends");
}

/// More flows between two hosts than a send queue has places.
#[test]
fn flows_wait_for_a_place_in_the_queue_that_they_share() {
    let mut scenario = Scenario::default();
    scenario.network.shape = Shape::Star { hosts: 2 };
    scenario.scheme.queue_pairs = QueuePairs::PerPair;
    scenario.flows = (0..70_000).map(|_| Flow::new(0, 1, 1, Time::ZERO)).collect();
    let outcome = run(&scenario, &mut ()).expect("it runs");
    assert!(outcome.flows.iter().all(|flow| flow.acknowledged.is_some()));
    assert_eq!((outcome.totals.data_packets, outcome.totals.retransmitted), (70_000, 0));
}

/// Packets that overtake each other are no losses.
#[test]
fn spreading_packets_causes_no_repetitions_with_a_tolerance() {
    let mut scenario = Scenario::default();
    scenario.network.buffering = highwire_fabric::Buffering::InputQueued { input_bytes: 100_000_000 };
    // Two senders per edge switch, all to other pods.
    scenario.flows = (0..18).map(|n| Flow::new(3 * n, (3 * n + 27) % 54, 400_000, Time::ZERO)).collect();
    let play = |balancing, entropy, reordering_packets, loss: f64| {
        let mut scenario = scenario.clone();
        scenario.network.balancing = balancing;
        scenario.scheme.entropy = entropy;
        scenario.scheme.transport = Transport::Irn(Irn { reordering_packets, ..Irn::default() });
        if loss > 0.0 {
            scenario.network.faults = vec![LinkFault { link: None, bit_error_rate: 0.0, packet_loss: loss }];
        }
        run(&scenario, &mut ()).expect("it runs").totals
    };
    for (balancing, entropy) in [(Balancing::Spray, Entropy::PerFlow), (Balancing::Ecmp, Entropy::PerPacket)]
    {
        let strict = play(balancing, entropy, 0, 0.0);
        assert!(strict.retransmitted > 0, "{balancing:?}: packets overtake each other");
        let tolerant = play(balancing, entropy, 100, 0.0);
        assert_eq!((tolerant.retransmitted, tolerant.timeouts, tolerant.dropped_packets), (0, 0, 0));
        // What is lost is found all the same.
        let lossy = play(balancing, entropy, 20, 0.001);
        assert!(lossy.retransmitted > 0 && lossy.lost_packets > 0);
    }
    let ordered = play(Balancing::Ecmp, Entropy::PerFlow, 0, 0.0);
    assert_eq!(ordered.retransmitted, 0, "one way keeps the order");
}

#[test]
fn partial_acknowledgements_change_what_is_repeated() {
    let scheme =
        |name: &str| format!("[[scheme]]\nname = \"{name}\"\ntransport = {{ partial_acks = \"{name}\" }}\n");
    let plan = read(&format!(
        "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nseeds = 1\nnetwork = {{ k = 4, buffer = \"60KB\" }}\n\
         workload = {{ load = 0.8, duration = \"2ms\" }}\n{}{}{}",
        scheme("never"),
        scheme("evident"),
        scheme("hardware")
    ));
    let totals: Vec<_> = outcomes(&plan).iter().map(|outcome| outcome.totals).collect();
    assert!(totals[0].dropped_data_packets > 0 && totals[0].retransmitted < totals[1].retransmitted);
    assert!(totals[1].retransmitted <= totals[2].retransmitted, "{totals:?}");
    for (run_of, expected) in
        plan.runs().iter().zip([PartialAcks::Never, PartialAcks::Evident, PartialAcks::Hardware])
    {
        let scenario = run_of.scenario(&plan).expect("it is right");
        let Transport::Irn(irn) = scenario.scheme.transport else { panic!("IRN is the default") };
        assert_eq!(irn.partial_acks, expected);
    }
}

/// Two hosts fill the queue of a third; a fourth's packet comes last.
#[test]
fn a_fifo_serves_in_the_order_of_arrival() {
    let late = |service| {
        let mut scenario = Scenario::default();
        scenario.network.shape = Shape::Star { hosts: 4 };
        scenario.network.service = service;
        scenario.flows = vec![
            Flow::new(0, 3, 100_000, Time::ZERO),
            Flow::new(1, 3, 100_000, Time::ZERO),
            Flow::new(2, 3, 1024, Time::from_us(20)),
        ];
        let outcome = run(&scenario, &mut ()).expect("it runs");
        assert_eq!(outcome.totals.dropped_packets, 0);
        outcome.flows[2].fct().expect("it is over")
    };
    let (turns, fifo) = (late(Service::RoundRobin), late(Service::Fifo));
    assert!(turns < Span::from_us(6), "{turns}: it waits for two packets");
    assert!(fifo > Span::from_us(10), "{fifo}: it waits for some forty packets");
}

/// The card's turns: with long ones a flow leaves before the next begins.
#[test]
fn a_long_turn_serves_one_flow_after_the_other() {
    let first_end = |turn_packets| {
        let mut scenario = Scenario::default();
        scenario.network.shape = Shape::Star { hosts: 3 };
        scenario.scheme.turn_packets = turn_packets;
        scenario.scheme.transport = Transport::Irn(Irn { cap: Cap::Packets(4096), ..Irn::default() });
        scenario.flows = (1..3).map(|to| Flow::new(0, to, 400_000, Time::ZERO)).collect();
        let outcome = run(&scenario, &mut ()).expect("it runs");
        outcome.flows.iter().filter_map(|flow| flow.slowdown()).fold(f64::INFINITY, f64::min)
    };
    assert!(first_end(1) > 1.8, "they share the link");
    assert!(first_end(1_000) < 1.05, "the first has it for itself");
}

#[test]
fn a_plan_without_seeds_is_played_ten_times() {
    let plan = Plan::read(
        "p.toml",
        "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\n[[scheme]]\nname = \"s\"\n",
        Scale::Small,
        &nothing,
    );
    assert_eq!(plan.expect("it is right").runs().len(), 10);
}
