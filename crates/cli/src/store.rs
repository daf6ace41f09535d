//! `highwire store`: the transactional store.

mod backup;
mod commands;
mod configure;
mod key;
mod options;
mod remove;
mod serve;
mod supervisor;
mod user;

use std::process::ExitCode;

use anyhow::Result;
use highwire_program::laboratory;

/// Options of `highwire store`.
#[derive(Debug, clap::Args)]
#[command(after_help = laboratory::listing(laboratory::STORE_COMMANDS))]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a cluster on this machine, or one node of a cluster.
    #[command(
        after_help = "Without --config: a cluster of this machine, one process for each node, started again when one is lost. It is empty at
first and gone when this command ends, unless --data keeps it.

Examples:
  highwire store serve --nodes 3
  highwire store serve --nodes 3 --resp 6379
  highwire store serve --nodes 3 --data bank
  highwire store serve --config cluster.toml --node 2"
    )]
    Serve(options::Args),
    /// Print a key's value.
    #[command(after_help = "Example:
  highwire store get accounts alice")]
    Get(commands::Get),
    /// Give a key a value.
    #[command(after_help = "Example:
  highwire store put accounts alice 100")]
    Put(commands::Put),
    /// Take a key away.
    #[command(after_help = "Example:
  highwire store delete accounts alice")]
    Delete(commands::Delete),
    /// Print all keys of a table, and their values, as they were at one instant.
    #[command(after_help = "Example:
  highwire store scan accounts --prefix a")]
    Scan(commands::Scan),
    /// Do several things at once, or nothing.
    #[command(after_help = "Each operation is one word of the shell, or one line of the standard input:
  get TABLE KEY              prints the value
  put TABLE KEY VALUE        gives the key a value
  delete TABLE KEY
  add TABLE KEY NUMBER       adds to a number; a key that is not there counts as 0
  check TABLE KEY VALUE      nothing happens unless the key has this value
  atleast TABLE KEY NUMBER   nothing happens unless the key's number is as great

Example:
  highwire store txn 'atleast accounts alice 10' 'add accounts alice -10' 'add accounts bob 10'")]
    Txn(commands::Txn),
    /// Write all tables, as they were at one instant, into a file, while clients go on.
    #[command(after_help = "Example:
  highwire store backup bank.backup")]
    Backup(backup::Backup),
    /// Put a backup's tables back.
    #[command(
        after_help = "The whole file is checked before anything is written. A restore that is broken off goes on when the same command runs again.

Examples:
  highwire store restore bank.backup
  highwire store restore bank.backup --replace
  highwire store restore bank.backup --check"
    )]
    Restore(backup::Restore),
    /// Take a node out of a running cluster, when its data has moved to the others.
    #[command(
        after_help = "The node's data moves to the nodes that stay, while clients go on; then its process ends. A node joins when it is started with a number that the
cluster does not have: see docs/store.md.

Examples:
  highwire store remove 2
  highwire store remove 2 --no-wait"
    )]
    Remove(remove::Args),
    /// Let a running cluster share other numbers: those of its file that have changed.
    #[command(
        after_help = "`lease_ms` and `rows_max` can be changed. Change them in the files of all nodes, then run this: the members take them up together, and a node
that starts with other numbers is refused. See docs/store.md.

Example:
  highwire store configure --config cluster.toml"
    )]
    Configure(configure::Args),
    /// Make a cluster's key, which all its nodes need if they are on several machines.
    #[command(
        after_help = "The file is for its owner only. Copy it to all nodes, and name it in their file: key = \"cluster.key\".

Example:
  highwire store key cluster.key"
    )]
    Key(key::Args),
    /// Make and change the file of users, who must say who they are from then on.
    #[command(
        after_help = "Roles: read reads data, status and metrics; write changes data as well; admin may do everything. The password is one line of
the standard input, or is asked for at a terminal. Nodes take up a changed file within a second.

Examples:
  highwire store user add alice --role write --file users.toml
  highwire store user list --file users.toml
  highwire store user remove alice --file users.toml
  highwire store serve --nodes 3 --users users.toml"
    )]
    User(user::Args),
    /// Show how each node stands.
    #[command(after_help = "Example:
  highwire store status")]
    Status(commands::Status),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Serve(args) => serve::run(args),
        Command::Get(args) => commands::get(args),
        Command::Put(args) => commands::put(args),
        Command::Delete(args) => commands::delete(args),
        Command::Scan(args) => commands::scan(args),
        Command::Txn(args) => commands::txn(args),
        Command::Backup(args) => backup::back_up(args),
        Command::Restore(args) => backup::restore(args),
        Command::Remove(args) => remove::run(args),
        Command::Configure(args) => configure::run(args),
        Command::Key(args) => key::run(args),
        Command::User(args) => user::run(args),
        Command::Status(args) => commands::status(args),
    }
}
