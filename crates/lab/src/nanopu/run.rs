//! `highwire nanopu run`: one node, one program, messages, and their answers.

use std::fs;
use std::net::TcpListener;
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_nanopu::client::{Answer, Client, Play, Request};
use highwire_nanopu::nic::{Nic, NicConfig, ReceiveCounters, SendCounters, TransportKind};
use highwire_nanopu::{Commit, CoreConfig, Event, Mistake, Node, NodeConfig, SharedCacheConfig};
use highwire_riscv::{MachineConfig, Program};
use serde::Serialize;

use super::answers::{self, Answered, Compared};
use super::commits::CommitLog;
use super::options::{Args, Attachment};
use super::outcome::{End, Played, print};
use super::place::trap_text;
use super::problems::problems_of;
use super::requests::{self, Asked};
use super::trace::{self, Recording};
use super::transport::AnyTransport;
use super::{CLIENT, NODE, bare, dma, gdb, mistakes, stalls};
use crate::console::Console;
use crate::failure::usage;

/// The report for programs.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    played: Played,
    received: Received,
    sent: Sent,
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<Vec<Answered>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compared: Vec<Compared>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stalls: Vec<stalls::Account>,
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
    number_taken: u64,
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
        let program = program_of(args)?;
        return match &args.gdb {
            Some(address) => debug_bare(address, args, &program),
            None => bare::run(args, &program, memory(args)),
        };
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
        return dma::run(args, &program, &requests_of(args)?.requests);
    }
    let config = NodeConfig {
        cores: args.cores.into(),
        core: core(args),
        blocking_reads: args.blocking_reads,
        context_banks: args.context_banks,
        shared_cache: args.shared_cache.then(SharedCacheConfig::default),
        memory: memory(args),
        nic: args.beyond.config(),
        ..NodeConfig::default()
    };
    let config = if args.prototype { as_prototype(config) } else { config };
    let nic = Nic::new(&config.nic, config.cores, (args.transport.make)(&config.nic));
    let mut node = Node::with_nic(&program, &config, nic).with_context(|| name_of(args))?;
    let Asked { requests, recorded } = requests_of(args)?;
    if let Some(address) = &args.gdb {
        return debug(address, args, &program, &config, &requests);
    }
    if args.trace.is_some() {
        node.record_timeline();
        (0..config.cores).for_each(|core| node.core_mut(core).record_stalls(args.warm_up, trace::STALLS_MAX));
    }
    let mut commits: Vec<(usize, Commit)> = Vec::new();
    let mut instructions = 0;
    let mut log = CommitLog::new(args.commits.as_deref())?;
    let mut client = match args.prototype {
        true => Client::in_rounds(CLIENT, NODE, args.link.max(1)),
        false => Client::new(CLIENT, NODE, args.link),
    };
    let record_from = args.warm_up;
    let played = match args.prototype {
        true => client.play_in_rounds(&mut node, &requests, args.patience),
        false => client.play(&mut node, &requests, args.patience, |core, event| {
            if let Event::Commit(commit) = event {
                instructions += 1;
                log.note(core, &commit);
                if args.trace.is_some() && commit.cycle >= record_from && commits.len() < trace::COMMITS_MAX {
                    commits.push((core, commit));
                }
            }
        }),
    };
    log.finish()?;
    let mut problems = Vec::new();
    let answers = match played {
        Ok(answers) => answers,
        Err(event) => {
            problems.push(trap_text(&event, &program));
            client.take_answers()
        }
    };
    if args.prototype {
        // Whole cycles are passed over, and nobody sees each commit.
        instructions = (0..config.cores).map(|core| node.core(core).hart.csrs.minstret).sum();
    }
    let times: Vec<u64> = requests
        .iter()
        .zip(&answers)
        .filter_map(|(request, answer)| Some(answer.as_ref()?.received - request.sent))
        .collect();
    problems.extend(problems_of(&mut node, &program, &requests, requests.len() - times.len(), config.cores));
    if let Some(path) = &args.trace {
        let message = |(request, answer): (&Request, &Option<Answer>)| {
            let end = answer.as_ref().map(|answer| answer.received.saturating_sub(args.link));
            (request.sent + args.link, end, request.context)
        };
        let messages = requests.iter().zip(&answers).map(message).collect();
        let start = args.warm_up;
        let stamps = node.take_timeline();
        let stalls = (0..config.cores).filter_map(|core| Some((core, node.core(core).stalls()?.runs())));
        let stalls = stalls.flat_map(|(core, runs)| runs.iter().map(move |&run| (core, run))).collect();
        let recording = Recording { stamps, commits, stalls, start, messages };
        trace::write(path, &recording, &program)?;
    }
    let mistakes = (0..config.cores).flat_map(|core| mistakes::reports(core, &node.misuse(core), &program));
    let mistakes = mistakes.collect();
    let answered = answers::of(&requests, &answers);
    if let Some(path) = &args.times {
        answers::write(path, &answered)?;
    }
    let compared =
        recorded.filter(|_| args.prototype).map_or(Vec::new(), |there| answers::compare(&answered, &there));
    let answers = args.answers.then_some(answered);
    let cores = (0..config.cores).map(|core| node.core(core));
    let stalls = if args.stalls { stalls::of(cores) } else { Vec::new() };
    let report = Report {
        mistakes,
        answers,
        compared,
        stalls,
        ..report(&node, &requests, &times, instructions, problems)
    };
    let more = report.answers.iter().flat_map(|answers| answers::lines(answers));
    let more = more.chain(report.compared.iter().map(Compared::line));
    let more: Vec<String> = more.chain(stalls::lines(&report.stalls)).collect();
    print(args, &report, &report.played, &more, &report.end)?;
    Ok(report.end.exit_code())
}

/// The prototype as it was measured, with what the options say.
fn as_prototype(config: NodeConfig) -> NodeConfig {
    let prototype = NodeConfig::prototype();
    let nic = NicConfig { numbers: prototype.nic.numbers, ..config.nic };
    NodeConfig { shared_cache: prototype.shared_cache, nic, ..config }
}

fn program_of(args: &Args) -> Result<Program> {
    if args.program.extension().is_some_and(|kind| kind == "toml") {
        let file = args.program.display();
        return Err(usage(format!(
            "{file} is no program: highwire nanopu cluster {file} runs several nodes from a file"
        )));
    }
    let file = fs::read(&args.program).with_context(|| format!("cannot read {}", args.program.display()))?;
    Program::parse(&file).with_context(|| format!("{} cannot run here", args.program.display()))
}

/// The program as it does not fit into its memory.
pub(super) fn name_of(args: &Args) -> String {
    format!("{} with --memory {}", args.program.display(), args.memory)
}

/// The memory that was asked for, or more if that is the usual one and the stacks of more cores do not fit into it.
pub(super) fn memory(args: &Args) -> MachineConfig {
    /// As in `riscv/nanopu.ld`.
    const STACK_BYTES: usize = 64 << 10;
    let usual = MachineConfig::default();
    let asked = (args.memory as usize) << 20;
    let needed = usize::from(args.cores) * STACK_BYTES + (usual.memory_bytes >> 1);
    let memory_bytes = if asked == usual.memory_bytes { asked.max(needed) } else { asked };
    MachineConfig { memory_bytes, ..usual }
}

/// A core that accounts for its cycles if somebody will look at them.
pub(super) fn core(args: &Args) -> CoreConfig {
    CoreConfig { tells_stalls: args.stalls || args.trace.is_some(), ..CoreConfig::default() }
}

/// The messages that the program gets, the first one when it has started.
fn requests_of(args: &Args) -> Result<Asked> {
    let mut asked = match &args.requests {
        Some(path) => requests::read(path, args.beyond.bytes_max())?,
        None => Asked {
            requests: requests::alike(args.count, args.bytes, args.context, args.interval)?,
            recorded: None,
        },
    };
    let requests = &mut asked.requests;
    if let Some(start) = requests.first().map(|request| request.sent) {
        requests.iter_mut().for_each(|request| request.sent = request.sent - start + args.warm_up);
    }
    Ok(asked)
}

/// A core with a DMA NIC is a single one, without queues or registers to select, trace or debug.
fn refuse_with_dma(args: &Args) -> Result<()> {
    let flags = [
        ("--cores", args.cores != 1),
        (args.beyond.first_set().unwrap_or_default(), args.beyond.first_set().is_some()),
        ("--trace", args.trace.is_some()),
        ("--gdb", args.gdb.is_some()),
        ("--transport", args.transport.name != TransportKind::NDP.name),
        ("--shared-cache", args.shared_cache),
        ("--prototype", args.prototype),
    ];
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(usage(format!("{flag} is for --nic nanopu"))),
        None => Ok(()),
    }
}

/// Leaves the program and its messages to a debugger.
fn debug(
    address: &str,
    args: &Args,
    program: &Program,
    config: &NodeConfig,
    requests: &[Request],
) -> Result<ExitCode> {
    let listener = debugger(address, args)?;
    let mut client = Client::new(CLIENT, NODE, args.link);
    let subject = gdb::Subject::node(program, config, Play::new(&mut client, requests));
    gdb::serve(&listener, program, subject.with_context(|| name_of(args))?)
}

/// Leaves a program on the core alone to a debugger.
fn debug_bare(address: &str, args: &Args, program: &Program) -> Result<ExitCode> {
    let subject = gdb::Subject::bare(program, memory(args));
    let subject = subject.with_context(|| name_of(args))?;
    gdb::serve(&debugger(address, args)?, program, subject)
}

/// Waits for nobody yet, but says where a debugger may come.
fn debugger(address: &str, args: &Args) -> Result<TcpListener> {
    let full = if address.starts_with(':') { format!("127.0.0.1{address}") } else { address.to_owned() };
    let listener = TcpListener::bind(&full).map_err(|error| usage(format!("--gdb {address}: {error}")))?;
    let at = listener.local_addr().with_context(|| format!("--gdb {address}"))?;
    let mut console = Console::new();
    console.line(format!(
        "waiting for a debugger: gdb-multiarch {} -ex 'target remote {at}'",
        args.program.display()
    ))?;
    console.finish()?;
    Ok(listener)
}

fn report(
    node: &Node<AnyTransport>,
    requests: &[Request],
    times: &[u64],
    instructions: u64,
    problems: Vec<String>,
) -> Report {
    let ReceiveCounters {
        packets,
        messages,
        oversized,
        duplicates,
        without_buffer,
        number_taken,
        unknown_context,
        ..
    } = node.nic().received();
    let SendCounters { packets: sent, control, messages: sent_messages, repeated, timeouts, .. } =
        node.nic().sent();
    let count = |mistake| (0..node.cores()).map(|core| node.misuse(core).count(mistake)).sum();
    Report {
        played: Played::new(requests.len(), times, node.cycle(), instructions),
        received: Received {
            packets,
            messages,
            oversized,
            duplicates,
            without_buffer,
            number_taken,
            unknown_context,
        },
        sent: Sent { packets: sent, control, messages: sent_messages, repeated, timeouts },
        empty_reads: count(Mistake::EmptyRead) + count(Mistake::ReadWithoutContext),
        words_for_unknown_contexts: count(Mistake::WordForUnknownContext),
        mistakes: Vec::new(),
        answers: None,
        compared: Vec::new(),
        stalls: Vec::new(),
        end: End::new(node.platform(), problems),
    }
}
