//! `highwire nanopu run`: one node, one program, messages, and what became of them.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::nic::{Nic, ReceiveCounters, SendCounters};
use highwire_nanopu::{Commit, Event, Mistake, Node, NodeConfig, NodeEvent, SharedCacheConfig};
use highwire_riscv::{MachineConfig, Platform, Program};
use serde::Serialize;

use super::dma;
use super::gdb;
use super::mistakes;
use super::nic;
use super::trace::{self, Recording};
use super::transport::{AnyTransport, TransportKind};
use super::{CLIENT, CYCLES_PER_NANOSECOND, NODE, requests};
use crate::console::{Console, Tone};
use crate::failure::usage;

/// Options of `highwire nanopu run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A program is a RISC-V ELF file; those of riscv/ are built with `make -C riscv`.

A file of requests is CSV with a line of column names: sent (a cycle), context, and words (numbers separated by spaces).

Exit status: 1 when a message stays unanswered, or the program traps or exits with a code.

Examples:
  highwire nanopu run riscv/build/loopback.elf
  highwire nanopu run riscv/build/loopback.elf --bytes 1024 --trace trace.html
  highwire nanopu run riscv/build/service.elf --requests requests.csv --json
  highwire nanopu run riscv/build/loopback.elf --transport homa
  highwire nanopu run riscv/build/loopback_dma.elf --nic dma
  highwire nanopu run riscv/build/relay.elf --bytes 1024 --cut-through
  highwire nanopu run riscv/build/relay.elf --bytes 64000 --message-bytes-max 65535 --interval 40000
  highwire nanopu run riscv/build/service4.elf --cores 4 --gdb :3333
    and in another terminal: gdb-multiarch riscv/build/service4.elf -ex 'target remote :3333'")]
pub(crate) struct Args {
    /// The program.
    pub(super) program: PathBuf,
    /// What the core has: the network in its registers, or a NIC that moves frames between the wire and memory, for programs whose
    /// names end in _dma.
    #[arg(long, default_value = "nanopu")]
    nic: Attachment,
    /// How many cores run it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: u16,
    /// Let reads of x30 wait for a word where the program asks for it (nanopu_block_reads).
    #[arg(long)]
    blocking_reads: bool,
    /// Give each thread a bank of registers, so that the scheduler switches without a handler (nanopu_run_threads).
    #[arg(long)]
    context_banks: bool,
    #[command(flatten)]
    beyond: nic::NicArgs,
    /// What the NIC speaks: ndp or homa.
    #[arg(long, value_enum, default_value_t, conflicts_with = "gdb")]
    transport: TransportKind,
    /// Put the prototype's second-level cache between the cores and memory: 512 KiB, shared.
    #[arg(long)]
    shared_cache: bool,
    /// A file of requests, instead of --count alike.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["count", "bytes", "context", "interval"])]
    requests: Option<PathBuf>,
    /// How many messages to send.
    #[arg(long, default_value_t = 16)]
    count: u32,
    /// How long each is, in bytes.
    #[arg(long, default_value_t = 16)]
    bytes: usize,
    /// The context that they are for.
    #[arg(long, default_value_t = 0)]
    context: u16,
    /// Cycles between two.
    #[arg(long, default_value_t = 2000)]
    interval: u64,
    /// Cycles that a word takes over the link, each way.
    #[arg(long, default_value_t = 140)]
    pub(super) link: u64,
    /// Cycles before the first message, for the program to start.
    #[arg(long, default_value_t = 10_000)]
    pub(super) warm_up: u64,
    /// Give up when nothing has been answered for so many cycles after the last message.
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) patience: u64,
    /// Write what moved on which cycle: a page to look at (.html), or a trace for Chrome and Perfetto (.json).
    #[arg(long, value_name = "OUT")]
    trace: Option<PathBuf>,
    /// Wait for a debugger at this address, :PORT for one on this machine, and let it run the program.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["trace", "json", "patience"])]
    gdb: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How a core is attached to the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Attachment {
    /// The network in the registers.
    Nanopu,
    /// A DMA NIC.
    Dma,
}

/// What happened, as programs read it.
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

/// How it went, whatever the network.
#[derive(Debug, Serialize)]
pub(super) struct Played {
    pub(super) requests: usize,
    pub(super) answered: usize,
    pub(super) cycles: u64,
    pub(super) instructions: u64,
    response_cycles: Option<Spread>,
    response_ns: Option<Spread>,
}

/// What the program left behind.
#[derive(Debug, Serialize)]
pub(super) struct End {
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    console: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

impl Played {
    /// `times` are the responses of the answered ones, in cycles.
    pub(super) fn new(requests: usize, times: &[u64], cycles: u64, instructions: u64) -> Played {
        let (response_cycles, response_ns) = (spread(times, 1.0), spread(times, CYCLES_PER_NANOSECOND));
        Played { requests, answered: times.len(), cycles, instructions, response_cycles, response_ns }
    }
}

impl End {
    pub(super) fn new(platform: &Platform, problems: Vec<String>) -> End {
        let console = String::from_utf8_lossy(platform.console()).into_owned();
        End { exit_code: platform.exit_code(), console, problems }
    }

    /// The command's own exit code.
    pub(super) fn exit_code(&self) -> ExitCode {
        let is_good = self.problems.is_empty() && self.exit_code.unwrap_or(0) == 0;
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[derive(Debug, Serialize)]
struct Spread {
    minimum: f64,
    median: f64,
    p99: f64,
    maximum: f64,
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
    let bytes_max = args.beyond.bytes_max();
    if args.bytes > bytes_max {
        return Err(usage(format!(
            "--bytes {}: a message has at most {bytes_max} (--message-bytes-max)",
            args.bytes
        )));
    }
    let file = fs::read(&args.program).with_context(|| format!("cannot read {}", args.program.display()))?;
    let program =
        Program::parse(&file).with_context(|| format!("{} cannot run here", args.program.display()))?;
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

/// The usual memory, and more where more cores have stacks in it than fit there.
fn memory(cores: u16) -> MachineConfig {
    /// As `riscv/nanopu.ld` has it.
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

/// A core with a DMA NIC is one, and there are neither queues nor registers to select, trace or debug.
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

fn spread(times: &[u64], cycles_per_unit: f64) -> Option<Spread> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).map(|&cycles| cycles as f64 / cycles_per_unit)
    };
    Some(Spread { minimum: at(0.0)?, median: at(0.5)?, p99: at(0.99)?, maximum: at(1.0)? })
}

/// Where an address lies, as people name it.
pub(super) fn place(program: &Program, pc: u64) -> String {
    match program.symbol_at(pc) {
        Some(symbol) => format!("{pc:#x} in {}", symbol.name),
        None => format!("{pc:#x}"),
    }
}

pub(super) fn trap_text(event: &NodeEvent, program: &Program, cycle: u64) -> String {
    match event {
        NodeEvent::Trapped { core, pc, trap } => {
            format!("core {core} trapped at {}, cycle {cycle}: {trap}", place(program, *pc))
        }
        NodeEvent::Sent { .. } => "a packet left".to_string(),
    }
}

/// How long a core is watched to see whether it goes anywhere.
const WATCH_CYCLES: u64 = 4000;

/// Where each core is, and whether it does anything but repeat a few instructions.
fn whereabouts(node: &mut Node<AnyTransport>, program: &Program, cores: usize) -> Vec<String> {
    let start = node.cycle();
    let mut seen = vec![BTreeSet::new(); cores];
    while node.cycle() < start + WATCH_CYCLES {
        node.tick(|core, event| {
            if let Event::Commit(commit) = event {
                seen[core].insert(commit.retired.pc);
            }
        });
    }
    let say = |(core, seen): (usize, BTreeSet<u64>)| match (seen.first(), seen.last()) {
        (Some(&first), Some(&last)) if seen.len() <= 64 => format!(
            "core {core} spins: since cycle {start} at the latest between {} and {last:#x}",
            place(program, first)
        ),
        (None, _) => match node.waiting_since(core) {
            Some(since) => format!(
                "core {core} waits for a word: it reads x30 at {} since cycle {since}, context {}",
                place(program, node.core(core).hart.pc),
                node.current_context(core)
            ),
            None => format!(
                "core {core} does nothing: at {} since cycle {start} at the latest",
                place(program, node.core(core).hart.pc)
            ),
        },
        _ => format!("core {core} is at {}, cycle {}", place(program, node.core(core).hart.pc), node.cycle()),
    };
    seen.into_iter().enumerate().map(say).collect()
}

fn problems_of(
    node: &mut Node<AnyTransport>,
    program: &Program,
    requests: &[Request],
    unanswered: usize,
    cores: usize,
) -> Vec<String> {
    let mut problems = Vec::new();
    let received = node.nic().received();
    if unanswered > 0 {
        problems.push(format!("{unanswered} messages have no answer"));
        problems.extend(whereabouts(node, program, cores));
    }
    if received.unknown_context > 0 {
        let first = node
            .nic()
            .first_stranger()
            .map_or(String::new(), |(cycle, context)| format!("; first in cycle {cycle}, context {context}"));
        problems.push(format!(
            "{} packets were for a context that no thread has made known (nanopu_add_context){first}",
            received.unknown_context
        ));
    }
    if received.oversized > 0 {
        problems.push(format!(
            "{} packets were of messages longer than {} bytes (--message-bytes-max)",
            received.oversized,
            node.nic().message_bytes_max()
        ));
    }
    let deadlocked = node.deadlocked();
    if !deadlocked.is_empty() {
        let cores: Vec<_> = deadlocked.iter().map(usize::to_string).collect();
        problems.push(format!(
            "deadlock: each of cores {} waits for a send buffer, and all of those are held by messages that they have half written, \
             the rest of which stands behind what waits (--send-by-context)",
            cores.join(", ")
        ));
    }
    if received.without_buffer > 0 {
        problems.push(format!("{} packets found no free message buffer", received.without_buffer));
    }
    let may_be_empty = requests.iter().any(|request| request.payload.is_empty());
    for core in 0..cores {
        problems.extend(mistakes::sentences(core, &node.misuse(core), program, may_be_empty));
    }
    problems
}

/// Prints `report`, of which the rest are parts, as programs or people read it.
pub(super) fn print(args: &Args, report: &impl Serialize, played: &Played, end: &End) -> Result<()> {
    let mut console = Console::new();
    if args.json {
        console.json(report)?;
        return console.finish();
    }
    console.line(format!(
        "{} messages, {} answered; {} cycles, {} instructions",
        played.requests, played.answered, played.cycles, played.instructions
    ))?;
    for (what, spread) in [("cycles", &played.response_cycles), ("ns at 3.2 GHz", &played.response_ns)] {
        let Some(Spread { minimum, median, p99, maximum }) = spread else { continue };
        console.line(format!(
            "response, {what:<14}  min {minimum:>8.1}   median {median:>8.1}   p99 {p99:>8.1}   max {maximum:>8.1}"
        ))?;
    }
    let faint = format!(
        "from the generator's first word out to the answer's first word back, {} cycles of link each way (simulated)",
        args.link
    );
    console.line(console.paint(Tone::Faint, &faint))?;
    if !end.console.is_empty() {
        console.line(&end.console)?;
    }
    if let Some(code) = end.exit_code {
        console.line(format!("the program exited with {code}"))?;
    }
    if let Some(path) = &args.trace {
        console.line(format!("trace: {}", path.display()))?;
    }
    for problem in &end.problems {
        console.line(console.paint(Tone::Bad, problem))?;
    }
    console.finish()
}
