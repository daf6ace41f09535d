//! What is reported is what happened: every number of a report from an outcome in which no two of them are equal.

use highwire_fabric::{Span, Time};
use highwire_sim::report::{Measures, Metric};
use highwire_sim::scenario::{Flow, Scenario, Shape};
use highwire_sim::workload::TRAFFIC;
use highwire_sim::{FlowId, FlowRecord, GroupRecord, Outcome, PortRecord, Totals, run};

/// A thousand flows of one packet. Flow n starts at n, takes n² and would take 2 n in an empty network, in nanoseconds.
fn thousand() -> Vec<FlowRecord> {
    let flow = |n: u64| FlowRecord {
        id: FlowId(n as u32 - 1),
        bytes: 100,
        class: TRAFFIC,
        start: Some(Time::from_ns(n)),
        received: Some(Time::from_ns(n + n * n)),
        acknowledged: Some(Time::from_ns(n + n * n + 7)),
        ideal: Span::from_ns(2 * n),
        packets: 1,
        sent: 1,
    };
    // In no order that a quantile could take for its own.
    (0..1000).map(|n| flow((n * 387) % 1000 + 1)).collect()
}

fn outcome() -> Outcome {
    let port = |queue_bytes_max| PortRecord { queue_bytes_max, ..PortRecord::default() };
    let group = |group, start, received| GroupRecord {
        group,
        start: Some(Time::from_us(start)),
        received: Some(Time::from_us(received)),
        bytes: 5,
    };
    Outcome {
        flows: thousand(),
        groups: vec![group(0, 100, 300), group(1, 50, 650)],
        totals: Totals {
            end: Time::from_us(2_000),
            data_packets: 4_000,
            retransmitted: 30,
            control_packets: 5_000,
            duplicates: 11,
            timeouts: 13,
            dropped_packets: 90,
            dropped_data_packets: 50,
            lost_packets: 17,
            marked_packets: 19,
            cnps: 23,
            pause_frames: 61,
            xoffs: 29,
            paused: Span::from_us(240),
            packet_hops: 77_777,
            events: 88_888,
            ..Totals::default()
        },
        ports: [7, 9_001, 8, 9_000].map(port).to_vec(),
        samples: Vec::new(),
    }
}

#[test]
fn every_number_of_a_report_is_its_own() {
    let measures = Measures::of(&Scenario::default(), &outcome());
    let ns = |n: f64| n * 1e-9;
    let mean_of_squares = (1..=1000u64).map(|n| n * n).sum::<u64>() as f64 / 1000.0;
    let expected = [
        (Metric::SlowdownMean, 1001.0 / 4.0),
        (Metric::FctMean, ns(mean_of_squares)),
        (Metric::FctP99, ns(990.0 * 990.0)),
        (Metric::SingleP90, ns(900.0 * 900.0)),
        (Metric::SingleP99, ns(990.0 * 990.0)),
        (Metric::SingleP999, ns(999.0 * 999.0)),
        (Metric::Rct, 400e-6),
        (Metric::Dropped, 1.25),
        (Metric::Retransmitted, 0.75),
        (Metric::Timeouts, 13.0),
        (Metric::Pauses, 29.0),
        (Metric::Paused, 3.0),
        (Metric::QueueMax, 9_001.0),
        (Metric::DataPackets, 4_000.0),
        (Metric::PacketHops, 77_777.0),
        (Metric::End, 2e-3),
        (Metric::Flows, 1000.0),
    ];
    assert_eq!(expected.len(), Metric::ALL.len(), "each has a row");
    for (metric, value) in expected {
        let found = measures.get(metric).unwrap_or(f64::NAN);
        assert!((found - value).abs() <= 1e-9 * value, "{metric:?}: {found}, and it was {value}");
    }
    let curve = &measures.by_size[0];
    assert_eq!((curve.flows, curve.slowdown_p50, curve.slowdown_p99), (1000, 250.0, 495.0));
    // 90 % and 99.9 % are the ends of the tail.
    let tail = |n: f64| (n * n * 1e-9 * 1e12).round();
    let found: Vec<f64> = measures.tail.iter().map(|seconds| (seconds * 1e12).round()).collect();
    assert_eq!((found[0], found[18], found.last()), (tail(900.0), tail(990.0), Some(&tail(999.0))));
}

#[test]
fn nothing_received_is_no_number() {
    let mut outcome = outcome();
    for flow in &mut outcome.flows {
        flow.received = None;
    }
    outcome.groups.truncate(0);
    let measures = Measures::of(&Scenario::default(), &outcome);
    for metric in [Metric::SlowdownMean, Metric::FctMean, Metric::FctP99, Metric::SingleP99, Metric::Rct] {
        assert_eq!(measures.get(metric), None, "{metric:?}");
    }
    assert!(measures.tail.is_empty());
}

#[test]
fn a_group_lasts_from_its_first_start_to_its_last_arrival() {
    let mut scenario = Scenario::default();
    scenario.network.shape = Shape::Star { hosts: 5 };
    let starts = [300, 100, 500];
    scenario.flows = (0..3)
        .map(|n| Flow { group: Some(0), ..Flow::new(n, 4, 20_000, Time::from_us(starts[n as usize])) })
        .collect();
    let outcome = run(&scenario, &mut ()).expect("it runs");
    let group = outcome.groups[0];
    assert_eq!(group.start, Some(Time::from_us(100)));
    let last = outcome.flows.iter().filter_map(|flow| flow.received).max();
    assert_eq!(group.received, last);
    assert_eq!(last, outcome.flows[2].received);
    assert_eq!(group.bytes, 60_000);
    assert!(group.rct().expect("it is over") > Span::from_us(400));
}
