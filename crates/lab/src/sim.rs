//! `highwire sim`: experiments on a simulated network. One file per command.

mod bench;
mod cores;
mod flows;
mod kept;
mod merge;
mod output;
mod plans;
mod play;
mod run;
mod scale;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Options of `highwire sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play an experiment, or several, and compare with the paper.
    Run(run::Args),
    /// Play one scenario, or one run of an experiment, and tell what became of each flow.
    Play(play::Args),
    /// List the experiments that come with the program.
    List(show::ListArgs),
    /// Check a plan: line, key, what would be right.
    Check(show::PlanArgs),
    /// Tell in words what a plan plays.
    Explain(show::PlanArgs),
    /// Join the parts that `run --shard` wrote.
    Merge(merge::Args),
    /// READs and RPCs per second while a simulated cluster grows, over connections and over datagrams.
    Scale(scale::Args),
    /// Waiting threads on many cores, under every strategy of waiting.
    Cores(cores::Args),
    /// Measure the simulator: packet-hops per second of CPU.
    Bench(bench::Args),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Play(args) => play::run(args),
        Command::List(args) => show::list(args),
        Command::Check(args) => show::check(args),
        Command::Explain(args) => show::explain(args),
        Command::Merge(args) => merge::run(args),
        Command::Scale(args) => scale::run(args),
        Command::Cores(args) => cores::run(args),
        Command::Bench(args) => bench::run(args),
    }
}
