//! The `highwire` program: one file per command. Commands that measure or teach are `highwire-lab`'s, and are
//! handed to it.
//!
//! Exit status: 0 after success, 1 after failure, 2 after a wrong command line. A reader that goes away (`|
//! head`) is no error.

mod demo;
mod devices;
mod doctor;
mod env;
mod exchange;
mod explain;
mod fault;
mod pcap;
mod perf;
mod pingpong;
mod recorded;
mod replay;
mod report;
mod run;
mod serve;
mod stats;
mod store;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use highwire_program::{broker, console, failure, laboratory, manual, pages, progress, values};

#[global_allocator]
static ALLOCATOR: pages::HugePages = pages::HugePages;

/// RDMA on any Linux machine: no card, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(
    name = "highwire",
    version = highwire_program::VERSION,
    max_term_width = 100,
    subcommand_required = true,
    after_help = laboratory::listing(laboratory::COMMANDS)
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const COMPLETIONS_HELP: &str = "Examples:
  highwire completions bash > /etc/bash_completion.d/highwire
  highwire completions zsh > \"${fpath[1]}/_highwire\"
  highwire completions fish > ~/.config/fish/completions/highwire.fish";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program that was written for RDMA cards.
    Run(Box<run::Args>),
    /// Print the settings of `run` for a shell to evaluate.
    Env(Box<env::Args>),
    /// See it work within ten seconds: ping-pong under loss, a capture, a page.
    Demo(demo::Args),
    /// List the device that a program gets here, and those that run.
    Devices(devices::Args),
    /// Read a scenario, or change those that running programs play.
    Fault(fault::Args),
    /// Say what this machine allows, and what to change.
    Doctor(doctor::Args),
    /// Bounce messages between two queue pairs and check every byte.
    Pingpong(Box<pingpong::Args>),
    /// Measure latency and bandwidth, and the limits of this machine.
    Perf(Box<perf::Args>),
    /// Decode a capture and verify every ICRC.
    Pcap(pcap::Args),
    /// Show what a record of `run --record` has, as a timeline of each queue pair.
    Replay(replay::Args),
    /// Say what went wrong in a record of `run --record`, the first cause first.
    Explain(explain::Args),
    /// Show the counters of the devices that run now.
    Stats(stats::Args),
    /// Run a device for programs that call no native code, Java ones for example.
    Serve(serve::Args),
    /// Own an address that processes share.
    #[command(hide = true)]
    Broker(broker::Args),
    /// The transactional store.
    Store(Box<store::Args>),
    /// Print the completions of a shell.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(manual::Completions),
    /// Write the manual's pages into a folder.
    #[command(hide = true)]
    Man(manual::Man),
    /// Read a command line and do nothing with it: how the documentation's examples are checked.
    #[command(hide = true)]
    ParseOnly {
        #[arg(last = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = if laboratory::has(&words) {
        laboratory::become_laboratory(&words)
    } else {
        match Cli::try_parse() {
            Ok(cli) => carry_out(cli.command),
            // A newer laboratory may have commands that this program does not list.
            Err(error) if is_unknown(&error) && laboratory::laboratory().is_some() => {
                laboratory::become_laboratory(&words)
            }
            Err(error) => error.exit(),
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

fn carry_out(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Fault(args) => fault::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Pcap(args) => pcap::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Broker(args) => broker::run(&args),
        Command::Completions(args) => manual::complete(&mut Cli::command(), &args),
        Command::Man(args) => manual::write(Cli::command(), &args),
        Command::ParseOnly { words } => parse_only(&words),
    }
}

/// Whether the first word is no command, and not nearly one of this program's either.
fn is_unknown(error: &clap::Error) -> bool {
    let first = std::env::args().nth(1);
    let named = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
    error.kind() == ErrorKind::InvalidSubcommand
        && named == first
        && error.get(ContextKind::SuggestedSubcommand).is_none()
}

fn parse_only(words: &[String]) -> anyhow::Result<ExitCode> {
    let as_typed: Vec<OsString> = words.iter().map(OsString::from).collect();
    if laboratory::has(&as_typed) {
        let before = ["parse-only", "--"].map(OsString::from);
        return laboratory::become_laboratory(&[&before[..], &as_typed].concat());
    }
    failure::parse_only::<Cli>(words)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
