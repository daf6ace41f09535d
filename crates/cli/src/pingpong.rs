//! `highwire pingpong`: the first thing to try. Messages bounce between two queue pairs, and every byte is checked.

use std::process::ExitCode;

use anyhow::Result;

use crate::perf::{EndArgs, Length, Metric, Operation, Plan, Service};
use crate::values;

const SIZE_BYTES: u32 = 4096;
const UD_SIZE_BYTES: u32 = 1024;
const ITERATIONS: u64 = 1000;
/// Messages wait for each other, so that a short queue is enough.
const DEPTH: u32 = 16;

/// Options of `highwire pingpong`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  highwire pingpong                                 two processes on this machine
  highwire pingpong --service ud --size 512
  highwire pingpong --loss 5% --seed 7              the same misfortune every time
  highwire pingpong --listen                        on one machine, and on another:
  highwire pingpong 192.0.2.7")]
pub(crate) struct Args {
    #[command(flatten)]
    ends: EndArgs,
    /// Message size: 32, 64K, 1M [default: 4096, or 1024 with UD]
    #[arg(short, long, value_parser = values::size_bytes, value_name = "BYTES")]
    size: Option<u32>,
    /// Messages to bounce.
    #[arg(short = 'n', long, default_value_t = ITERATIONS, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
}

/// Runs one end, or both.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let ends = &args.ends;
    let faults = ends.faults()?;
    let default_size = if ends.service == Service::Ud { UD_SIZE_BYTES } else { SIZE_BYTES };
    let plan = Plan {
        operation: Operation::Send,
        metric: Metric::PingPong,
        size_bytes: args.size.unwrap_or(default_size),
        length: Length::Iterations(args.iters),
        depth: DEPTH,
        chain: 1,
        until_completion: false,
        service: ends.service,
        recovery: ends.recovery,
        link: ends.link(&faults),
        mtu_bytes: ends.mtu_bytes(),
        faults,
    };
    ends.run(&plan, false)
}
