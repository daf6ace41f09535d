//! `highwire sim bench`: packet-hops per second of CPU, the work of a packet simulator per unit of what it costs.
//!
//! A packet that reaches the end of a link is a hop. CPU time and not time by the clock, so that neighbours on a shared machine matter
//! less; the best of a few runs, since they still do.

use std::process::ExitCode;

use anyhow::Result;
use highwire_sim::plan::{Plan, Scale};
use highwire_sim::{Scenario, run_on};
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
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Name, network and traffic, as a plan would write them.
const CASES: [(&str, &str); 4] = [
    ("54 hosts, permutation of 2 MB", "k = 6\n[workload]\npattern = \"permutation\"\nbytes = \"2MB\""),
    ("54 hosts, 50 to 1, 150 MB", "k = 6\n[workload]\npattern = \"incast\"\nsenders = 50\nbytes = \"150MB\""),
    ("128 hosts, permutation of 2 MB", "k = 8\n[workload]\npattern = \"permutation\"\nbytes = \"2MB\""),
    ("1024 hosts, permutation of 2 MB", "k = 16\n[workload]\npattern = \"permutation\"\nbytes = \"2MB\""),
];

#[derive(Debug, Serialize)]
struct CaseJson {
    case: &'static str,
    packet_hops: u64,
    events: u64,
    cpu_seconds: f64,
    packet_hops_per_cpu_second: f64,
    wall_seconds: f64,
}

/// Measures every case.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut console = Console::new();
    let count = if args.short { CASES.len() - 1 } else { CASES.len() };
    let mut documents = Vec::new();
    if !args.json {
        let head = format!(
            "{:<34}{:>12}{:>10}{:>16}",
            "IRN, PFC, ECN, VOQ, every ACK", "hops", "CPU s", "M hops / CPU s"
        );
        console.line(console.paint(Tone::Faint, &head))?;
    }
    for (name, network) in &CASES[..count] {
        let scenario = scenario(network)?;
        let mut best: Option<CaseJson> = None;
        for _ in 0..args.repeat {
            let case = measure(name, &scenario, args.threads as usize)?;
            if best.as_ref().is_none_or(|best| case.cpu_seconds < best.cpu_seconds) {
                best = Some(case);
            }
        }
        let Some(best) = best else { continue };
        if args.json {
            documents.push(best);
        } else {
            console.line(format!(
                "{name:<34}{:>12}{:>10.2}{:>16.2}",
                best.packet_hops,
                best.cpu_seconds,
                best.packet_hops_per_cpu_second / 1e6
            ))?;
        }
    }
    if args.json {
        console.json(&documents)?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn scenario(network: &str) -> Result<Scenario> {
    let text = format!(
        "figure = \"\"\ntitle = \"\"\nclaim = \"\"\n[[scheme]]\nname = \"IRN\"\n[network]\npfc = true\necn = \"red\"\n{network}\n"
    );
    let nothing = |name: &str| Err(format!("there is no file {name}"));
    let plan = Plan::read("bench", &text, Scale::Small, &nothing)?;
    let mut scenario = plan.runs()[0].scenario(&plan)?;
    scenario.record.ports = false;
    Ok(scenario)
}

fn measure(case: &'static str, scenario: &Scenario, threads: usize) -> Result<CaseJson> {
    let (cpu, wall) = (cpu_seconds(), std::time::Instant::now());
    let outcome = run_on(scenario, threads, &mut ())?;
    let cpu_seconds = (cpu_seconds() - cpu).max(1e-9);
    let packet_hops = outcome.totals.packet_hops;
    Ok(CaseJson {
        case,
        packet_hops,
        events: outcome.totals.events,
        cpu_seconds,
        packet_hops_per_cpu_second: packet_hops as f64 / cpu_seconds,
        wall_seconds: wall.elapsed().as_secs_f64(),
    })
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
