//! Hundreds of cores on a fat tree.

use anyhow::{Context, Result, anyhow};
use highwire_nanopu::client::Request;
use highwire_nanopu::network::{Generator, HostId, Network, Place, Topology, TrimmingSwitch, address, link};
use highwire_nanopu::nic::Ndp;
use highwire_nanopu::{Node, NodeConfig};
use highwire_riscv::Program;

use super::Args;
use crate::failure::usage;
use crate::nanopu::limits;

const CORES_PER_NODE: usize = 4;
const LINK_CYCLES: u64 = 140;
/// A millisecond.
const CYCLES: u64 = 3_200_000;
const WARM_UP: u64 = 10_000;
/// Cycles between two messages to each node.
const INTERVAL: u64 = 2000;
/// What a message takes in the generator, however short it is.
const MESSAGE_BYTES_KEPT: usize = 64;

/// The number of simulated cycles, and in words how many messages got their answers.
pub(super) fn play(args: &Args, program: &Program) -> Result<(u64, Option<String>)> {
    let nodes = (args.cores as usize).div_ceil(CORES_PER_NODE);
    // At least one host in five sends.
    let degree =
        (4..=128).step_by(2).find(|degree| degree * degree * degree / 4 >= nodes + nodes.div_ceil(4));
    let degree = degree.context("no fat tree is as large")? as u32;
    let tree = Topology::fat_tree(degree, link(LINK_CYCLES)).map_err(|error| anyhow!("{error}"))?;
    let hosts = tree.host_count() as usize;
    let generators = hosts - nodes;
    let interval = args.interval.unwrap_or(INTERVAL);
    let messages = nodes as u64 * (CYCLES / interval + 1);
    limits::check_payload(messages, args.bytes.max(MESSAGE_BYTES_KEPT))
        .map_err(|error| usage(format!("--interval {interval}, --cores {}: {error}", args.cores)))?;
    let mut places = Vec::with_capacity(hosts);
    for host in (0..hosts as u32).map(HostId) {
        let number = host.0 as usize;
        if number < nodes {
            let mut config =
                NodeConfig { cores: CORES_PER_NODE, skips_idle: !args.every_cycle, ..NodeConfig::default() };
            config.nic.address = address(host);
            places.push(Place::<Ndp, Generator>::Node(Box::new(Node::new(program, &config)?)));
        } else {
            let mine = (number - nodes..nodes).step_by(generators);
            places.push(Place::Other(Generator::new(host, requests(args, mine))));
        }
    }
    let mut network: Network = Network::new(tree, TrimmingSwitch::default().config(), places)?;
    network.use_threads(args.threads);
    network.run_until(CYCLES)?;
    let others = (nodes as u32..hosts as u32).filter_map(|host| network.other(HostId(host)));
    let answers = others.flat_map(Generator::answers);
    let (answered, sent) =
        answers.fold((0, 0), |(some, all), answer| (some + u64::from(answer.is_some()), all + 1));
    let skipped: u64 = network.nodes().map(|(_, node)| node.skipped_cycles()).sum();
    let words = format!(
        "{nodes} nodes of {CORES_PER_NODE} cores on a fat tree of {hosts} hosts; {answered} of {sent} messages answered, {} packet-hops; {:.0} % of all cycles were polling that was passed over",
        network.fabric().packet_hops(),
        100.0 * skipped as f64 / (nodes as u64 * network.cycle()) as f64
    );
    Ok((network.cycle(), Some(words)))
}

/// A message to each of the nodes every --interval cycles, until too late to be answered.
fn requests(args: &Args, nodes: impl Iterator<Item = usize>) -> Vec<(HostId, Request)> {
    let payload = vec![7; args.bytes];
    let send = |(place, node): (usize, usize)| {
        let to = HostId(node as u32);
        let times = (WARM_UP + 37 * place as u64..CYCLES - 20_000)
            .step_by(args.interval.unwrap_or(INTERVAL) as usize);
        let payload = payload.clone();
        times.map(move |sent| (to, Request { sent, context: 0, payload: payload.clone() }))
    };
    nodes.enumerate().flat_map(send).collect()
}
