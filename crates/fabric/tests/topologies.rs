//! Every host reaches every other over as many links as the shape says, and flows spread.

mod support;

use highwire_fabric::{
    Balancing, FabricConfig, HostId, LinkSpec, NodeId, Rate, Rerouting, Span, Time, Topology,
};
use support::{Frame, Network, Station, link40, network, stations};

/// One packet from each host to each other, far apart in time: each must take exactly its path's latency.
fn check_all_pairs(topology: Topology, config: FabricConfig) -> f64 {
    let count = topology.host_count();
    let apart = Span::from_us(40);
    let mut hosts = stations(count);
    let mut slot = 0;
    for source in 0..count {
        for destination in (0..count).filter(|&d| d != source) {
            let at = Time::ZERO + apart * slot;
            hosts[source as usize]
                .script
                .push_back((at, Frame::new(source, destination, 1086).numbered(slot as u32)));
            slot += 1;
        }
    }
    let mut net = network(topology, config, hosts);
    net.run_to_rest().expect("no invariant breaks");
    let mut links = 0;
    for destination in 0..count {
        let received = &net.host(HostId(destination)).received;
        assert_eq!(received.len() as u32, count - 1);
        for (arrival, frame) in received {
            assert_eq!(frame.destination, destination);
            let (from, to) = (HostId(frame.source), HostId(destination));
            let path = net.topology().path(from, to, |_| 0).expect("there is a way");
            let sent = Time::ZERO + apart * u64::from(frame.number);
            assert_eq!(*arrival, sent + Topology::latency(&path, 1086), "{} to {destination}", frame.source);
            links += path.len();
        }
    }
    assert_eq!(net.packet_hops(), links as u64);
    links as f64 / slot as f64
}

#[test]
fn hosts_of_a_fat_tree_are_2_4_or_6_links_apart() {
    let mean = check_all_pairs(Topology::fat_tree(6, link40()).expect("k=6"), FabricConfig::default());
    // Two neighbours at the same edge, six elsewhere in the pod, 45 in other pods.
    assert_eq!(mean, (2.0 * 2.0 + 6.0 * 4.0 + 45.0 * 6.0) / 53.0);
    assert_eq!((mean * 100.0).round(), 562.0);
}

#[test]
fn fat_trees_have_the_sizes_of_the_papers() {
    for (k, hosts, switches) in [(4, 16, 20), (6, 54, 45), (8, 128, 80), (10, 250, 125), (16, 1024, 320)] {
        let tree = Topology::fat_tree(k, link40()).expect("an even k");
        assert_eq!((tree.host_count(), tree.switch_count()), (hosts, switches));
        assert_eq!(tree.links().len() as u32, 3 * hosts);
        assert!((0..switches).all(|s| u32::from(tree.switch_ports(s)) == k));
    }
}

#[test]
fn every_pair_is_connected_in_every_shape() {
    let config = FabricConfig::default;
    assert_eq!(check_all_pairs(Topology::star(9, link40()).expect("a star"), config()), 2.0);
    let trunk = LinkSpec { rate: Rate::from_gbps(100), delay: Span::from_ns(500) };
    check_all_pairs(Topology::dumbbell(3, 4, link40(), trunk).expect("a dumbbell"), config());
    let mean =
        check_all_pairs(Topology::leaf_spine(4, 3, 4, link40(), trunk).expect("a leaf-spine"), config());
    assert_eq!(mean, (3.0 * 2.0 + 12.0 * 4.0) / 15.0);
    let spray = FabricConfig { balancing: Balancing::Spray, ..config() };
    check_all_pairs(Topology::fat_tree(4, link40()).expect("k=4"), spray);
    let ring = "
        default 40Gbps 2us
        host a b c d e
        switch p q r s t
        link a p
        link b q 10Gbps
        link c r
        link d s 1us
        link e t
        link p q
        link q r 100Gbps 100ns
        link r s
        link s t
        link t p
    ";
    check_all_pairs(Topology::parse(ring).expect("a ring"), config());
}

#[test]
fn a_star_may_have_more_ports_than_a_word_has_bits() {
    let mut hosts = stations(324);
    for source in 0..323 {
        hosts[source as usize] = Station::streaming(Frame::new(source, 323, 1000), 3);
    }
    let mut net = network(Topology::star(324, link40()).expect("a star"), FabricConfig::default(), hosts);
    net.run_to_rest().expect("no invariant breaks");
    // Round robin: each input once before any again, apart from the packet that found the output idle.
    let order: Vec<u32> = net.host(HostId(323)).received.iter().map(|r| r.1.source).collect();
    assert_eq!(order.len(), 969);
    for turn in order.chunks(323) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, (0..323).collect::<Vec<_>>());
    }
}

fn flows(net: &mut Network, count: u64) {
    for flow in 0..count {
        // Numbers in a row are the worst hash a host can give.
        let frame = Frame { flow, ..Frame::new(0, net.topology().host_count() - 1, 100) };
        let at = Time::from_us(flow);
        net.with_host(HostId(0), |host, _| host.script.push_back((at, frame)));
    }
    net.run_to_rest().expect("no invariant breaks");
}

#[test]
fn flows_spread_evenly_at_every_level() {
    for balancing in [Balancing::Ecmp, Balancing::Spray] {
        let config = FabricConfig { balancing, ..FabricConfig::default() };
        let mut net = network(Topology::fat_tree(8, link40()).expect("k=8"), config, stations(128));
        flows(&mut net, 16_000);
        let sent = |switch, port| net.counters(net.switch_port(switch, port)).sent.packets;
        // Edge 0 spreads over its 4 uplinks; aggregation switches 32 to 35 of pod 0 over 4 cores each.
        let edge: Vec<u64> = (4..8).map(|p| sent(0, p)).collect();
        assert!(edge.iter().all(|n| (3800..4200).contains(n)), "{balancing:?} {edge:?}");
        let cores: Vec<u64> =
            (32..36).flat_map(|s| (4..8).map(move |p| (s, p))).map(|(s, p)| sent(s, p)).collect();
        assert!(cores.iter().all(|n| (880..1120).contains(n)), "{balancing:?} {cores:?}");
    }
}

#[test]
fn a_flow_keeps_its_way_and_its_order() {
    let mut hosts = stations(54);
    hosts[0] = Station::streaming(Frame::new(0, 53, 1086), 500);
    let mut net = network(Topology::fat_tree(6, link40()).expect("k=6"), FabricConfig::default(), hosts);
    net.run_to_rest().expect("no invariant breaks");
    assert_eq!(support::received_numbers(&net, 53), (1..=500).collect::<Vec<_>>());
    let used = (3..6).filter(|&p| net.counters(net.switch_port(0, p)).sent.packets > 0).count();
    assert_eq!(used, 1);
}

#[test]
fn more_than_ten_thousand_hosts_are_no_special_case() {
    let tree = Topology::fat_tree(36, link40()).expect("k=36");
    let count = tree.host_count();
    assert_eq!((count, tree.host_link(HostId(count - 1))), (11_664, link40()));
    let mut hosts = stations(count);
    for source in 0..count {
        hosts[source as usize] =
            Station::streaming(Frame::new(source, (source + count / 2) % count, 1086), 2);
    }
    let mut net = network(tree, FabricConfig::default(), hosts);
    net.run_to_rest().expect("no invariant breaks");
    assert!(net.hosts().iter().all(|h| h.received.len() == 2));
    assert_eq!(net.packet_hops(), u64::from(count) * 2 * 6);
}

#[test]
fn names_and_links_can_be_found() {
    let tree = Topology::fat_tree(4, link40()).expect("k=4");
    assert_eq!(tree.host_named("h3"), Some(HostId(3)));
    assert_eq!(tree.node_name(NodeId::Switch(0)), "edge0.0");
    let link = tree.link_between(NodeId::Switch(0), NodeId::Host(1)).expect("h1 hangs on edge0.0");
    assert_eq!(tree.links()[link].ends[0], (NodeId::Host(1), 0));
    assert!(tree.link_between(NodeId::Host(0), NodeId::Host(1)).is_none());
    assert!(Topology::fat_tree(5, link40()).is_err() && Topology::star(1, link40()).is_err());
}

#[test]
fn tables_agree_with_arithmetic() {
    // A link that fails and returns leaves the fat tree whole, but routed by tables.
    let config = FabricConfig { rerouting: Rerouting::Global, ..FabricConfig::default() };
    let tree = Topology::fat_tree(4, link40()).expect("k=4");
    let mut hosts = stations(16);
    for source in 0..16u32 {
        let frames =
            (0..16).filter(|&d| d != source).map(|d| (Time::from_us(10), Frame::new(source, d, 500)));
        hosts[source as usize] = Station::scripted(frames);
    }
    let mut net = network(tree, config, hosts);
    net.schedule_link(Time::from_us(1), 20, false);
    net.schedule_link(Time::from_us(2), 20, true);
    net.run_to_rest().expect("no invariant breaks");
    assert!((0..16).all(|h| net.host(HostId(h)).received.len() == 15));
    // Per host: one neighbour at 2 links, two at 4, twelve at 6.
    assert_eq!(net.packet_hops(), 16 * (2 + 2 * 4 + 12 * 6));
}
