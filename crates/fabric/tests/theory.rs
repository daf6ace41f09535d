//! Where theory has a number, the fabric has the same.

mod support;

use highwire_fabric::{Buffering, FabricConfig, HostId, Pfc, PortId, Rate, Span, Time, Topology};
use highwire_stdx::Rng;
use support::{Frame, Network, Station, link40, network, stations};

const GRAPH: &str = "
host source sink
switch s
link source s 8000Tbps 1us
link s sink 40Gbps 1us
";

/// Mean waiting time in front of a 40 Gb/s port over its mean service time, with Poisson arrivals at load `rho`.
fn mean_wait(
    rho: f64,
    count: u32,
    seed: u64,
    mut bytes_of: impl FnMut(&mut Rng) -> u32,
    mean_bytes: f64,
) -> f64 {
    let mut rng = Rng::new(seed);
    let service_ps = mean_bytes * 200.0;
    let mut clock = 0.0;
    let mut script = Vec::new();
    for number in 0..count {
        clock += -(1.0 - rng.unit()).ln() * service_ps / rho;
        script.push((Time::from_ps(clock as u64), Frame::new(0, 1, bytes_of(&mut rng)).numbered(number)));
    }
    let sent = script.clone();
    let topology = Topology::parse(GRAPH).expect("the graph is right");
    let buffering = Buffering::InputQueued { input_bytes: u64::MAX / 2 };
    let config = FabricConfig { buffering, ..FabricConfig::default() };
    let mut net = network(topology, config, vec![Station::scripted(script), Station::default()]);
    net.run_to_rest().expect("no invariant breaks");

    // Two servers in a row, each taking the next packet when it is done with the last: every arrival to the picosecond.
    let received = &net.host(HostId(1)).received;
    assert_eq!(received.len(), sent.len());
    let (mut source_free, mut port_free, mut waited) = (0, 0, 0);
    for ((at, frame), (arrival, got)) in sent.iter().zip(received) {
        let bytes = u64::from(frame.bytes);
        source_free = at.as_ps().max(source_free) + Rate::from_gbps(8_000_000).span_of(bytes).as_ps();
        let reached = source_free + 1_000_000;
        waited += u64::saturating_sub(port_free, reached);
        port_free = reached.max(port_free) + bytes * 200;
        assert_eq!((arrival.as_ps(), got.number), (port_free + 1_000_000, frame.number));
    }
    waited as f64 / f64::from(count) / service_ps
}

#[track_caller]
fn check_within(found: f64, expected: f64, percent: f64) {
    let off = (found / expected - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{found} is {off:.2} % off {expected}");
}

#[test]
fn constant_packets_wait_as_in_an_m_d_1_queue() {
    for (rho, seed) in [(0.5, 11), (0.8, 5)] {
        check_within(mean_wait(rho, 300_000, seed, |_| 1000, 1000.0), rho / (2.0 * (1.0 - rho)), 2.0);
    }
}

#[test]
fn exponential_packets_wait_as_in_an_m_m_1_queue() {
    for (rho, seed) in [(0.5, 3), (0.7, 6)] {
        // Rounded up, so that the mean of whole bytes is the mean asked for plus a half.
        let bytes = |rng: &mut Rng| (-(1.0 - rng.unit()).ln() * 20_000.0).ceil() as u32;
        let bytes = |rng: &mut Rng| bytes(rng).max(1);
        check_within(mean_wait(rho, 400_000, seed, bytes, 20_000.5), rho / (1.0 - rho), 2.0);
    }
}

#[test]
fn a_saturated_link_carries_its_rate_to_the_picosecond() {
    let mut hosts = stations(3);
    hosts[0] = Station::streaming(Frame::new(0, 2, 1086), 10_000);
    let mut net = network(Topology::star(3, link40()).expect("a star"), FabricConfig::default(), hosts);
    net.run_to_rest().expect("no invariant breaks");
    let received = &net.host(HostId(2)).received;
    let packet = 1086 * 200;
    for (i, (at, _)) in received.iter().enumerate() {
        assert_eq!(at.as_ps(), 2 * (packet + 2_000_000) + i as u64 * packet);
    }
    assert_eq!(received.len(), 10_000);
}

/// `senders` stations stripe `bytes` over themselves towards the last host of a k=6 fat tree, at line rate under PFC.
fn incast(senders: u32, bytes: u64) -> Network {
    let topology = Topology::fat_tree(6, link40()).expect("a fat tree");
    let packets = (bytes / u64::from(senders)).div_ceil(1024) as u32;
    let mut hosts = stations(54);
    for sender in 0..senders {
        hosts[sender as usize] = Station::streaming(Frame::new(sender, 53, 1086), packets);
    }
    let pfc = Pfc::for_input(240_000, Rate::from_gbps(40), Span::from_us(2), 1086);
    network(topology, FabricConfig { pfc, ..FabricConfig::default() }, hosts)
}

#[test]
fn fifty_senders_under_pfc_lose_nothing_and_take_the_ideal_time() {
    let mut net = incast(50, 150_000_000);
    net.run_to_rest().expect("lossless means lossless");
    let totals = net.totals();
    assert_eq!((totals.dropped.packets, totals.lost.packets), (0, 0));
    assert!(totals.xoffs > 100, "{totals:?}");
    let received = &net.host(HostId(53)).received;
    assert_eq!(received.len(), 50 * 2930);
    let took = received.last().expect("all have arrived").0.as_secs_f64() * 1e3;
    check_within(took, 31.9, 1.0);
    // The receiver's link is never idle from the first packet on.
    let (first, last) = (received[0].0, received[received.len() - 1].0);
    assert_eq!(last.since(first).as_ps(), (received.len() as u64 - 1) * 1086 * 200);
}

#[test]
fn round_robin_gives_max_min_shares_on_a_dumbbell() {
    // Three senders share a 40 Gb/s trunk, and one of them cannot use its third.
    let text = "
        host a b c x y z
        switch left right
        link a left 40Gbps 1us
        link b left 40Gbps 1us
        link c left 5Gbps 1us
        link left right 40Gbps 1us
        link x right 40Gbps 1us
        link y right 40Gbps 1us
        link z right 40Gbps 1us
    ";
    let topology = Topology::parse(text).expect("the graph is right");
    let mut hosts = stations(6);
    for sender in 0..3 {
        hosts[sender as usize] = Station::streaming(Frame::new(sender, sender + 3, 1000), u32::MAX);
    }
    let pfc = Pfc::for_input(240_000, Rate::from_gbps(40), Span::from_us(1), 1000);
    let mut net = network(topology, FabricConfig { pfc, ..FabricConfig::default() }, hosts);
    net.run_until(Time::from_ms(10)).expect("lossless means lossless");
    // c is bound by its own 5 Gb/s; a and b halve the rest.
    for (host, gbps) in [(3, 17.5), (4, 17.5), (5, 5.0)] {
        let after = |at: &Time| *at >= Time::from_ms(1);
        let bytes = net.host(HostId(host)).received.iter().filter(|r| after(&r.0)).count() * 1000;
        check_within(bytes as f64 * 8.0 / 9e6, gbps, 1.0);
    }
}

#[test]
fn a_pool_shared_by_outputs_is_lossless_under_pfc_too() {
    let topology = Topology::leaf_spine(3, 2, 4, link40(), link40()).expect("a leaf-spine");
    let pfc = Pfc {
        xoff_bytes: 60_000,
        xon_bytes: 50_000,
        ..Pfc::for_input(240_000, Rate::from_gbps(40), Span::from_us(2), 1086).expect("it fits")
    };
    let buffering = Buffering::OutputQueued { pool_bytes: 400_000, alpha_log2: -1 };
    let mut hosts = stations(12);
    for sender in 0..11 {
        hosts[sender as usize] = Station::streaming(Frame::new(sender, 11, 1086), 2000);
    }
    let mut net =
        network(topology, FabricConfig { pfc: Some(pfc), buffering, ..FabricConfig::default() }, hosts);
    net.run_to_rest().expect("lossless means lossless");
    let received = &net.host(HostId(11)).received;
    assert_eq!((received.len(), net.totals().dropped.packets), (22_000, 0));
    let (first, last) = (received[0].0, received[received.len() - 1].0);
    check_within(last.since(first).as_us_f64(), 21_999.0 * 0.2172, 1.0);
    assert!(net.counters(PortId(0)).paused > Span::from_us(100));
}
