//! `cargo xtask bench`: the tables of docs/measurements, measured here and now.

mod against;
mod cores;
mod disturbed;
mod java;
mod loss;
mod nanopu;
mod protocol;
mod rpc;
mod simulator;
mod speed;
mod store;
mod wake;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::measure::Program;
use crate::measurements;
use crate::shell::Line;

pub(crate) use java::comparison as java_comparison;
pub(crate) use loss::{Goodputs, Recovery};
pub(crate) use speed::{CASES, Outcome};

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench                  print the tables
  cargo xtask bench --write-docs     and put them into docs/measurements/verbs.md
  cargo xtask bench --nanopu --write-docs   the nanoPU's simulator alone
  cargo xtask bench --simulator --write-docs   the network's simulator alone
  cargo xtask bench --rpc --write-docs      RPCs alone, beside other systems'
  cargo xtask bench --wake --write-docs     waiting threads alone
  cargo xtask bench --cores --write-docs    the model of cores alone: beside this machine, and of more cores
  cargo xtask bench --java --write-docs     Java programs alone
  cargo xtask bench --store --write-docs    the store alone, beside PostgreSQL, Redis and Valkey
  cargo xtask bench --record --runs 9       what a record costs a round trip, and scenarios that do nothing
  cargo xtask bench --against 78bdcf31 --runs 9   no slower than that commit? both programs in turns")]
pub(crate) struct Args {
    /// Rewrite the tables of docs/measurements.
    #[arg(long)]
    write_docs: bool,
    /// Runs of each measurement, of which the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only the speed of the nanoPU's simulator.
    #[arg(long)]
    nanopu: bool,
    /// Only the speed of the network's simulator.
    #[arg(long, conflicts_with_all = ["nanopu", "rpc", "wake", "cores", "java", "store"])]
    simulator: bool,
    /// Only RPCs: rates, times, the ladder of optimisations, the budget of a datagram, and echoes beside tarpc, tonic, Cap'n Proto, ZeroMQ, UCX, ruapc and iceoryx2, whose packages are installed where that is possible.
    #[arg(long, conflicts_with = "nanopu")]
    rpc: bool,
    /// Only how soon waiting threads have their events.
    #[arg(long, conflicts_with = "nanopu")]
    wake: bool,
    /// Only the model of cores: how near it comes to this machine, and what it says of more cores.
    #[arg(long, conflicts_with_all = ["nanopu", "rpc", "wake"])]
    cores: bool,
    /// Only Java: round trips between two JVMs beside sockets, Netty, gRPC, Aeron and JUCX, and GETs beside memcached's.
    #[arg(long, conflicts_with_all = ["nanopu", "rpc", "wake", "cores"])]
    java: bool,
    /// Only the store: TATP, SmallBank and redis-benchmark beside PostgreSQL, Redis and Valkey, which are installed where that is possible.
    #[arg(long, conflicts_with_all = ["nanopu", "rpc", "wake", "cores", "java"])]
    store: bool,
    /// Only what `highwire run --record` and scenarios that do nothing cost a round trip, as ratios.
    #[arg(long, conflicts_with_all = ["nanopu", "simulator", "rpc", "wake", "cores", "java", "store", "write_docs"])]
    record: bool,
    /// Only the speed table's cases, beside those of the program as this commit had it: both in turns.
    #[arg(long, value_name = "COMMIT", value_parser = against::is_commit_name, conflicts_with_all = ["nanopu", "simulator", "rpc", "wake", "cores", "java", "store", "record"])]
    against: Option<String>,
}

/// Measures and prints every table.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.record {
        return disturbed::run(args);
    }
    let program = Program::build()?;
    if args.nanopu {
        return nanopu::run(&program, args);
    }
    if args.simulator {
        return simulator::run(&program, args);
    }
    if args.rpc {
        return rpc::run(&program, args);
    }
    if args.wake {
        return wake::run(&program, args);
    }
    if args.cores {
        return cores::run(&program, args);
    }
    if args.java {
        return java::run(&program, args);
    }
    if args.store {
        return store::run(&program, args);
    }
    if let Some(earlier) = &args.against {
        return against::run(&program, earlier, args);
    }
    let speed = speed::measure(&program, args.runs)?;
    println!("{}", speed.to_text());
    let goodputs = Goodputs::measure(&program, loss::SECONDS)?;
    println!("{}", goodputs.table().to_text());
    let protocol = protocol::measure()?;
    println!("{}", protocol.to_text());
    if args.write_docs {
        measurements::MACHINE.write(&machine()?)?;
        measurements::SPEED.write(&speed.to_markdown())?;
        measurements::PROTOCOL.write(&protocol.to_markdown())?;
        measurements::GOODPUT_OVER_LOSS.write(&goodputs.table().to_markdown())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The machine on which the figures were taken, in a line.
pub(crate) fn machine() -> Result<String> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = Line::new("uname").words("-sr").capture()?.stdout;
    Ok(format!("{model}, {cores} cores, {}\n", kernel.trim()))
}

/// Replaces the text between `<!-- begin: name -->` and `<!-- end: name -->`.
pub(crate) fn replace_section(page: &str, name: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- begin: {name} -->\n"), format!("<!-- end: {name} -->"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = parts else {
        bail!("the page has no section between {} and {end}", begin.trim());
    };
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_nothing_else() {
        let page = "before\n<!-- begin: a -->\nold\n<!-- end: a -->\nafter\n";
        let expected = "before\n<!-- begin: a -->\nnew\n<!-- end: a -->\nafter\n";
        assert_eq!(replace_section(page, "a", "new\n").expect("there is one"), expected);
        assert!(replace_section(page, "b", "new\n").is_err());
    }
}
