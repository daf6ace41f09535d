//! `highwire bench`: measurements of single parts of Highwire.

mod bells;
mod clients;
mod cores;
mod idle;
mod memory;
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
    /// How soon a thread that sleeps is woken by a datagram, a pipe, an event descriptor and a futex.
    Bells(bells::Args),
    /// What waking a thread costs here, for the model of cores, and how near that comes.
    Cores(cores::Args),
    /// How soon a client of the store is answered, over TCP and by RPCs.
    Clients(clients::Args),
    /// Transactions of a bank over the store: how many, how soon, and whether money is lost with a node.
    Smallbank(smallbank::Args),
    /// Benchmarks of transactions by the store's own nodes: commits per CPU-second, latencies, aborts, requests per commit.
    Store(store::Args),
    /// FaSST's object store by the store's own nodes: reads and writes of drawn keys.
    #[command(after_help = STORE_HELP)]
    Objects(store::Options),
    /// TATP, a telephone network's register, by the store's own nodes.
    #[command(after_help = STORE_HELP)]
    Tatp(store::Options),
    /// YCSB, keys by Zipf's law, by the store's own nodes.
    #[command(after_help = STORE_HELP)]
    Ycsb(store::Options),
    /// One node of those.
    #[command(hide = true)]
    StoreNode(store::NodeArgs),
    /// What threads cost that wait and have nothing to do.
    Idle(idle::Args),
    /// How many bytes a queue pair takes, on a machine and in the simulator.
    Memory(memory::Args),
    /// A server with a thread for each connection, under every mode of waiting, beside threads and epoll over TCP.
    Server(server::Args),
}

/// Below the options of a benchmark that has a name of its own.
const STORE_HELP: &str = "The same as `highwire bench store --workload NAME`, whose help says what is measured. SmallBank by the nodes' own workers is
`highwire bench store --workload smallbank`; `highwire bench smallbank` has clients at the nodes' doors.

Examples:
  highwire bench tatp --half-load
  highwire bench objects --nodes 4 --reads 4 --writes 2
  highwire bench ycsb --theta 0,0.5,0.9,0.99 --json";

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Rpc(args) => rpc::run(args),
        What::Wake(args) => wake::run(args),
        What::Bells(args) => bells::run(args),
        What::Cores(args) => cores::run(args),
        What::Clients(args) => clients::run(args),
        What::Smallbank(args) => smallbank::run_bench(args),
        What::Store(args) => store::run(args),
        What::Objects(options) => store::run_workloads(options, &[store::Workload::Objects]),
        What::Tatp(options) => store::run_workloads(options, &[store::Workload::Tatp]),
        What::Ycsb(options) => store::run_workloads(options, &[store::Workload::Ycsb]),
        What::StoreNode(args) => store::run_node(args),
        What::Idle(args) => idle::run(args),
        What::Memory(args) => memory::run(args),
        What::Server(args) => server::run(args),
    }
}
