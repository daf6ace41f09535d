//! Runs against results computed by hand.

use highwire_fabric::{HostId, Pfc, Rate, Span, Time};
use highwire_sim::scenario::{Cap, GoBackN, Irn, PfcChoice, Shape, Transport};
use highwire_sim::{Flow, Outcome, Scenario, run};

const PACKET_BYTES: u64 = 1086;

fn irn() -> Transport {
    Transport::Irn(Irn::default())
}

fn roce() -> Transport {
    Transport::GoBackN(GoBackN::default())
}

/// Fifty hosts send 3 MB each to one, over PFC.
fn incast(transport: Transport) -> Outcome {
    let mut scenario = Scenario::default();
    scenario.scheme.transport = transport;
    scenario.network.pfc = PfcChoice::Computed;
    let part = |host| Flow { group: Some(0), ..Flow::new(host, 53, 3_000_000, Time::ZERO) };
    scenario.flows = (0..50).map(part).collect();
    run(&scenario, &mut ()).expect("it runs")
}

#[test]
fn an_incast_of_fifty_over_pfc_keeps_the_receivers_link_busy_all_the_time() {
    for transport in [irn(), roce()] {
        let outcome = incast(transport.clone());
        // 150 MB in packets of 1024 and 1086 bytes at 40 Gb/s, and the first packet's way: 31.8 ms.
        let packets = 50 * 3_000_000_u64.div_ceil(1024);
        let bytes = 150_000_000 + 62 * packets;
        let way = Span::from_us(2 * 2) + Rate::from_gbps(40).span_of(PACKET_BYTES);
        let ideal = Rate::from_gbps(40).span_of(bytes) + way;
        let rct = outcome.groups[0].rct().expect("all are over");
        let ratio = rct.as_ps() as f64 / ideal.as_ps() as f64;
        assert!((31.8..31.9).contains(&(ideal.as_secs_f64() * 1e3)), "{ideal}");
        assert!((1.0..1.01).contains(&ratio), "{transport:?}: {rct}, ideal {ideal}");
        assert_eq!(outcome.totals.dropped_packets, 0);
    }
}

#[test]
fn an_incast_without_pfc_takes_as_long_and_repeats_next_to_nothing_in_vain() {
    let flows = (0..50).map(|host| Flow::new(host, 53, 3_000_000, Time::ZERO)).collect();
    let scenario = Scenario { flows, ..Scenario::default() };
    let outcome = run(&scenario, &mut ()).expect("it runs");
    let totals = &outcome.totals;
    // The authors' trace of such an incast has 11 duplicates among 140,361 packets; the paper says RCT grows by 2.5 % at most.
    assert!(totals.duplicates < 150, "{}", totals.duplicates);
    assert!((0.3..0.5).contains(&totals.drop_rate()), "{}", totals.drop_rate());
    let slowest = outcome.fcts(|_| true).last().map_or(0.0, |fct| fct.as_secs_f64());
    assert!((1.0..1.025).contains(&(slowest / 31.83e-3)), "{slowest}");
}

#[test]
fn a_shared_link_is_shared_max_min_fairly() {
    // Three senders, one of them behind 5 Gb/s, on a trunk of 40 Gb/s: 17.5, 17.5 and 5 Gb/s.
    let text = "default 40Gbps 2us\nhost a b c x y z\nswitch s t\nlink a s\nlink b s\nlink c s 5Gbps\n\
                link x t\nlink y t\nlink z t\nlink s t\n";
    for transport in [irn(), roce()] {
        let mut scenario = Scenario::default();
        scenario.network.shape = Shape::Graph(text.into());
        // The 5 Gb/s link needs less headroom, the others this.
        scenario.network.pfc = PfcChoice::Computed;
        scenario.scheme.transport = transport.clone();
        if let Transport::Irn(irn) = &mut scenario.scheme.transport {
            irn.cap = Cap::Packets(500);
            // Pauses must not look like losses.
            (irn.rto_low, irn.rto_high) = (Span::from_ms(20), Span::from_ms(20));
        }
        let sizes = [35_000_000, 35_000_000, 10_000_000];
        scenario.flows =
            sizes.iter().zip(0..).map(|(&bytes, i)| Flow::new(i, 3 + i, bytes, Time::ZERO)).collect();
        let outcome = run(&scenario, &mut ()).expect("it runs");
        for (flow, gbps) in outcome.flows.iter().zip([17.5, 17.5, 5.0]) {
            let wire_bits = 8.0 * (flow.bytes + 62 * u64::from(flow.packets)) as f64;
            let found = wire_bits / flow.fct().expect("it is over").as_secs_f64() / 1e9;
            assert!((found / gbps - 1.0).abs() < 0.01, "{transport:?}: {found} of {gbps} Gb/s");
        }
    }
}

#[test]
fn the_default_scenario_is_the_papers() {
    let scenario = Scenario::default();
    let topology = scenario.network.topology().expect("a fat tree");
    assert_eq!((topology.host_count(), topology.switch_count()), (54, 45));
    // 40 Gb/s times 24 us, in packets of 1086 bytes: the authors' hardware has 111, their text "~110".
    assert_eq!(scenario.network.bandwidth_delay_product(), Ok(120_000));
    assert_eq!(120_000_u64.div_ceil(PACKET_BYTES), 111);
    // 24 us and six inputs of 240 KB into one output: "~320 us".
    let rto_high = Span::from_us(24) + Rate::from_gbps(40).span_of(6 * 240_000);
    assert_eq!(rto_high, Span::from_us(312));
    // Paths: 2 hosts at the same edge, 6 in the same pod, 45 elsewhere.
    let links = |to| topology.path(HostId(0), HostId(to), |_| 0).map_or(0, |path| path.len());
    let total: usize = (1..54).map(links).sum();
    assert_eq!(total, 2 * 2 + 6 * 4 + 45 * 6);
    assert!((total as f64 / 53.0 - 5.62).abs() < 0.01);
    // XOFF leaves room for the link's product and for the packets that are under way when the pause frame
    // arrives.
    let pfc = Pfc::for_input(240_000, scenario.network.rate, scenario.network.delay, PACKET_BYTES as u32);
    assert_eq!(pfc.map(|p| p.xoff_bytes), Some(216_677));
}

#[test]
fn no_more_than_the_cap_is_in_flight_and_less_would_slow_a_flow_down() {
    let flow = |cap| {
        let mut scenario = Scenario::default();
        scenario.scheme.transport = Transport::Irn(Irn { cap, ..Irn::default() });
        scenario.flows = vec![Flow::new(0, 53, 10_000_000, Time::ZERO)];
        run(&scenario, &mut ()).expect("it runs").flows[0].slowdown().expect("it is over")
    };
    // A round trip is 24 us of propagation, six links of 217.2 ns, and an acknowledgement's six of 13.2 ns.
    let round_trip = 24.0 + 6.0 * 0.2172 + 6.0 * 0.0132;
    for cap in [30_u32, 60] {
        let expected = round_trip / (f64::from(cap) * 0.2172);
        let found = flow(Cap::Packets(cap));
        assert!((found / expected - 1.0).abs() < 0.01, "cap {cap}: {found}, expected {expected}");
    }
    // The paper's cap leaves out transmission times, which cost a few percent of a lone flow's speed.
    let found = flow(Cap::Bdp);
    assert!((1.04..1.06).contains(&found), "{found}");
}
