//! Switches that pass packets on before all of them is there.

mod support;

use highwire_fabric::{
    Buffering, BuildError, FabricConfig, Forwarding, HostId, LinkSpec, ParallelFabric, Rate, Span, Time,
    Topology, Trimming,
};
use support::{Frame, Network, Station, link40, network, received_numbers, stations};

/// A byte at 40 Gb/s.
const BYTE_PS: u64 = 200;
const DELAY_PS: u64 = 2_000_000;

fn cutting(header_bytes: u32) -> FabricConfig {
    FabricConfig { forwarding: Forwarding::CutThrough { header_bytes }, ..FabricConfig::default() }
}

/// When each frame has come to host 0, in picoseconds.
fn arrivals(net: &Network) -> Vec<u64> {
    net.host(HostId(0)).received.iter().map(|(at, _)| at.as_ps()).collect()
}

fn run(topology: Topology, config: FabricConfig, senders: Vec<(u32, Station)>) -> Network {
    let mut hosts = stations(topology.host_count());
    for (place, station) in senders {
        hosts[place as usize] = station;
    }
    let mut net = network(topology, config, hosts);
    net.run_to_rest().expect("no invariant breaks");
    net
}

#[test]
fn a_packet_is_serialised_once_and_waits_for_its_header_at_each_switch() {
    // Five switches and six links between the two ends.
    let across = |config| {
        let one = Station::scripted([(Time::ZERO, Frame::new(15, 0, 1000))]);
        arrivals(&run(Topology::fat_tree(4, link40()).expect("k=4"), config, vec![(15, one)]))[0]
    };
    assert_eq!(across(FabricConfig::default()), 6 * DELAY_PS + 6 * 1000 * BYTE_PS);
    for header in [0, 1, 64, 999, 1000, 5000] {
        let waited = u64::from(header.min(1000)) * 5 * BYTE_PS;
        assert_eq!(across(cutting(header)), 6 * DELAY_PS + 1000 * BYTE_PS + waited, "{header}");
    }
}

#[test]
fn behind_a_busy_port_packets_follow_each_other_without_a_gap() {
    for header in [0, 64] {
        let each = |sender| (sender, Station::streaming(Frame::new(sender, 0, 1000), 40));
        let star = Topology::star(4, link40()).expect("a star");
        let all = arrivals(&run(star, cutting(header), [1, 2, 3].map(each).into()));
        let first = 2 * DELAY_PS + (1000 + u64::from(header)) * BYTE_PS;
        let expected: Vec<u64> = (0..120).map(|place| first + place * 1000 * BYTE_PS).collect();
        assert_eq!(all, expected);
    }
}

/// Two inputs and one output, taken apart: when does each frame's head come, when is the port free?
#[test]
fn every_arrival_is_what_two_servers_in_a_row_make_of_it() {
    let mut script = [Vec::new(), Vec::new()];
    let mut heads = Vec::new();
    for (sender, script) in (1..).zip(&mut script) {
        let mut free = 0;
        for number in 0..200u64 {
            let at = number * 150_000 + number * number % 7 * 40_000 * u64::from(sender);
            let bytes = 64 + (number * 131 * u64::from(sender) % 1400) as u32;
            script.push((Time::from_ps(at), Frame::new(sender, 0, bytes).numbered(number as u32)));
            let start = at.max(free);
            free = start + u64::from(bytes) * BYTE_PS;
            heads.push((start + 64 * BYTE_PS + DELAY_PS, sender, u64::from(bytes)));
        }
    }
    // Events of one time go by port, as the fabric has it.
    heads.sort_unstable();
    let mut free = 0;
    let expected: Vec<u64> = heads
        .iter()
        .map(|&(head, _, bytes)| {
            free = head.max(free) + bytes * BYTE_PS;
            free + DELAY_PS
        })
        .collect();
    let buffering = Buffering::OutputQueued { pool_bytes: 1 << 40, alpha_log2: 0 };
    let config = FabricConfig { buffering, ..cutting(64) };
    let [first, second] = script.map(Station::scripted);
    let star = Topology::star(3, link40()).expect("a star");
    assert_eq!(arrivals(&run(star, config, vec![(1, first), (2, second)])), expected);
}

#[test]
fn what_is_cut_to_its_headers_overtakes_here_too() {
    let trimming = Trimming { data_bytes_max: 3_000, header_bytes_max: 1 << 20, header_priority: 1 };
    let buffering = Buffering::OutputQueued { pool_bytes: 1 << 40, alpha_log2: 0 };
    let config = FabricConfig { priorities: 2, buffering, trimming: Some(trimming), ..cutting(64) };
    let each = |sender| (sender, Station::streaming(Frame::new(sender, 0, 1000), 30));
    let net = run(Topology::star(4, link40()).expect("a star"), config, [1, 2, 3].map(each).into());
    assert_eq!(received_numbers(&net, 0).len(), 90);
    assert!(net.totals().trimmed.packets > 20);
}

/// When a packet of 1000 bytes from host 1 comes to host 0, over links of `near`, `far` and `near` Gb/s with a header of 100 bytes.
fn across_a_dumbbell(near: u64, far: u64) -> u64 {
    let link = |gbps| LinkSpec { rate: Rate::from_gbps(gbps), ..link40() };
    let topology = Topology::dumbbell(1, 1, link(near), link(far)).expect("a dumbbell");
    let one = Station::scripted([(Time::ZERO, Frame::new(1, 0, 1000))]);
    arrivals(&run(topology, cutting(100), vec![(1, one)]))[0] - 3 * DELAY_PS
}

#[test]
fn a_faster_link_waits_for_all_of_a_packet_and_a_slower_one_does_not() {
    // At 10 Gb/s a byte takes 800 ps, at 40 Gb/s 200 ps.
    assert_eq!(across_a_dumbbell(40, 40), (100 + 100 + 1000) * 200);
    // Slower in the middle: through the first switch at once, stored in the second, which sends it on faster.
    assert_eq!(across_a_dumbbell(40, 10), 100 * 200 + 1000 * 800 + 1000 * 200);
    // Faster in the middle: stored in the first, through the second at once.
    assert_eq!(across_a_dumbbell(10, 40), 1000 * 800 + 100 * 200 + 1000 * 800);
}

#[test]
fn packets_stored_for_a_faster_link_keep_their_order_and_its_pace() {
    let link = |gbps| LinkSpec { rate: Rate::from_gbps(gbps), ..link40() };
    for header in [0, 100] {
        let topology = Topology::dumbbell(1, 1, link(10), link(40)).expect("a dumbbell");
        let stream = Station::streaming(Frame::new(1, 0, 1000), 50);
        let net = run(topology, cutting(header), vec![(1, stream)]);
        let first = 3 * DELAY_PS + 1000 * 800 + u64::from(header) * 200 + 1000 * 800;
        let expected: Vec<u64> = (0..50).map(|place| first + place * 1000 * 800).collect();
        assert_eq!(arrivals(&net), expected);
        assert_eq!(received_numbers(&net, 0), (1..=50).collect::<Vec<_>>());
    }
}

#[test]
fn threads_with_nothing_between_them_are_refused() {
    let near = LinkSpec { delay: Span::ZERO, ..link40() };
    let parallel = |header| {
        let spine = Topology::leaf_spine(4, 1, 1, near, near).expect("a tree");
        let net = ParallelFabric::<Frame, Station>::new(spine, cutting(header), stations(4), vec![(); 2]);
        net.map(|_| ())
    };
    assert!(matches!(parallel(0), Err(BuildError::OutOfRange("header_bytes", _))));
    assert_eq!(parallel(1), Ok(()));
}
