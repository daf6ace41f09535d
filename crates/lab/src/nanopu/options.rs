//! The options of `highwire nanopu run`.

use std::path::PathBuf;

use highwire_nanopu::nic::TransportKind;

use super::nic::NicArgs;
use super::{limits, transport};

/// Options of `highwire nanopu run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A program is a RISC-V ELF file; those of riscv/ are built with `make -C riscv`.

A file of requests is CSV with a line of column names: sent (a cycle), context, and words (numbers separated by spaces). In place of words
there may be a column service_time, as in the prototype's recordings.

Exit status: 1 when a message stays unanswered, or the program traps or exits with a code.

Examples:
  highwire nanopu run riscv/build/loopback.elf
  highwire nanopu run riscv/build/loopback.elf --bytes 1024 --trace trace.html
  highwire nanopu run riscv/build/service.elf --requests requests.csv --json
  highwire nanopu run riscv/build/mica.elf --count 100 --stalls
  highwire nanopu run riscv/build/service_timer.elf --prototype --requests recorded.csv --times here.csv
  highwire nanopu run riscv/build/loopback.elf --transport homa
  highwire nanopu run riscv/build/loopback_dma.elf --nic dma
  highwire nanopu run --bare riscv/benchmarks/build/median.elf
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
    pub(super) nic: Attachment,
    /// Run an ordinary program on the core alone, without a network: cycles, cycles per instruction, lines that the caches fetched.
    /// It ends by HTIF, or by a store to 0x10001000.
    #[arg(long, conflicts_with_all = ["nic", "cores", "blocking_reads", "context_banks", "transport", "shared_cache", "requests",
        "count", "bytes", "context", "interval", "link", "warm_up", "trace"])]
    pub(super) bare: bool,
    /// With --bare, stop after so many cycles.
    #[arg(long, value_name = "CYCLES", default_value_t = 1_000_000_000, requires = "bare", value_parser = limits::span())]
    pub(super) cycles_max: u64,
    /// Memory from 0x80000000 on, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = limits::whole::<u32>(1..=4096))]
    pub(super) memory: u32,
    /// How many cores run it.
    #[arg(long, default_value_t = 1, value_parser = limits::whole::<u16>(1..=256))]
    pub(super) cores: u16,
    /// Let reads of x30 wait for a word where the program asks for it (nanopu_block_reads).
    #[arg(long)]
    pub(super) blocking_reads: bool,
    /// Give each thread a bank of registers, so that the scheduler switches without a handler (nanopu_run_threads).
    #[arg(long)]
    pub(super) context_banks: bool,
    #[command(flatten)]
    pub(super) beyond: NicArgs,
    /// What the NIC speaks: ndp or homa.
    #[arg(long, value_name = "NAME", default_value = "ndp", value_parser = transport::named, conflicts_with = "gdb")]
    pub(super) transport: &'static TransportKind,
    /// Put the prototype's second-level cache between the cores and memory: 512 KiB, shared.
    #[arg(long)]
    pub(super) shared_cache: bool,
    /// A file of requests, instead of --count alike.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["count", "bytes", "context", "interval"])]
    pub(super) requests: Option<PathBuf>,
    /// Be the prototype as it was measured: with its second-level cache, its message numbers of seven bits, and a load generator in a switch
    /// that works in rounds of --link cycles, numbers messages modulo 127 and repeats none. Times that a file of requests has, in a column
    /// resp_time, are compared with those here.
    #[arg(long, conflicts_with_all = ["bare", "trace", "gdb", "commits", "transport", "cut_through", "message_bytes_max"])]
    pub(super) prototype: bool,
    /// How many messages to send.
    #[arg(long, default_value_t = 16, value_parser = limits::messages())]
    pub(super) count: u32,
    /// How long each is, in bytes.
    #[arg(long, default_value_t = 16, value_parser = limits::whole::<usize>(0..=65_535))]
    pub(super) bytes: usize,
    /// The context that they are for.
    #[arg(long, default_value_t = 0, value_parser = limits::whole::<u16>(0..=65_535))]
    pub(super) context: u16,
    /// Cycles between two.
    #[arg(long, default_value_t = 2000, value_parser = limits::cycles(0))]
    pub(super) interval: u64,
    /// Cycles that a word takes over the link, each way.
    #[arg(long, default_value_t = 140, value_parser = limits::cycles(0))]
    pub(super) link: u64,
    /// Cycles before the first message, for the program to start.
    #[arg(long, default_value_t = 10_000, value_parser = limits::cycles(0))]
    pub(super) warm_up: u64,
    /// Give up when nothing has been answered for so many cycles after the last message.
    #[arg(long, default_value_t = 1_000_000, value_parser = limits::span())]
    pub(super) patience: u64,
    /// Write what moved on which cycle: a page to look at (.html), or a trace for Chrome and Perfetto (.json).
    #[arg(long, value_name = "OUT")]
    pub(super) trace: Option<PathBuf>,
    /// Show each message's answer, and its time.
    #[arg(long, conflicts_with_all = ["bare", "gdb"])]
    pub(super) answers: bool,
    /// Write a line for each message: sent, context, response_cycles (empty without an answer), and the words of the answer.
    #[arg(long, value_name = "OUT.csv", conflicts_with_all = ["bare", "gdb"])]
    pub(super) times: Option<PathBuf>,
    /// Write a line for each instruction that commits: core, cycle, address, bits, text, and what it wrote.
    #[arg(long, value_name = "OUT", conflicts_with = "gdb")]
    pub(super) commits: Option<PathBuf>,
    /// Show how many cycles each core stalled, by cause. The run takes longer, since no cycle is repeated from memory.
    #[arg(long, conflicts_with = "gdb")]
    pub(super) stalls: bool,
    /// With --bare, write the words from the program's symbol begin_signature up to end_signature once it has ended, one to a line, as the
    /// official architectural tests want them.
    #[arg(long, value_name = "OUT", requires = "bare", conflicts_with = "gdb")]
    pub(super) signature: Option<PathBuf>,
    /// Wait for a debugger at this address, :PORT for one on this machine, and let it run the program.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["trace", "json", "patience"])]
    pub(super) gdb: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// How a core is attached to the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Attachment {
    /// The network in the registers.
    Nanopu,
    /// A DMA NIC.
    Dma,
}
