//! `highwire bench`: measurements of single parts of Highwire.

mod cores;
mod idle;
mod rpc;
mod served;
mod server;
mod smallbank;
mod store;
mod wake;

use std::process::ExitCode;

use anyhow::Result;

/// Options of `highwire bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// How many RPCs two cores exchange, and how soon one is answered.
    Rpc(rpc::Args),
    /// How soon a waiting thread has its event, and what that costs.
    Wake(wake::Args),
    /// What waking a thread costs here, for the model of cores, and how near that comes.
    Cores(cores::Args),
    /// Transactions of a bank over the store: how many, how soon, and whether money is lost with a node.
    Smallbank(smallbank::Args),
    /// Benchmarks of transactions by the store's own nodes: commits per CPU-second, latencies, aborts, requests per commit.
    Store(store::Args),
    /// One node of that.
    #[command(hide = true)]
    StoreNode(store::NodeArgs),
    /// What threads cost that wait and have nothing to do.
    Idle(idle::Args),
    /// A server with a thread for each connection, under every mode of waiting, beside threads and epoll over TCP.
    Server(server::Args),
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Rpc(args) => rpc::run(args),
        What::Wake(args) => wake::run(args),
        What::Cores(args) => cores::run(args),
        What::Smallbank(args) => smallbank::run_bench(args),
        What::Store(args) => store::run(args),
        What::StoreNode(args) => store::run_node(args),
        What::Idle(args) => idle::run(args),
        What::Server(args) => server::run(args),
    }
}
