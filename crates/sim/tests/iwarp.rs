//! iWARP's TCP on the fabric: as fast as the network when alone, complete when the network is not enough.

use highwire_fabric::{Span, Time};
use highwire_sim::scenario::{QueuePairs, Shape, Tcp, Transport};
use highwire_sim::{Flow, Outcome, Scenario, run};

fn scenario(shape: Shape, tcp: Tcp, flows: Vec<Flow>) -> Scenario {
    let mut scenario = Scenario { flows, ..Scenario::default() };
    scenario.network.shape = shape;
    scenario.scheme.transport = Transport::Tcp(tcp);
    scenario
}

fn play(scenario: &Scenario) -> Outcome {
    run(scenario, &mut ()).expect("a run without a broken invariant")
}

/// With a first window of the bandwidth-delay product there is nothing between TCP and the line rate.
#[test]
fn a_lone_flow_with_a_wide_window_takes_exactly_the_ideal_time() {
    let tcp = Tcp { initial_window: 1_000, ..Tcp::default() };
    for bytes in [1, 1024, 1025, 3_000_000] {
        let outcome =
            play(&scenario(Shape::FatTree { k: 6 }, tcp.clone(), vec![Flow::new(0, 53, bytes, Time::ZERO)]));
        let flow = outcome.flows[0];
        assert_eq!(flow.fct(), Some(flow.ideal), "{bytes} bytes");
        assert_eq!(outcome.totals.retransmitted, 0);
    }
}

/// From ten segments on, the window doubles per round trip: 10, 20, 40, 80 and then the line is full (24 µs hold 111).
/// Each of the first four round trips wastes the segments that it does not send.
#[test]
fn slow_start_costs_its_round_trips() {
    let flow = Flow::new(0, 53, 2_000_000, Time::ZERO);
    let outcome = play(&scenario(Shape::FatTree { k: 6 }, Tcp::default(), vec![flow]));
    let flow = outcome.flows[0];
    let lost = flow.fct().expect("received").as_ps() - flow.ideal.as_ps();
    // A round trip of 24 µs and the time of a segment and of an acknowledgement at six links.
    let segment = 1082 * 200;
    let round_trip = 24_000_000 + 6 * (segment + 58 * 200);
    let expected: u64 = [10, 20, 40, 80].iter().map(|window| round_trip - window * segment).sum();
    let off = lost.abs_diff(expected) as f64 / expected as f64;
    assert!(off < 0.02, "{} instead of {}", Span::from_ps(lost), Span::from_ps(expected));
}

#[test]
fn an_incast_that_loses_segments_completes() {
    for sack in [true, false] {
        let flows = (0..30).map(|from| Flow::new(from, 53, 500_000, Time::ZERO)).collect();
        let outcome = play(&scenario(Shape::FatTree { k: 6 }, Tcp { sack, ..Tcp::default() }, flows));
        let totals = outcome.totals;
        assert!(outcome.flows.iter().all(|f| f.received.is_some() && f.acknowledged.is_some()));
        assert!(totals.dropped_data_packets > 0 && totals.retransmitted >= totals.dropped_data_packets);
        assert!(totals.retransmitted - totals.duplicates <= totals.dropped_data_packets);
    }
}

#[test]
fn flows_between_the_same_hosts_may_share_a_connection() {
    let tcp = Tcp { ack_delay: Span::from_us(50), ..Tcp::default() };
    let flows = (0..20)
        .map(|n| Flow::new(0, 1 + n % 3, 10_000 + u64::from(n), Time::from_us(u64::from(n))))
        .collect();
    let mut scenario = scenario(Shape::Star { hosts: 4 }, tcp, flows);
    scenario.scheme.queue_pairs = QueuePairs::PerPair;
    let outcome = play(&scenario);
    assert!(outcome.flows.iter().all(|f| f.received.is_some() && f.acknowledged.is_some()));
    assert!(
        outcome.totals.control_packets < outcome.totals.data_packets,
        "acknowledgements cover two segments"
    );
    assert_eq!(play(&scenario).totals.fingerprint, outcome.totals.fingerprint);
}
