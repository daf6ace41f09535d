//! RNICs and nanoPUs on one network, whose ports they share.

#[path = "../../nanopu/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use highwire_nanopu::client::Request;
use highwire_nanopu::dma::{DmaNode, DmaNodeConfig};
use highwire_nanopu::network::{HostId, address, link};
use highwire_nanopu::{Node, NodeConfig};
use highwire_riscv::Program;
use highwire_sim::fabric::{Buffering, Observer, Pfc, PortId, Priorities, Time};
use highwire_sim::neighbours::{Neighbours, NeighboursError, Seat, Shared};
use highwire_sim::scenario::{GoBackN, Network, PfcChoice, Scheme, Shape, Transport};
use highwire_sim::{Flow, Scenario};
use support::program;

/// A generator, two RNICs and a nanoPU on either side of a link.
const GENERATORS: [HostId; 2] = [HostId(0), HostId(4)];
const NODES: [HostId; 2] = [HostId(3), HostId(7)];
const END: u64 = 400_000;

/// How many packets of RNICs and of nanoPUs each port has sent.
#[derive(Clone, Default, PartialEq, Debug)]
struct Meetings(BTreeMap<u32, [u64; 2]>);

impl<const ABOVE: bool> Observer<Shared<ABOVE>> for Meetings {
    fn on_send(&mut self, _: Time, port: PortId, packet: &Shared<ABOVE>) {
        self.0.entry(port.0).or_default()[usize::from(packet.is_frame())] += 1;
    }
}

fn scenario(flows: Vec<Flow>, has_pfc: bool) -> Scenario {
    let link = link(140);
    let pfc = Pfc {
        priorities: Priorities(1),
        xoff_bytes: 20_000,
        xon_bytes: 20_000,
        headroom_bytes: Pfc::headroom_needed(link.rate, link.delay, 1_200, 64),
        frame_bytes: 64,
    };
    let network = Network {
        shape: Shape::Dumbbell { left: 4, right: 4, trunk_rate: None },
        rate: link.rate,
        delay: link.delay,
        buffering: Buffering::OutputQueued { pool_bytes: 400_000, alpha_log2: 0 },
        pfc: if has_pfc { PfcChoice::Thresholds(pfc) } else { PfcChoice::Off },
        ..Network::default()
    };
    let transport = match has_pfc {
        true => Transport::GoBackN(GoBackN::default()),
        false => Transport::Irn(Default::default()),
    };
    Scenario { network, scheme: Scheme { transport, ..Scheme::default() }, flows, ..Scenario::default() }
}

/// Both RNICs of each side send to the other side.
fn transfers() -> Vec<Flow> {
    let at = |us| Time::from_us(us);
    let flows = (0..6).flat_map(|i| {
        [(1, 5), (2, 6), (5, 1), (6, 2)].map(|(from, to)| Flow::new(from, to, 200_000, at(4 + 15 * i)))
    });
    flows.collect()
}

fn seats(program: &Program) -> Vec<Seat> {
    let requests = |to: HostId| {
        let sent = (0..200).map(|i| 10_000 + 1_600 * i + i * i * 37 % 1_500);
        sent.map(|sent| (to, Request { sent, context: 0, payload: vec![7; 64] })).collect::<Vec<_>>()
    };
    let mut seats: Vec<Seat> = (0..8).map(|_| Seat::Rnic).collect();
    for (generator, node) in GENERATORS.into_iter().zip([NODES[1], NODES[0]]) {
        seats[generator.0 as usize] = Seat::Generator(requests(node));
        let mut config = NodeConfig::default();
        config.nic.address = address(node);
        seats[node.0 as usize] = Seat::Node(Box::new(Node::new(program, &config).expect("it fits")));
    }
    seats
}

/// The results of a run, for comparison.
#[derive(PartialEq, Debug)]
struct Seen {
    responses: Vec<u64>,
    flows: Vec<Option<Time>>,
    meetings: Meetings,
    fingerprint: u64,
    dropped: u64,
}

fn play<const ABOVE: bool>(program: &Program, flows: Vec<Flow>, has_pfc: bool, threads: usize) -> Seen {
    let scenario = scenario(flows, has_pfc);
    let mut world: Neighbours<ABOVE, Meetings> =
        Neighbours::new(&scenario, seats(program), Meetings::default()).expect("it fits");
    world.use_threads(threads);
    world.run_until(END).expect("no invariant breaks");
    let sent = (0..200).map(|i| 10_000 + 1_600 * i + i * i * 37 % 1_500);
    let responses = GENERATORS.iter().flat_map(|&host| {
        let answers = world.answers(host).iter().zip(sent.clone());
        answers.map(|(answer, sent)| answer.as_ref().expect("answered").received - sent).collect::<Vec<_>>()
    });
    let mut responses: Vec<u64> = responses.collect();
    responses.sort_unstable();
    Seen {
        responses,
        flows: world.flows().iter().map(|flow| flow.received).collect(),
        meetings: world.observer().clone(),
        fingerprint: world.fingerprint(),
        dropped: world.dropped(),
    }
}

#[test]
fn packets_of_both_pass_through_the_same_ports() {
    let Some(program) = program("loopback") else { return };
    let seen = play::<false>(&program, transfers(), false, 1);
    assert!(seen.flows.iter().all(Option::is_some), "{:?}", seen.flows);
    let shared = seen.meetings.0.values().filter(|counts| counts.iter().all(|&count| count > 0));
    let shared: Vec<_> = shared.collect();
    // The link in the middle, both ways: 200 requests and 200 answers, each with its acknowledgement and perhaps a pull of its own.
    assert_eq!(shared.len(), 2, "{:?}", seen.meetings);
    for [roce, frames] in shared {
        assert!(*roce > 12 * 200_000 / 1024, "{roce}");
        assert!((800..1_200).contains(frames), "{frames}");
    }
}

#[test]
fn each_slows_the_other_and_priorities_help() {
    let Some(program) = program("loopback") else { return };
    let p99 = |seen: &Seen| seen.responses[seen.responses.len() * 99 / 100];
    let alone = play::<false>(&program, Vec::new(), false, 1);
    for has_pfc in [false, true] {
        let queued = play::<false>(&program, transfers(), has_pfc, 1);
        let above = play::<true>(&program, transfers(), has_pfc, 1);
        println!(
            "p99, PFC {has_pfc}: {} alone, {} in one queue, {} above",
            p99(&alone),
            p99(&queued),
            p99(&above)
        );
        assert_eq!((queued.dropped, above.dropped), (0, 0));
        assert!(p99(&queued) > p99(&alone) + 1_000);
        // A packet that has begun, each way, and the phase of the program's loop.
        assert!(p99(&above) <= p99(&alone) + 2 * 140 + 6);
    }
}

#[test]
fn threads_change_nothing() {
    let Some(program) = program("loopback") else { return };
    let one = play::<true>(&program, transfers(), false, 1);
    assert_eq!(one, play::<true>(&program, transfers(), false, 2));
}

/// A core with a DMA NIC on one side, a nanoPU on the other, each asked across the link that RNICs share with them.
#[test]
fn a_dma_nic_is_a_neighbour_of_rnics_too() {
    let (Some(program), Some(polling)) = (program("loopback"), program("loopback_dma")) else { return };
    let run = |flows: Vec<Flow>, threads: usize| {
        let scenario = scenario(flows, false);
        let mut seats = seats(&program);
        let dma = DmaNode::new(&polling, &DmaNodeConfig::default()).expect("it fits");
        seats[NODES[1].0 as usize] = Seat::Dma(Box::new(dma));
        let mut world: Neighbours<false, Meetings> =
            Neighbours::new(&scenario, seats, Meetings::default()).expect("it fits");
        world.use_threads(threads);
        world.run_until(END).expect("no invariant breaks");
        assert_eq!(
            (world.flows().iter().filter(|flow| flow.received.is_none()).count(), world.dropped()),
            (0, 0)
        );
        let dma = world.dma_node(NODES[1]).expect("it is there");
        assert_eq!((dma.counters().refused, dma.counters().lost()), (0, 0));
        assert!(world.node(NODES[1]).is_none() && world.dma_node(NODES[0]).is_none());
        // The generator beside the nanoPU asks the DMA NIC, and the other way round.
        let took = |generator: HostId| {
            let sent = (0..200).map(|i| 10_000 + 1_600 * i + i * i * 37 % 1_500);
            let answers = world.answers(generator).iter().zip(sent);
            let took = answers.map(|(answer, sent)| {
                let answer = answer.as_ref().expect("no frame is lost where no queue overflows");
                assert_eq!(answer.payload, [7; 64]);
                answer.received - sent
            });
            let mut took: Vec<u64> = took.collect();
            took.sort_unstable();
            took
        };
        (took(GENERATORS[0]), took(GENERATORS[1]), world.observer().clone(), world.fingerprint())
    };
    let (dma, nanopu, ..) = run(Vec::new(), 1);
    assert!(dma[100] > nanopu[100] + 50, "a DMA NIC is slower: {} and {}", dma[100], nanopu[100]);
    let beside = run(transfers(), 1);
    assert!(
        beside.0[198] > dma[198] + 1_000,
        "transfers stand in its way: {} and {}",
        beside.0[198],
        dma[198]
    );
    let shared = beside.2.0.values().filter(|counts| counts.iter().all(|&count| count > 0)).count();
    assert_eq!(shared, 2, "the link in the middle, both ways");
    assert!(beside == run(transfers(), 3), "threads change nothing");
}

#[test]
fn what_leads_nowhere_is_refused() {
    let Some(program) = program("loopback") else { return };
    let refuse = |flows, seats| {
        let world = Neighbours::<false>::new(&scenario(flows, false), seats, ());
        world.err().map(|error| error.to_string())
    };
    let flow = Flow::new(1, 3, 1_000, Time::ZERO);
    let words = "a flow begins or ends at host 3, which is no RNIC";
    assert_eq!(refuse(vec![flow], seats(&program)).as_deref(), Some(words));
    let mut wrong = seats(&program);
    let request = Request { sent: 0, context: 0, payload: vec![0; 8] };
    wrong[0] = Seat::Generator(vec![(HostId(1), request)]);
    let words = "a request is for host 1, which is neither a nanoPU nor a core with a DMA NIC";
    assert_eq!(refuse(Vec::new(), wrong).as_deref(), Some(words));
    let few = Neighbours::<false>::new(&scenario(Vec::new(), false), vec![Seat::Rnic], ());
    assert!(matches!(few.err(), Some(NeighboursError::Network(_))));
}
