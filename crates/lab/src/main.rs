//! The `highwire-lab` program: what measures Highwire, and what teaches its ideas. One file per command.
//!
//! `highwire` finds it and hands its commands on, so that users type one name. Exit status: 0 after success, 1
//! after failure, 2 after a wrong command line. A reader that goes away (`| head`) is no error.

mod bench;
mod churn;
mod nanopu;
mod sim;
mod store;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use highwire_program::{broker, console, failure, manual, pages, progress, values};

#[global_allocator]
static ALLOCATOR: pages::HugePages = pages::HugePages;

/// Simulations and measurements of Highwire.
#[derive(Debug, Parser)]
#[command(name = "highwire-lab", version = highwire_program::VERSION, max_term_width = 100, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const COMPLETIONS_HELP: &str = "Example:
  highwire-lab completions bash > /etc/bash_completion.d/highwire-lab";

#[derive(Debug, Subcommand)]
enum Command {
    /// Experiments on a simulated network, beside what the papers report.
    Sim(sim::Args),
    /// Programs on the nanoPU, a simulated processor with the network in its registers.
    Nanopu(nanopu::Args),
    /// Measure parts of Highwire by themselves.
    Bench(bench::Args),
    /// Let processes come to a shared address and leave it at random.
    Churn(churn::Args),
    /// The store's checks: simulated clusters, and real faults.
    Store(store::Args),
    /// Own an address that processes share; devices start this by themselves.
    Broker(broker::Args),
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
    let result = match Cli::parse().command {
        Command::Sim(args) => sim::run(&args),
        Command::Nanopu(args) => nanopu::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Churn(args) => churn::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Broker(args) => broker::run(&args),
        Command::Completions(args) => manual::complete(&mut Cli::command(), &args),
        Command::Man(args) => manual::write(Cli::command(), &args),
        Command::ParseOnly { words } => failure::parse_only::<Cli>(&words),
    };
    match result {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use highwire_program::laboratory::{COMMANDS, STORE_COMMANDS};

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    /// `highwire` knows the laboratory's commands by these lists alone.
    #[test]
    fn the_product_lists_every_command() {
        let cli = super::Cli::command();
        let of_product = ["store", "broker", "completions"];
        let listed = |command: &clap::Command| {
            let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
            visible.map(|command| command.get_name().to_string()).collect::<Vec<_>>()
        };
        let mut top = listed(&cli);
        top.retain(|name| !of_product.contains(&name.as_str()));
        assert_eq!(top, COMMANDS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        let store = listed(cli.find_subcommand("store").expect("it has the store's checks"));
        assert_eq!(store, STORE_COMMANDS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for (name, about) in COMMANDS {
            let own = cli.find_subcommand(name).and_then(|command| command.get_about()).expect("an about");
            assert_eq!(own.to_string(), *about, "{name}");
        }
    }
}
