//! `highwire sim bench`: packet-hops per second of CPU, the work of a packet simulator per unit of what it costs.
//!
//! A packet that reaches the end of a link is a hop. CPU time and not time by the clock, so that neighbours on a shared machine matter
//! less; the best of a few runs, since they still do.

use std::process::ExitCode;

use anyhow::Result;
use highwire_sim::bench::{Case, Measurement, Reading, cases, largest, measure};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::console::{Console, Tone};

/// Options of `highwire sim bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire sim bench
  highwire sim bench --repeat 5 --threads 2 --json")]
pub(super) struct Args {
    /// Runs of each case, of which the best counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Threads of one run.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Leave out the case with 1024 hosts, which takes seconds.
    #[arg(long)]
    short: bool,
    /// Also run 11,664 hosts, to see that they fit.
    #[arg(long)]
    large: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct CaseJson {
    case: &'static str,
    what: &'static str,
    packet_hops: u64,
    events: u64,
    cpu_seconds: f64,
    packet_hops_per_cpu_second: f64,
    goal: Option<f64>,
    wall_seconds: f64,
    bytes_per_packet: usize,
    resident_bytes_max: u64,
}

/// Measures every case.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut console = Console::new();
    let mut wanted = cases();
    wanted.retain(|case| !args.short || case.name != "p1024");
    wanted.extend(args.large.then(largest));
    let mut documents = Vec::new();
    if !args.json {
        let head = format!(
            "{:<40}{:>11}{:>8}{:>16}{:>6}{:>10}",
            "IRN, PFC, ECN, VOQ, every ACK", "hops", "CPU s", "M hops / CPU s", "goal", "M hops/s"
        );
        console.line(console.paint(Tone::Faint, &head))?;
    }
    for case in &wanted {
        let best = best_of(case, args)?;
        let document = document(case, &best);
        if args.json {
            documents.push(document);
        } else {
            let goal = case.goal.map_or(String::new(), |goal| format!("{:.0}", goal / 1e6));
            console.line(format!(
                "{:<40}{:>11}{:>8.2}{:>16.2}{:>6}{:>10.2}",
                case.what,
                best.packet_hops,
                best.cpu_seconds,
                best.hops_per_cpu_second() / 1e6,
                goal,
                best.hops_per_second() / 1e6
            ))?;
        }
    }
    if args.json {
        console.json(&documents)?;
    } else {
        let bytes = highwire_sim::bench::BYTES_PER_PACKET;
        let memory = resident_bytes_max() as f64 / 1e6;
        let last = format!("{bytes} bytes per packet in flight; {memory:.0} MB resident at most");
        console.line(console.paint(Tone::Faint, &last))?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn best_of(case: &Case, args: &Args) -> Result<Measurement> {
    let mut best = measure(case, args.threads as usize, read_clock)?;
    for _ in 1..args.repeat {
        let found = measure(case, args.threads as usize, read_clock)?;
        if found.cpu_seconds < best.cpu_seconds {
            best = found;
        }
    }
    Ok(best)
}

fn document(case: &Case, found: &Measurement) -> CaseJson {
    CaseJson {
        case: case.name,
        what: case.what,
        packet_hops: found.packet_hops,
        events: found.events,
        cpu_seconds: found.cpu_seconds,
        packet_hops_per_cpu_second: found.hops_per_cpu_second(),
        goal: case.goal,
        wall_seconds: found.seconds,
        bytes_per_packet: found.bytes_per_packet,
        resident_bytes_max: resident_bytes_max(),
    }
}

fn read_clock() -> Reading {
    let seconds = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    Reading { cpu_seconds: seconds(ClockId::ProcessCPUTime), seconds: seconds(ClockId::Monotonic) }
}

/// The most memory that this process has had; 0 where the system does not tell.
fn resident_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
