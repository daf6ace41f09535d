//! `highwire nanopu cluster`: several nodes with one's own programs on a switch, from a file.

mod file;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_nanopu::client::{Answer, Request};
use highwire_nanopu::network::{Generator, HostId, Network, NetworkError, Place, Topology, address, link};
use highwire_nanopu::nic::Nic;
use highwire_nanopu::{Node, NodeConfig};
use highwire_riscv::{MachineConfig, Program};
use serde::Serialize;

use self::file::{Cluster, Message};
use super::answers::words;
use super::place::place;
use super::transport::AnyTransport;
use crate::console::{Console, Tone};
use crate::failure::usage;

/// The host that sends the messages of the file.
const CLIENT: HostId = HostId(0);
/// Between two looks at whether all is answered.
const TURN_CYCLES: u64 = 10_000;

/// Options of `highwire nanopu cluster`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file is TOML: nodes with their programs, the links to the switch between them, and the messages of a client that speaks first. A node may
answer it for another one. Paths are relative to the file.

  link_cycles = 140              # each way between a host and the switch; 140 if not given
  cycles_max = 10_000_000        # then the run ends; 10,000,000 if not given
  transport = \"ndp\"              # or \"homa\"

  [[nodes]]
  name = \"a\"
  program = \"ring.elf\"
  cores = 1                      # 1 if not given
  memory = 16                    # MiB; 16 if not given

  [[messages]]
  to = \"a\"
  sent = 10_000                  # a cycle
  context = 0                    # 0 if not given
  words = [1, \"@a\", \"0xff\"]      # @NAME is the address of a node

Exit status: 1 when a message stays unanswered or a program traps.

Examples:
  highwire nanopu cluster examples/nanopu/ring.toml
  highwire nanopu cluster ring.toml --json"
)]
pub(crate) struct Args {
    /// The file.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    cycles: u64,
    nodes: Vec<NodeReport>,
    messages: Vec<MessageReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    name: String,
    address: String,
    instructions: u64,
    messages_received: u64,
    messages_sent: u64,
}

#[derive(Debug, Serialize)]
struct MessageReport {
    to: String,
    sent: u64,
    response_cycles: Option<u64>,
    words: Option<Vec<String>>,
}

type Switched = Network<AnyTransport>;

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let name = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {name}"))?;
    let cluster = Cluster::parse(&text).map_err(|error| usage(format!("{name}: {error}")))?;
    let folder = args.file.parent().unwrap_or(Path::new("."));
    let mut programs = Vec::new();
    for node in &cluster.nodes {
        let path = folder.join(&node.program);
        let bytes = std::fs::read(&path)
            .with_context(|| format!("{name}: node {}: cannot read {}", node.name, path.display()))?;
        programs.push(Program::parse(&bytes).with_context(|| path.display().to_string())?);
    }
    let mut network = build(&cluster, &programs)?;
    let problem = play(&mut network, &cluster, &programs);
    let report = report(&network, &cluster, problem);
    print(args, &report)?;
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build(cluster: &Cluster, programs: &[Program]) -> Result<Switched> {
    let requests = cluster.messages.iter().map(|message| {
        let payload = message.words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let request = Request { sent: message.sent, context: message.context, payload };
        (message.to, request)
    });
    let mut places = vec![Place::Other(Generator::new(CLIENT, requests.collect()))];
    for ((node, program), host) in cluster.nodes.iter().zip(programs).zip((1..).map(HostId)) {
        let memory =
            MachineConfig { memory_bytes: usize::from(node.memory) << 20, ..MachineConfig::default() };
        let mut config = NodeConfig { cores: node.cores.into(), memory, ..NodeConfig::default() };
        config.nic.address = address(host);
        let nic = Nic::new(&config.nic, config.cores, (cluster.transport.make)(&config.nic));
        let node = Node::with_nic(program, &config, nic)
            .with_context(|| format!("node {}: {}", node.name, node.program.display()))?;
        places.push(Place::Node(Box::new(node)));
    }
    let star = Topology::star(places.len() as u32, link(cluster.link_cycles)).context("the switch")?;
    Ok(Network::new(star, (cluster.transport.switch)(), places)?)
}

/// Runs until every message has its answer; says what ended it otherwise.
fn play(network: &mut Switched, cluster: &Cluster, programs: &[Program]) -> Option<String> {
    while network.cycle() < cluster.cycles_max {
        let limit = cluster.cycles_max.min(network.cycle() + TURN_CYCLES);
        if let Err(error) = network.run_until(limit) {
            return Some(told(&error, cluster, programs));
        }
        if network.other(CLIENT).is_some_and(Generator::is_done) {
            return None;
        }
    }
    let answers = network.other(CLIENT).map_or(&[][..], Generator::answers);
    let missing = answers.iter().filter(|answer| answer.is_none()).count();
    Some(format!("{missing} messages have no answer after {} cycles (cycles_max)", cluster.cycles_max))
}

fn told(error: &NetworkError, cluster: &Cluster, programs: &[Program]) -> String {
    let NetworkError::Trapped { host, core, pc, trap } = error else { return error.to_string() };
    let at = host.0 as usize - 1;
    match (cluster.nodes.get(at), programs.get(at)) {
        (Some(node), Some(program)) => {
            format!("core {core} of node {} trapped at {}: {trap}", node.name, place(program, *pc))
        }
        _ => error.to_string(),
    }
}

fn report(network: &Switched, cluster: &Cluster, problem: Option<String>) -> Report {
    let nodes = cluster.nodes.iter().zip((1..).map(HostId)).filter_map(|(node, host)| {
        let machine = network.node(host)?;
        let instructions =
            (0..usize::from(node.cores)).map(|core| machine.core(core).hart.csrs.minstret).sum();
        Some(NodeReport {
            name: node.name.clone(),
            address: std::net::Ipv4Addr::from(address(host)).to_string(),
            instructions,
            messages_received: machine.nic().received().messages,
            messages_sent: machine.nic().sent().messages,
        })
    });
    let answers = network.other(CLIENT).map_or(&[][..], Generator::answers);
    let message = |(message, answer): (&Message, &Option<Answer>)| MessageReport {
        to: cluster.name_of(message.to).to_owned(),
        sent: message.sent,
        response_cycles: answer.as_ref().map(|answer| answer.received.saturating_sub(message.sent)),
        words: answer.as_ref().map(|answer| words(&answer.payload)),
    };
    Report {
        cycles: network.cycle(),
        nodes: nodes.collect(),
        messages: cluster.messages.iter().zip(answers).map(message).collect(),
        problems: problem.into_iter().collect(),
    }
}

fn print(args: &Args, report: &Report) -> Result<()> {
    let mut console = Console::new();
    if args.json {
        console.json(report)?;
        return console.finish();
    }
    for NodeReport { name, address, instructions, messages_received, messages_sent } in &report.nodes {
        console.line(format!(
            "node {name} ({address}): {messages_received} messages in, {messages_sent} out, {instructions} instructions"
        ))?;
    }
    for (number, MessageReport { to, sent, response_cycles, words }) in report.messages.iter().enumerate() {
        let end = match (response_cycles, words) {
            (Some(cycles), Some(words)) => format!("{cycles} cycles, {}", words.join(" ")),
            _ => "no answer".to_owned(),
        };
        console.line(format!("message {number} to {to}, sent in cycle {sent}: {end}"))?;
    }
    for problem in &report.problems {
        console.line(console.paint(Tone::Bad, problem))?;
    }
    console.finish()
}
