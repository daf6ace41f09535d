//! `highwire nanopu run`: one node, one program, messages, and their answers.

use std::fs;
use std::net::TcpListener;
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::nic::{Nic, ReceiveCounters, SendCounters};
use highwire_nanopu::{Commit, Event, Mistake, Node, NodeConfig, SharedCacheConfig};
use highwire_riscv::{MachineConfig, Program};
use serde::Serialize;

use super::options::{Args, Attachment};
use super::outcome::{End, Played, print};
use super::place::trap_text;
use super::problems::problems_of;
use super::trace::{self, Recording};
use super::transport::{AnyTransport, TransportKind};
use super::{CLIENT, NODE, bare, dma, gdb, mistakes, requests};
use crate::console::Console;
use crate::failure::usage;

/// The report for programs.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    played: Played,
    received: Received,
    sent: Sent,
    empty_reads: u64,
    words_for_unknown_contexts: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mistakes: Vec<mistakes::Report>,
    #[serde(flatten)]
    end: End,
}

#[derive(Debug, Serialize)]
struct Received {
    packets: u64,
    messages: u64,
    oversized: u64,
    duplicates: u64,
    without_buffer: u64,
    unknown_context: u64,
}

#[derive(Debug, Serialize)]
struct Sent {
    packets: u64,
    control: u64,
    messages: u64,
    repeated: u64,
    timeouts: u64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.bare {
        return bare::run(args, &program_of(args)?);
    }
    let bytes_max = args.beyond.bytes_max();
    if args.bytes > bytes_max {
        return Err(usage(format!(
            "--bytes {}: a message has at most {bytes_max} (--message-bytes-max)",
            args.bytes
        )));
    }
    let program = program_of(args)?;
    if args.nic == Attachment::Dma {
        refuse_with_dma(args)?;
        return dma::run(args, &program, &requests_of(args)?);
    }
    let config = NodeConfig {
        cores: args.cores.into(),
        blocking_reads: args.blocking_reads,
        context_banks: args.context_banks,
        shared_cache: args.shared_cache.then(SharedCacheConfig::default),
        memory: memory(args.cores),
        nic: args.beyond.config(),
        ..NodeConfig::default()
    };
    let nic = Nic::new(&config.nic, config.cores, args.transport.make(config.nic.rtt_packets));
    let mut node =
        Node::with_nic(&program, &config, nic).with_context(|| args.program.display().to_string())?;
    let requests = requests_of(args)?;
    if let Some(address) = &args.gdb {
        return debug(address, args, &program, &config, &requests);
    }
    if args.trace.is_some() {
        node.record_timeline();
    }
    let mut commits: Vec<(usize, Commit)> = Vec::new();
    let mut instructions = 0;
    let mut client = Client::new(CLIENT, NODE, args.link);
    let record_from = args.warm_up;
    let played = client.play(&mut node, &requests, args.patience, |core, event| {
        if let Event::Commit(commit) = event {
            instructions += 1;
            if args.trace.is_some() && commit.cycle >= record_from && commits.len() < trace::COMMITS_MAX {
                commits.push((core, commit));
            }
        }
    });
    let mut problems = Vec::new();
    let answers = match played {
        Ok(answers) => answers,
        Err(event) => {
            problems.push(trap_text(&event, &program, node.cycle()));
            vec![None; requests.len()]
        }
    };
    let times: Vec<u64> = requests
        .iter()
        .zip(&answers)
        .filter_map(|(request, answer)| Some(answer.as_ref()?.received - request.sent))
        .collect();
    problems.extend(problems_of(&mut node, &program, &requests, requests.len() - times.len(), config.cores));
    if let Some(path) = &args.trace {
        let recording = Recording { stamps: node.take_timeline(), commits, start: args.warm_up };
        trace::write(path, &recording, &program)?;
    }
    let mistakes = (0..config.cores).flat_map(|core| mistakes::reports(core, &node.misuse(core), &program));
    let mistakes = mistakes.collect();
    let report = Report { mistakes, ..report(&node, &requests, &times, instructions, problems) };
    print(args, &report, &report.played, &report.end)?;
    Ok(report.end.exit_code())
}

fn program_of(args: &Args) -> Result<Program> {
    let file = fs::read(&args.program).with_context(|| format!("cannot read {}", args.program.display()))?;
    Program::parse(&file).with_context(|| format!("{} cannot run here", args.program.display()))
}

/// The usual memory, or more if the stacks of more cores do not fit into it.
fn memory(cores: u16) -> MachineConfig {
    /// As in `riscv/nanopu.ld`.
    const STACK_BYTES: usize = 64 << 10;
    let usual = MachineConfig::default();
    let needed = usize::from(cores) * STACK_BYTES + (usual.memory_bytes >> 1);
    MachineConfig { memory_bytes: usual.memory_bytes.max(needed), ..usual }
}

/// The messages that the program gets, the first one when it has started.
fn requests_of(args: &Args) -> Result<Vec<Request>> {
    let mut requests = match &args.requests {
        Some(path) => requests::read(path, args.beyond.bytes_max())?,
        None => requests::alike(args.count, args.bytes, args.context, args.interval),
    };
    if let Some(start) = requests.first().map(|request| request.sent) {
        requests.iter_mut().for_each(|request| request.sent = request.sent - start + args.warm_up);
    }
    Ok(requests)
}

/// A core with a DMA NIC is a single one, without queues or registers to select, trace or debug.
fn refuse_with_dma(args: &Args) -> Result<()> {
    let flags = [
        ("--cores", args.cores != 1),
        (args.beyond.first_set().unwrap_or_default(), args.beyond.first_set().is_some()),
        ("--trace", args.trace.is_some()),
        ("--gdb", args.gdb.is_some()),
        ("--transport", args.transport != TransportKind::default()),
        ("--shared-cache", args.shared_cache),
    ];
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(usage(format!("{flag} is for --nic nanopu"))),
        None => Ok(()),
    }
}

/// Leaves the program to a debugger.
fn debug(
    address: &str,
    args: &Args,
    program: &Program,
    config: &NodeConfig,
    requests: &[Request],
) -> Result<ExitCode> {
    let full = if address.starts_with(':') { format!("127.0.0.1{address}") } else { address.to_owned() };
    let listener = TcpListener::bind(&full).map_err(|error| usage(format!("--gdb {address}: {error}")))?;
    let at = listener.local_addr().with_context(|| format!("--gdb {address}"))?;
    let mut console = Console::new();
    console.line(format!(
        "waiting for a debugger: gdb-multiarch {} -ex 'target remote {at}'",
        args.program.display()
    ))?;
    console.finish()?;
    gdb::serve(&listener, program, config, &mut Client::new(CLIENT, NODE, args.link), requests)
}

fn report(
    node: &Node<AnyTransport>,
    requests: &[Request],
    times: &[u64],
    instructions: u64,
    problems: Vec<String>,
) -> Report {
    let ReceiveCounters { packets, messages, oversized, duplicates, without_buffer, unknown_context, .. } =
        node.nic().received();
    let SendCounters { packets: sent, control, messages: sent_messages, repeated, timeouts, .. } =
        node.nic().sent();
    let count = |mistake| (0..node.cores()).map(|core| node.misuse(core).count(mistake)).sum();
    Report {
        played: Played::new(requests.len(), times, node.cycle(), instructions),
        received: Received { packets, messages, oversized, duplicates, without_buffer, unknown_context },
        sent: Sent { packets: sent, control, messages: sent_messages, repeated, timeouts },
        empty_reads: count(Mistake::EmptyRead) + count(Mistake::ReadWithoutContext),
        words_for_unknown_contexts: count(Mistake::WordForUnknownContext),
        mistakes: Vec::new(),
        end: End::new(node.platform(), problems),
    }
}
