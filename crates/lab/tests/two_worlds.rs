//! The same plan for the same RNICs, once on the simulated network and once over sockets of this machine.
//!
//! One body, two arms: in either world every byte arrives, every packet leaves once and is repeated only if
//! the network loses some. The test is here because faces may know both worlds, and the worlds not each
//! other.

use highwire_host::verbs::{Access, CompletionStatus, Mtu, Operation, Recovery, SendWr, Service};
use highwire_host::{
    Buffer, CompletionQueue, ConnectOptions, Device, DeviceConfig, Engine, LinkChoice, QueuePair,
    QueuePairConfig,
};
use highwire_sim::fabric::{Span, Time};
use highwire_sim::scenario::{Acks, Cap, GoBackN, Irn, LinkFault, QueuePairs, Shape, Transport};
use highwire_sim::{Flow, Scenario};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const HOSTS: u32 = 3;
const MTU: Mtu = Mtu::B1024;

/// Flows of bytes into peers' memory, the kind of loss recovery, and whether there are losses.
#[derive(Clone, Debug)]
struct Plan {
    flows: Vec<(u32, u32, u32)>,
    recovery: Recovery,
    loss_percent: u32,
}

/// The result of a plan.
#[derive(Debug)]
struct Found {
    /// Flows whose bytes are all in place, and whose sender has its completions.
    complete: usize,
    data_packets: u64,
    repeated: u64,
}

/// A world.
trait Arm {
    fn carry_out(&self, plan: &Plan) -> Found;
}

struct Simulated;

impl Arm for Simulated {
    fn carry_out(&self, plan: &Plan) -> Found {
        let mut scenario = Scenario { seed: 5, ..Scenario::default() };
        scenario.network.shape = Shape::Star { hosts: HOSTS };
        let packet_loss = f64::from(plan.loss_percent) / 100.0;
        scenario.network.faults = vec![LinkFault { link: None, bit_error_rate: 0.0, packet_loss }];
        scenario.scheme.mtu_bytes = MTU.bytes();
        scenario.scheme.queue_pairs = QueuePairs::PerPair;
        scenario.scheme.transport = match plan.recovery {
            Recovery::Irn => Transport::Irn(Irn { cap: Cap::Packets(256), ..Irn::default() }),
            Recovery::GoBackN => Transport::GoBackN(GoBackN {
                timeout: Some(Span::from_ms(1)),
                acks: Acks::Every(32),
                window_packets: Some(1024),
            }),
        };
        let flow = |&(from, to, bytes): &(u32, u32, u32)| Flow::new(from, to, bytes.into(), Time::ZERO);
        scenario.flows = plan.flows.iter().map(flow).collect();
        let outcome = highwire_sim::run(&scenario, &mut ()).expect("no invariant breaks");
        let is_complete = |f: &&highwire_sim::FlowRecord| f.received.is_some() && f.acknowledged.is_some();
        Found {
            complete: outcome.flows.iter().filter(is_complete).count(),
            data_packets: outcome.totals.data_packets,
            repeated: outcome.totals.retransmitted,
        }
    }
}

struct Real;

struct Node {
    device: Device,
    cq: CompletionQueue,
    buffer: Buffer,
    /// By peer.
    qps: BTreeMap<u32, QueuePair>,
}

impl Real {
    fn nodes(plan: &Plan) -> Vec<Node> {
        let faults = (plan.loss_percent > 0)
            .then(|| format!("loss={}%,seed=5", plan.loss_percent).parse().expect("faults"));
        let config =
            DeviceConfig { link: LinkChoice::Udp, engine: Engine::Inline, faults, ..DeviceConfig::default() };
        let bytes: u32 = plan.flows.iter().map(|flow| flow.2).sum();
        let nodes: Vec<Node> = (0..HOSTS).map(|me| Real::node(&config, me, bytes as usize)).collect();
        let options = ConnectOptions {
            mtu: Some(MTU),
            recovery: plan.recovery,
            timeout: 10,
            ..ConnectOptions::default()
        };
        for me in 0..HOSTS {
            for peer in (0..HOSTS).filter(|&peer| peer != me) {
                let endpoint = nodes[peer as usize].qps[&me].endpoint();
                nodes[me as usize].qps[&peer].connect(&endpoint, &options).expect("connects");
            }
        }
        nodes
    }

    fn node(config: &DeviceConfig, me: u32, bytes: usize) -> Node {
        let device = Device::open(config).expect("a device");
        let pd = device.protection_domain();
        let cq = device.completion_queue(1024).expect("a completion queue");
        let qp = || pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
        let qps = (0..HOSTS).filter(|&peer| peer != me).map(|peer| (peer, qp())).collect();
        let buffer = pd.allocate(2 * bytes, Access::ALL).expect("a buffer");
        Node { device, cq, buffer, qps }
    }
}

impl Arm for Real {
    fn carry_out(&self, plan: &Plan) -> Found {
        let nodes = Real::nodes(plan);
        let total: u32 = plan.flows.iter().map(|flow| flow.2).sum();
        let content = |flow: usize, bytes: u32| -> Vec<u8> {
            (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(flow as u8)).collect()
        };
        // Each flow has a place of its own in every memory: first the sent bytes, then, as far behind, the
        // received ones.
        let mut offset = 0_u32;
        let mut places = Vec::new();
        for (number, &(from, to, bytes)) in plan.flows.iter().enumerate() {
            let (sender, receiver) = (&nodes[from as usize], &nodes[to as usize]);
            sender.buffer.write(offset as usize, &content(number, bytes));
            let sges = [sender.buffer.sge(offset.into(), bytes)];
            let there = Operation::Write(receiver.buffer.remote((total + offset).into()));
            sender.qps[&to].post_send(&[SendWr::new(number as u64, there, &sges)]).expect("posts");
            places.push(total + offset);
            offset += bytes;
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut completed = vec![false; plan.flows.len()];
        while !completed.iter().all(|&done| done) {
            assert!(Instant::now() < deadline, "{plan:?} is not carried out: {completed:?}");
            for completion in nodes.iter().filter_map(|node| node.cq.poll_one()) {
                assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
                completed[completion.wr_id as usize] = true;
            }
        }
        let arrived = |(number, &(_, to, bytes)): (usize, &(u32, u32, u32))| {
            nodes[to as usize].buffer.to_vec(places[number] as usize, bytes as usize)
                == content(number, bytes)
        };
        let count = |name| nodes.iter().map(|node| node.device.counters().value(name)).sum::<u64>();
        let answers = count("acks_sent") + count("naks_sent") + count("cnps_sent");
        Found {
            complete: plan.flows.iter().enumerate().filter(|flow| arrived(*flow)).count(),
            data_packets: count("packets_sent") - answers,
            repeated: count("retransmitted"),
        }
    }
}

/// Asserts the properties that hold in either world.
fn check(arm: &dyn Arm, plan: &Plan) {
    let found = arm.carry_out(plan);
    assert_eq!(found.complete, plan.flows.len(), "{plan:?}");
    let needed: u32 = plan.flows.iter().map(|&(_, _, bytes)| MTU.packets(bytes)).sum();
    assert_eq!(found.data_packets - found.repeated, u64::from(needed), "{plan:?}: {found:?}");
    if plan.loss_percent > 0 {
        assert!(found.repeated > 0, "{plan:?}: nothing was lost");
    }
}

fn plans() -> Vec<Plan> {
    let flows = vec![
        (0, 1, 1),
        (0, 1, 1024),
        (1, 0, 1025),
        (0, 2, 200_000),
        (1, 2, 77_777),
        (2, 1, 4096),
        (2, 0, 123),
        (0, 1, 50_000),
    ];
    let plan = |recovery, loss_percent| Plan { flows: flows.clone(), recovery, loss_percent };
    [Recovery::Irn, Recovery::GoBackN].into_iter().flat_map(|r| [plan(r, 0), plan(r, 3)]).collect()
}

#[test]
fn a_plan_is_carried_out_on_the_simulated_network() {
    plans().iter().for_each(|plan| check(&Simulated, plan));
}

#[test]
fn the_same_plan_is_carried_out_over_sockets() {
    plans().iter().for_each(|plan| check(&Real, plan));
}
