//! The `highwire` program: one file per command.
//!
//! Exit status: 0 after success, 1 after failure, 2 after a wrong command line. A reader that goes away (`|
//! head`) is no error.

mod bench;
mod broker;
mod churn;
mod console;
mod devices;
mod doctor;
mod env;
mod exchange;
mod failure;
mod nanopu;
mod pages;
mod pcap;
mod perf;
mod pingpong;
mod progress;
mod run;
mod serve;
mod sim;
mod stats;
mod store;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: pages::HugePages = pages::HugePages;

/// RDMA on any Linux machine: no card, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(name = "highwire", version, max_term_width = 100, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program that was written for RDMA cards.
    Run(Box<run::Args>),
    /// Print the settings of `run` for a shell to evaluate.
    Env(Box<env::Args>),
    /// List the device that a program gets here, and those that run.
    Devices(devices::Args),
    /// Say what this machine allows, and what to change.
    Doctor(doctor::Args),
    /// Bounce messages between two queue pairs and check every byte.
    Pingpong(Box<pingpong::Args>),
    /// Measure latency and bandwidth, and the limits of this machine.
    Perf(Box<perf::Args>),
    /// Measure parts of Highwire by themselves.
    Bench(bench::Args),
    /// Decode a capture and verify every ICRC.
    Pcap(pcap::Args),
    /// Show the counters of the devices that run now.
    Stats(stats::Args),
    /// Run a device for programs that call no native code, Java ones for example.
    Serve(serve::Args),
    /// Experiments on a simulated network, beside what the papers report.
    Sim(sim::Args),
    /// Own an address that processes share.
    #[command(hide = true)]
    Broker(broker::Args),
    /// Programs on the nanoPU, a simulated processor with the network in its registers.
    Nanopu(nanopu::Args),
    /// The transactional store: simulated clusters, checked.
    Store(store::Args),
    /// Let processes come to a shared address and leave it at random.
    #[command(hide = true)]
    Churn(churn::Args),
    /// Read a command line and do nothing with it: how the documentation's examples are checked.
    #[command(hide = true)]
    ParseOnly {
        #[arg(last = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Pcap(args) => pcap::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Broker(args) => broker::run(&args),
        Command::Nanopu(args) => nanopu::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Churn(args) => churn::run(&args),
        Command::ParseOnly { words } => parse_only(&words),
    };
    match result {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

fn parse_only(words: &[String]) -> anyhow::Result<ExitCode> {
    let program = std::iter::once("highwire".to_string());
    match Cli::try_parse_from(program.chain(words.iter().cloned())) {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) if error.use_stderr() => Err(failure::usage(error.to_string())),
        Err(_) => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
