//! A core with a DMA NIC on a fabric, beside nanoPUs and load generators: coupling changes nothing there either.

mod support;

use highwire_fabric::{FabricConfig, Forwarding, HostId, Topology};
use highwire_nanopu::client::{Answer, Request};
use highwire_nanopu::dma::{DmaLink, DmaNode, DmaNodeConfig};
use highwire_nanopu::network::{Generator, Network, NetworkError, Place, address, link};
use highwire_nanopu::{Node, NodeConfig};
use support::program;

const LINK_CYCLES: u64 = 140;
const START: u64 = 20_000;

fn dma(name: &str) -> Option<Box<DmaNode>> {
    Some(Box::new(DmaNode::new(&program(name)?, &DmaNodeConfig::default()).expect("it fits")))
}

fn nanopu(host: HostId, name: &str) -> Option<Box<Node>> {
    let mut config = NodeConfig::default();
    config.nic.address = address(host);
    Some(Box::new(Node::new(&program(name)?, &config).expect("it fits")))
}

fn request(sent: u64, bytes: usize) -> Request {
    Request { sent, context: 0, payload: (0..bytes).map(|byte| byte as u8).collect() }
}

/// A switch that adds no delay where there is no other sender.
fn cutting() -> FabricConfig {
    let forwarding = Forwarding::CutThrough { header_bytes: 0 };
    FabricConfig { priorities: 2, forwarding, ..FabricConfig::default() }
}

fn answers(network: &Network, host: u32) -> Vec<Answer> {
    let generator = network.other(HostId(host)).expect("a generator");
    generator.answers().iter().map(|answer| answer.clone().expect("answered")).collect()
}

/// Through a switch that adds nothing, every frame comes and goes on the cycle on which it does on a wire of that length.
#[test]
fn a_frame_takes_to_the_cycle_what_it_takes_without_a_network() {
    for (bytes, phase) in [(16, 0), (64, 3), (200, 1), (1000, 5), (1024, 2), (8, 4)] {
        let Some(node) = dma("loopback_dma") else { return };
        let request = request(START + phase, bytes);
        let generator = Generator::new(HostId(0), vec![(HostId(1), request.clone())]);
        let star = Topology::star(2, link(LINK_CYCLES)).expect("two hosts");
        let places = vec![Place::Other(generator), Place::Dma(node)];
        let mut network: Network = Network::new(star, cutting(), places).expect("it fits");
        network.run_until(START + 10_000).expect("no traps");
        let here = &answers(&network, 0)[0];

        let mut alone = dma("loopback_dma").expect("built before");
        let there = Request { sent: request.sent + 2 * LINK_CYCLES, ..request.clone() };
        let there = [there];
        let mut wire = DmaLink::new(address(HostId(0)), address(HostId(1)), &there);
        let there = wire.play(&mut alone, 10_000, |_| {}).expect("no traps")[0].clone().expect("answered");
        assert_eq!((&here.payload, &there.payload), (&request.payload, &request.payload));
        let words = (64 + bytes as u64).div_ceil(8);
        assert_eq!(here.received, there.last + 1 - words + 2 * LINK_CYCLES, "{bytes} bytes");
        let dma = network.dma_node(HostId(1)).expect("it is there");
        assert_eq!((dma.counters().refused, dma.counters().lost(), network.lost()), (0, 0, 0));
    }
}

/// Three machines on one fabric, each with a client of its own: the DMA NIC is the slowest, and threads change nothing.
#[test]
fn nanopus_and_a_dma_nic_share_a_network() {
    let run = |threads: usize| {
        let list = |to: u32| (0..40).map(move |i| (HostId(to), request(START + 2_500 * i, 256))).collect();
        let places = vec![
            Place::Other(Generator::new(HostId(0), list(3))),
            Place::Other(Generator::new(HostId(1), list(4))),
            Place::Other(Generator::new(HostId(2), list(5))),
            Place::Node(nanopu(HostId(3), "loopback")?),
            Place::Dma(dma("loopback_dma")?),
            Place::Node(nanopu(HostId(5), "stream")?),
        ];
        let tree = Topology::leaf_spine(2, 2, 3, link(LINK_CYCLES), link(LINK_CYCLES)).expect("six hosts");
        let fabric = FabricConfig { priorities: 2, ..FabricConfig::default() };
        let mut network: Network = Network::new(tree, fabric, places).expect("it fits");
        network.use_threads(threads);
        network.run_until(START + 130_000).expect("no traps");
        assert_eq!((network.nodes().count(), network.lost()), (2, 0));
        assert!(network.node(HostId(4)).is_none() && network.dma_node(HostId(3)).is_none());
        Some([0, 1, 2].map(|host| answers(&network, host)))
    };
    let Some(all) = run(1) else { return };
    for answers in &all[..2] {
        assert!(answers.iter().all(|answer| answer.payload == request(0, 256).payload));
    }
    let median = |answers: &[Answer]| {
        let mut took: Vec<u64> =
            answers.iter().zip(0..).map(|(answer, i)| answer.received - (START + 2_500 * i)).collect();
        took.sort_unstable();
        took[took.len() / 2]
    };
    let [nanopu, dma, _] = [0, 1, 2].map(|host: usize| median(&all[host]));
    println!("256 bytes through three switches: nanoPU {nanopu} cycles, DMA NIC {dma}");
    assert!(dma > nanopu + 50, "{dma} {nanopu}");
    assert!(run(3).expect("built before") == all);
}

#[test]
fn a_link_may_be_too_short_to_run_ahead() {
    let Some(node) = dma("loopback_dma") else { return };
    let star = Topology::star(2, link(136)).expect("two hosts");
    let generator = Generator::new(HostId(0), Vec::new());
    let error =
        Network::<_, Generator>::new(star, cutting(), vec![Place::Other(generator), Place::Dma(node)])
            .map(|_: Network| ())
            .expect_err("a frame may begin to leave 136 cycles before its end is known");
    assert_eq!(error, NetworkError::NoDelay { host: HostId(1), least: 137 });
    assert!(error.to_string().contains("DMA NIC"), "{error}");
}
