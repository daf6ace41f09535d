//! Links that fail, return and damage packets.

mod support;

use highwire_fabric::{
    FabricConfig, HostId, NodeId, ParallelFabric, Pfc, PortCounters, PortId, Rate, Rerouting, Span, Time,
    Topology, Verdict,
};
use support::{Frame, Network, Station, link40, network, stations};

/// Host 0 of a leaf-spine with two spines sends a packet of a new flow to host 3 every 2 us for 1 ms; one uplink of its
/// leaf, or the spine's link to the other leaf, is down from 200 us to 600 us.
fn with_failure(rerouting: Rerouting, end: NodeId) -> Network {
    let topology = Topology::leaf_spine(2, 2, 2, link40(), link40()).expect("a leaf-spine");
    let link = topology.link_between(NodeId::Switch(2), end).expect("the first spine is switch 2");
    let script = (0..500).map(|n| {
        let frame = Frame { flow: u64::from(n), ..Frame::new(0, 3, 1000) };
        (Time::from_us(2 * u64::from(n)), frame.numbered(n))
    });
    let mut hosts = stations(4);
    hosts[0] = Station::scripted(script);
    let mut net = network(topology, FabricConfig { rerouting, ..FabricConfig::default() }, hosts);
    net.schedule_link(Time::from_us(200), link, false);
    net.schedule_link(Time::from_us(600), link, true);
    net.run_to_rest().expect("no invariant breaks");
    net
}

fn lost(net: &Network) -> u64 {
    let totals = net.totals();
    let lost = totals.lost.packets + totals.unroutable.packets;
    assert_eq!(lost + net.host(HostId(3)).received.len() as u64, 500);
    lost
}

#[test]
fn without_rerouting_half_of_the_flows_are_lost_while_a_link_is_down() {
    for end in [NodeId::Switch(0), NodeId::Switch(1)] {
        let lost = lost(&with_failure(Rerouting::None, end));
        assert!((80..=120).contains(&lost), "{lost} of the 200 sent meanwhile");
    }
}

#[test]
fn local_rerouting_avoids_the_own_dead_link_only() {
    let near = lost(&with_failure(Rerouting::Local, NodeId::Switch(0)));
    assert!(near <= 2, "only what was on the wire: {near}");
    let far = lost(&with_failure(Rerouting::Local, NodeId::Switch(1)));
    assert!(far >= 80, "the leaf cannot know about the spine's other link: {far}");
}

#[test]
fn global_rerouting_avoids_every_dead_link() {
    for end in [NodeId::Switch(0), NodeId::Switch(1)] {
        let lost = lost(&with_failure(Rerouting::Global, end));
        assert!(lost <= 3, "only what was on its way there: {lost}");
    }
}

#[test]
fn a_failing_link_loses_what_is_on_it_and_a_returning_one_works() {
    let mut hosts = stations(2);
    hosts[0] = Station::streaming(Frame::new(0, 1, 1000), 100);
    let mut net = network(Topology::star(2, link40()).expect("a star"), FabricConfig::default(), hosts);
    // At 3.1 us host 0 has sent 15.5 packets; the first 5 have left the wire.
    net.schedule_link(Time::from_ns(3_100), 0, false);
    net.schedule_link(Time::from_us(9), 0, true);
    net.run_to_rest().expect("no invariant breaks");
    assert_eq!(net.totals().lost.packets, 11);
    let numbers = support::received_numbers(&net, 1);
    assert_eq!(numbers, (1..=5).chain(17..=100).collect::<Vec<_>>());
    assert!(net.link_is_up(0) && net.dead_ports().count() == 0);
}

#[test]
fn bit_errors_lose_the_share_that_they_should() {
    let loss_of = |bit_error_rate, packet_loss, seed| {
        let mut hosts = stations(2);
        hosts[0] = Station::streaming(Frame::new(0, 1, 1000), 40_000);
        let config = FabricConfig { seed, ..FabricConfig::default() };
        let mut net = network(Topology::star(2, link40()).expect("a star"), config, hosts);
        net.set_link_errors(1, bit_error_rate, packet_loss);
        net.run_to_rest().expect("no invariant breaks");
        assert_eq!(net.totals().lost.packets + net.host(HostId(1)).received.len() as u64, 40_000);
        net.totals().lost.packets as f64 / 40_000.0
    };
    // 1 - (1 - 1e-5)^8000 = 7.69 %.
    assert!((loss_of(1e-5, 0.0, 1) - 0.0769).abs() < 0.004);
    assert!((loss_of(0.0, 0.01, 1) - 0.01).abs() < 0.0015);
    assert_eq!(loss_of(0.0, 1.0, 1), 1.0);
    assert_eq!(loss_of(1e-5, 0.0, 7), loss_of(1e-5, 0.0, 7));
    assert_ne!(loss_of(1e-5, 0.0, 7), loss_of(1e-5, 0.0, 8));
}

#[test]
fn a_lossless_network_stays_lossless_around_a_failure() {
    // Congestion and a dead link at once: packets may be lost on the link, never to a full buffer, and nothing hangs.
    let topology = Topology::fat_tree(4, link40()).expect("k=4");
    let pfc = Pfc::for_input(240_000, Rate::from_gbps(40), Span::from_us(2), 1086);
    let mut hosts = stations(16);
    for sender in 1..16 {
        hosts[sender as usize] = Station::streaming(Frame::new(sender, 0, 1086), 1000);
    }
    let link = topology.link_between(NodeId::Switch(0), NodeId::Switch(8)).expect("edge 0 to aggregation 0");
    let config = FabricConfig { pfc, rerouting: Rerouting::Global, ..FabricConfig::default() };
    let mut net = network(topology, config, hosts);
    net.schedule_link(Time::from_us(500), link, false);
    net.schedule_link(Time::from_us(1500), link, true);
    net.run_to_rest().expect("lossless means lossless");
    let totals = net.totals();
    let lost = totals.lost.packets + totals.unroutable.packets;
    assert_eq!(totals.dropped.packets, 0);
    assert_eq!(net.host(HostId(0)).received.len() as u64 + lost, 15_000);
    assert!(totals.xoffs > 10);
}

#[test]
fn a_rule_picks_what_is_lost_at_each_switch() {
    let mut hosts = stations(4);
    hosts[0] = Station::streaming(Frame::new(0, 3, 1000), 100);
    let topology = Topology::leaf_spine(2, 1, 2, link40(), link40()).expect("a leaf-spine");
    let mut net = network(topology, FabricConfig::default(), hosts);
    let mut asked = 0;
    net.lose_if(Some(Box::new(move |_, frame| {
        asked += 1;
        // Each packet passes three switches. The rule loses the third packet at its first switch and the
        // seventh at its second.
        frame.number == 3 || (frame.number == 7 && asked > 8)
    })));
    net.run_until(Time::from_us(10)).expect("no invariant breaks");
    net.lose_if(None);
    net.run_to_rest().expect("no invariant breaks");
    let numbers: Vec<u32> = net.host(HostId(3)).received.iter().map(|(_, frame)| frame.number).collect();
    let expected: Vec<u32> = (1..=100).filter(|number| ![3, 7].contains(number)).collect();
    assert_eq!((numbers, net.totals().lost.packets), (expected, 2));
}

/// Fifteen hosts of a fat tree send to each other.
fn busy_hosts() -> Vec<Station> {
    let mut hosts = stations(16);
    for sender in 1..16 {
        hosts[sender as usize] = Station::streaming(Frame::new(sender, (sender + 5) % 16, 1000), 200);
    }
    hosts
}

/// Counts the packets of one wire and loses every seventh, of every other wire every fifth.
fn by_wire(port: PortId) -> Verdict<Frame> {
    let every = if port.0.is_multiple_of(2) { 7 } else { 5 };
    let mut asked = 0;
    Box::new(move |_, _| {
        asked += 1;
        asked % every == 0
    })
}

/// The results that must be the same: fingerprint, counters, and every host's log.
type Found = (u64, PortCounters, Vec<Vec<(Time, Frame)>>);

#[test]
fn rules_of_wires_lose_the_same_packets_on_any_number_of_threads() {
    let topology = Topology::fat_tree(4, link40()).expect("k=4");
    let logs = |hosts: Vec<Station>| hosts.into_iter().map(|host| host.received).collect();
    let until = Time::from_us(30);

    let mut net = network(topology.clone(), FabricConfig::default(), busy_hosts());
    net.lose_if_by_wire(Some(&by_wire));
    net.run_until(until).expect("no invariant breaks");
    let meanwhile = net.totals().lost.packets;
    net.lose_if_by_wire(None);
    net.run_to_rest().expect("no invariant breaks");
    let whole: Found = (net.fingerprint(), net.totals(), logs(net.into_parts().0));
    assert!(meanwhile > 100, "{meanwhile} packets lost");
    assert_eq!(whole.1.lost.packets, meanwhile, "the rules have ended");
    assert_eq!(
        whole.2.iter().map(Vec::len).sum::<usize>() as u64 + meanwhile + whole.1.dropped.packets,
        3000
    );

    for threads in [1, 2, 3, 5] {
        let parts =
            ParallelFabric::new(topology.clone(), FabricConfig::default(), busy_hosts(), vec![(); threads]);
        let mut net: ParallelFabric<Frame, Station> = parts.expect("the parts fit");
        net.lose_if_by_wire(Some(&by_wire));
        net.run_until(until).expect("no invariant breaks");
        net.lose_if_by_wire(None);
        net.run_to_rest().expect("no invariant breaks");
        let found: Found = (net.fingerprint(), net.totals(), logs(net.into_parts().0));
        assert!(found == whole, "{threads} threads: {:?} and not {:?}", found.1, whole.1);
    }
}

#[test]
fn the_rule_of_a_wire_is_asked_for_its_packets_only() {
    let mut hosts = stations(3);
    hosts[0] = Station::streaming(Frame::new(0, 2, 1000), 10);
    hosts[1] = Station::streaming(Frame::new(1, 2, 1000), 10);
    let mut net = network(Topology::star(3, link40()).expect("a star"), FabricConfig::default(), hosts);
    net.lose_if_by_wire(Some(&|port| {
        Box::new(move |_, frame| {
            assert_eq!(frame.source, port.0, "a host's port has its number");
            port.0 == 1 && frame.number > 4
        })
    }));
    net.run_to_rest().expect("no invariant breaks");
    let received = &net.host(HostId(2)).received;
    let of = |source| received.iter().filter(|(_, frame)| frame.source == source).count();
    assert_eq!((of(0), of(1), net.totals().lost.packets), (10, 4, 6));
}
