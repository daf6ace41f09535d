//! `highwire sim bench`: packet-hops per second of CPU, the work of a packet simulator per unit of its cost.
//!
//! CPU time and not time by the clock, so that neighbours on a shared machine matter less; the best of a few runs, since they
//! still do.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use highwire_sim::bench::{Case, Measurement, Reading, cases, measure};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::console::{Console, Tone};
use crate::failure::usage;

/// Options of `highwire sim bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire sim bench
  highwire sim bench p54 i50 --repeat 5 --json
  highwire sim bench p1024 --threads 2")]
pub(super) struct Args {
    /// Cases by name; all of them without any.
    cases: Vec<String>,
    /// Runs of each case, of which the best counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Threads of one run.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct CaseJson {
    case: &'static str,
    what: &'static str,
    threads: usize,
    packet_hops: u64,
    events: u64,
    cpu_seconds: f64,
    wall_seconds: f64,
    packet_hops_per_cpu_second: f64,
    goal_per_cpu_second: Option<f64>,
    bytes_per_packet: usize,
}

/// Measures the cases.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut console = Console::new();
    let mut documents = Vec::new();
    if !args.json {
        let [hops, cpu, rate, goal] = ["hops", "CPU s", "M hops / CPU s", "goal"];
        let head = format!(
            "{:<44}{hops:>12}{cpu:>10}{rate:>16}{goal:>8}",
            "VOQ, round robin, PFC, ECN, IRN, every ACK"
        );
        console.line(console.paint(Tone::Faint, &head))?;
    }
    for case in chosen(&args.cases)? {
        let best = best(&case, args)?;
        if args.json {
            documents.push(json(&case, &best));
        } else {
            let goal = case.goal.map_or_else(String::new, |goal| format!("{:.0}", goal / 1e6));
            let title = format!("{:<10} {}", case.name, case.what);
            console.line(format!(
                "{title:<44}{:>12}{:>10.2}{:>16.2}{goal:>8}",
                best.packet_hops,
                best.cpu_seconds,
                best.hops_per_cpu_second() / 1e6
            ))?;
        }
    }
    if args.json {
        console.json(&documents)?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn chosen(names: &[String]) -> Result<Vec<Case>> {
    let mut all = cases();
    for name in names {
        if !all.iter().any(|case| case.name == name) {
            let known: Vec<&str> = all.iter().map(|case| case.name).collect();
            return Err(usage(format!("there is no case {name}; there are {}", known.join(", "))));
        }
    }
    all.retain(|case| names.is_empty() || names.iter().any(|name| name == case.name));
    Ok(all)
}

fn best(case: &Case, args: &Args) -> Result<Measurement> {
    let started = Instant::now();
    let clock = || Reading { cpu_seconds: cpu_seconds(), seconds: started.elapsed().as_secs_f64() };
    let mut best = measure(case, args.threads as usize, clock)?;
    for _ in 1..args.repeat {
        let again = measure(case, args.threads as usize, clock)?;
        if again.cpu_seconds < best.cpu_seconds {
            best = again;
        }
    }
    Ok(best)
}

fn json(case: &Case, best: &Measurement) -> CaseJson {
    CaseJson {
        case: case.name,
        what: case.what,
        threads: best.threads,
        packet_hops: best.packet_hops,
        events: best.events,
        cpu_seconds: best.cpu_seconds,
        wall_seconds: best.seconds,
        packet_hops_per_cpu_second: best.hops_per_cpu_second(),
        goal_per_cpu_second: case.goal,
        bytes_per_packet: best.bytes_per_packet,
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
