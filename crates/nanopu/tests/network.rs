//! Nodes on a fabric: their messages to each other, and that coupling changes nothing.

mod support;

use highwire_fabric::{FabricConfig, HostId, Topology};
use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::network::{Generator, Network, Place, address, cycle_of, link, time_of};
use highwire_nanopu::{Node, NodeConfig};
use support::program;

const LINK_CYCLES: u64 = 140;

fn config_of_switch() -> FabricConfig {
    FabricConfig { priorities: 2, ..FabricConfig::default() }
}

fn node_at(host: HostId, name: &str) -> Option<Box<Node>> {
    let mut config = NodeConfig::default();
    config.nic.address = address(host);
    Some(Box::new(Node::new(&program(name)?, &config).expect("it fits")))
}

fn requests(count: u64, bytes: usize) -> Vec<Request> {
    (0..count)
        .map(|i| Request { sent: 10_000 + 777 * i, context: 0, payload: vec![i as u8; bytes] })
        .collect()
}

#[test]
fn cycles_are_picoseconds_and_back() {
    for cycle in (0..10_000).chain([1 << 40, (1 << 40) + 1]) {
        assert_eq!(cycle_of(time_of(cycle)), cycle);
    }
}

/// One switch between generator and node: as the generator beside the node has it, but for the switch.
#[test]
fn a_switch_adds_two_links_and_two_stores() {
    let bytes = 64;
    let Some(node) = node_at(HostId(1), "loopback") else { return };
    let requests = requests(20, bytes);
    let generator = Generator::new(HostId(0), requests.iter().map(|r| (HostId(1), r.clone())).collect());
    let star = Topology::star(2, link(LINK_CYCLES)).expect("two hosts");
    let places = vec![Place::Other(generator), Place::Node(node)];
    let mut network: Network = Network::new(star, config_of_switch(), places).expect("it fits");
    network.run_until(40_000).expect("no traps");
    let answers = network.other(HostId(0)).expect("the generator").answers();

    let mut alone = node_at(HostId(1), "loopback").expect("built before");
    let direct = Client::new(address(HostId(0)), address(HostId(1)), 2 * LINK_CYCLES)
        .play(&mut alone, &requests, 100_000, |_, _| {})
        .expect("no traps");
    let words = (64 + bytes as u64) / 8;
    for (number, ((here, there), request)) in answers.iter().zip(&direct).zip(&requests).enumerate() {
        let (here, there) = (here.as_ref().expect("answered"), there.as_ref().expect("answered"));
        assert_eq!(here.payload, request.payload);
        // The program polls: where its loop stands when the message comes is up to chance. So is where fetch goes before it is corrected,
        // and with that what the first messages find in the instruction cache.
        let off = here.received as i64 - (there.received + 2 * words) as i64;
        println!("message {number}: {off}");
        assert!(off.abs() <= 6 || number < 4, "message {number}: {off}");
    }
}

#[test]
fn hundreds_of_messages_cross_a_fat_tree() {
    let tree = Topology::fat_tree(4, link(43)).expect("sixteen hosts");
    let mut places = Vec::new();
    for host in (0..16).map(HostId) {
        places.push(if host.0 % 2 == 0 {
            let to = HostId((host.0 + 7) % 16);
            let list = requests(25, 600).into_iter().map(|request| (to, request)).collect();
            Place::Other(Generator::new(host, list))
        } else {
            let Some(node) = node_at(host, "loopback") else { return };
            Place::Node(node)
        });
    }
    let mut network: Network = Network::new(tree, config_of_switch(), places).expect("it fits");
    network.run_until(40_000).expect("no traps");
    for host in (0..16).step_by(2).map(HostId) {
        let generator = network.other(host).expect("a generator");
        assert!(generator.is_done(), "{:?}", generator.strays());
        for (number, answer) in generator.answers().iter().enumerate() {
            assert_eq!(answer.as_ref().expect("done").payload, vec![number as u8; 600]);
        }
    }
    assert_eq!((network.lost(), network.fabric().packets_in_flight()), (0, 0));
}

/// Passing over polling changes nothing: every answer comes on the same cycle as when polling is simulated.
#[test]
fn skipping_idle_cycles_changes_nothing() {
    let Some(program) = program("loopback") else { return };
    let play = |skips_idle| {
        let mut config = NodeConfig { cores: 3, skips_idle, ..NodeConfig::default() };
        config.nic.address = address(HostId(1));
        let node = Box::new(Node::new(&program, &config).expect("it fits"));
        let sent = |i: u64| 10_000 + 2_000 * i + i * i * 37 % 1_500;
        let list = (0..60).map(|i| Request {
            sent: sent(i),
            context: 0,
            payload: vec![1; 8 + 40 * i as usize % 900],
        });
        let generator = Generator::new(HostId(0), list.map(|request| (HostId(1), request)).collect());
        let star = Topology::star(2, link(LINK_CYCLES)).expect("two hosts");
        let places = vec![Place::Other(generator), Place::Node(node)];
        let mut network: Network = Network::new(star, config_of_switch(), places).expect("it fits");
        network.run_until(150_000).expect("no traps");
        let generator = network.other(HostId(0)).expect("the generator");
        assert!(generator.is_done());
        let answers: Vec<u64> =
            generator.answers().iter().map(|answer| answer.as_ref().expect("done").received).collect();
        let node = network.node(HostId(1)).expect("the node");
        let counters: Vec<u64> = (0..3).map(|core| node.core(core).hart.csrs.minstret).collect();
        (answers, counters, node.skipped_cycles())
    };
    let (slow, fast) = (play(false), play(true));
    assert_eq!((&slow.0, slow.2), (&fast.0, 0));
    assert_eq!(slow.1, fast.1);
    assert!(fast.2 > 100_000, "{}", fast.2);
}

#[test]
fn a_generator_can_ask_two_nodes_for_long() {
    let Some(program) = program("loopback") else { return };
    let node = |host| {
        let mut config = NodeConfig { cores: 4, ..NodeConfig::default() };
        config.nic.address = address(host);
        Place::Node(Box::new(Node::new(&program, &config).expect("it fits")))
    };
    let to = |place: u64| {
        (0..400).map(move |i| {
            let sent = 10_000 + 37 * place + 2_000 * i;
            (HostId(1 + place as u32), Request { sent, context: 0, payload: vec![7; 64] })
        })
    };
    let generator = Generator::new(HostId(0), to(0).chain(to(1)).collect());
    let star = Topology::star(3, link(LINK_CYCLES)).expect("three hosts");
    let places = vec![Place::Other(generator), node(HostId(1)), node(HostId(2))];
    let mut network: Network = Network::new(star, config_of_switch(), places).expect("it fits");
    network.run_until(900_000).expect("no traps");
    let counters = |host| {
        let nic = network.node(HostId(host)).expect("a node").nic();
        (nic.received(), nic.sent())
    };
    assert!(network.other(HostId(0)).expect("it").is_done(), "{:?} {:?}", counters(1), counters(2));
}
