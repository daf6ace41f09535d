//! `highwire perf`: how fast this machine can be, and how near Highwire comes to that.
//!
//! The active end plans the test and sends the plan to the passive one over the [exchange](crate::exchange);
//! without a server, the passive end is a second process of this program, so that the numbers are always
//! those of two processes.

mod bandwidth;
mod echo;
mod endpoint;
mod ends;
mod floor;
mod host_end;
mod latency;
mod local;
mod options;
mod pin;
mod plan;
mod report;
mod session;
mod silence;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use ends::EndArgs;
pub(crate) use local::Local;
pub(crate) use plan::{Length, Link, Metric, Plan, Recovery, Service};

pub(crate) use report::Measured;
pub(crate) use session::both_ends;

use options::TestArgs;
pub(crate) use plan::Operation;

/// Options of `highwire perf`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire perf floor                                     the limits of this machine
  highwire perf write lat                                 and what Highwire makes of them
  highwire perf send bw --size 32 --depth 64 --service ud
  highwire perf write bw --recovery go-back-n --loss 1%   against --recovery irn
  highwire perf read lat --listen                         on one machine, and on another:
  highwire perf read lat 192.0.2.7")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The limits of this machine: raw UDP, a shared cache line, memory.
    Floor(floor::Args),
    /// SEND into the peer's posted receives.
    #[command(after_help = "Examples:
  highwire perf send lat
  highwire perf send bw --size 32 --depth 64 --chain 16 --service ud")]
    Send(TestArgs),
    /// RDMA WRITE into the peer's memory.
    #[command(after_help = "Examples:
  highwire perf write lat
  highwire perf write bw --recovery go-back-n --loss 1%")]
    Write(TestArgs),
    /// RDMA READ from the peer's memory.
    #[command(after_help = "Examples:
  highwire perf read lat --size 4K
  highwire perf read bw --link udp")]
    Read(TestArgs),
    /// Fetch-and-add on 8 bytes of the peer's memory.
    #[command(after_help = "Examples:
  highwire perf atomic lat
  highwire perf atomic bw --depth 16")]
    Atomic(TestArgs),
}

/// Runs one measurement.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Floor(floor) => floor::run(floor),
        What::Send(test) => options::run(Operation::Send, test),
        What::Write(test) => options::run(Operation::Write, test),
        What::Read(test) => options::run(Operation::Read, test),
        What::Atomic(test) => options::run(Operation::FetchAdd, test),
    }
}
