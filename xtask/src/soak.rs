//! `cargo xtask soak`: one thing done very often, and what that leaves behind: mappings, descriptors, files, bytes.
//!
//! A soak prints what it counts before and after, and ends with status 1 if anything has grown. Each has a short form among
//! the tests.

mod bells;
mod java_connects;
mod java_faults;
mod registrations;
mod rsockets;

use std::process::ExitCode;

use anyhow::Result;

/// Options of `cargo xtask soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    soak: Soak,
}

#[derive(Debug, clap::Subcommand)]
enum Soak {
    /// Targets whose threads call nothing while a peer writes and sends: no bell is lost.
    Bells(bells::Args),
    /// JVMs' clients that connect to a server over queue pairs, and disconnect.
    JavaConnects(java_connects::Args),
    /// JVMs' clients that come and go, are interrupted and killed, under an engine that pauses and is killed.
    JavaFaults(java_faults::Args),
    /// Register and deregister memory at changing places, with and without threads: mappings, descriptors, shared memory.
    Registrations(registrations::Args),
    /// Random threads, operations, signals and stopped processes on rsockets.
    Rsockets(rsockets::Args),
}

/// Runs a soak.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.soak {
        Soak::Bells(args) => bells::run(args),
        Soak::JavaConnects(args) => java_connects::run(args),
        Soak::JavaFaults(args) => java_faults::run(args),
        Soak::Registrations(args) => registrations::run(args),
        Soak::Rsockets(args) => rsockets::run(args),
    }
}
