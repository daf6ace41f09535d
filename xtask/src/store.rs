//! The store as people run it: clusters under real faults, etcd for the register, and Redis's own clients at their doors.

use std::process::ExitCode;

use anyhow::Result;

use crate::packages;
use crate::shell::{Line, Log};
use crate::test::Tally;

mod redis_suite;

/// Options of `cargo xtask store`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask store redis-suite                   Redis's own tests against one node, then against three
  cargo xtask store redis-suite --only expire scan
  cargo xtask store redis-suite --at 127.0.0.1:6379
                                                  the same tests against a server that runs, such as a Redis")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Run Redis's own test suite against the Redis endpoints of the store.
    RedisSuite {
        /// Run it against this server, and start none.
        #[arg(long)]
        at: Option<String>,
        /// Only these files of the suite.
        #[arg(long, num_args = 1..)]
        only: Vec<String>,
    },
}

/// Runs what takes too long, or downloads too much, for the step of `cargo xtask test`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::RedisSuite { at, only } => redis_suite::run(at.as_deref(), only),
    }
}

/// Redis's clients, and its server as the oracle of replies; etcd; and the program that makes networks.
pub(crate) const PACKAGES: &[&str] =
    &["redis-tools", "redis-server", "python3-redis", "etcd-server", "iproute2"];

/// The crate's tests, which print a reason if a program is missing.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    if let Err(missing) = packages::ensure(PACKAGES, log)? {
        log.note(&missing.0)?;
    }
    let line = Line::cargo("test --package highwire-store --no-fail-fast -- --show-output");
    let success = line.run_logged(log)?;
    Ok(Tally::from_cargo_test(&log.text()?, success))
}
