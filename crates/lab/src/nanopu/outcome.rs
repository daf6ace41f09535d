//! The result of a run, for programs and people.

use std::process::ExitCode;

use anyhow::Result;
use highwire_riscv::Platform;
use serde::Serialize;

use super::CYCLES_PER_NANOSECOND;
use super::options::Args;
use crate::console::{Console, Tone};

/// The result of a run, over any network.
#[derive(Debug, Serialize)]
pub(super) struct Played {
    pub(super) requests: usize,
    pub(super) answered: usize,
    pub(super) cycles: u64,
    pub(super) instructions: u64,
    response_cycles: Option<Spread>,
    response_ns: Option<Spread>,
}

/// The program's state at the end.
#[derive(Debug, Serialize)]
pub(super) struct End {
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    console: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

impl Played {
    /// `times` are the responses of the answered ones, in cycles.
    pub(super) fn new(requests: usize, times: &[u64], cycles: u64, instructions: u64) -> Played {
        let (response_cycles, response_ns) = (spread(times, 1.0), spread(times, CYCLES_PER_NANOSECOND));
        Played { requests, answered: times.len(), cycles, instructions, response_cycles, response_ns }
    }
}

impl End {
    pub(super) fn new(platform: &Platform, problems: Vec<String>) -> End {
        let console = String::from_utf8_lossy(platform.console()).into_owned();
        End { exit_code: platform.exit_code(), console, problems }
    }

    /// The command's own exit code.
    pub(super) fn exit_code(&self) -> ExitCode {
        let is_good = self.problems.is_empty() && self.exit_code.unwrap_or(0) == 0;
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[derive(Debug, Serialize)]
struct Spread {
    minimum: f64,
    median: f64,
    p99: f64,
    maximum: f64,
}

fn spread(times: &[u64], cycles_per_unit: f64) -> Option<Spread> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).map(|&cycles| cycles as f64 / cycles_per_unit)
    };
    Some(Spread { minimum: at(0.0)?, median: at(0.5)?, p99: at(0.99)?, maximum: at(1.0)? })
}

/// Prints `report`, of which the other arguments are parts, for programs or people.
pub(super) fn print(
    args: &Args,
    report: &impl Serialize,
    played: &Played,
    more: &[String],
    end: &End,
) -> Result<()> {
    let mut console = Console::new();
    if args.json {
        console.json(report)?;
        return console.finish();
    }
    console.line(format!(
        "{} messages, {} answered; {} cycles, {} instructions",
        played.requests, played.answered, played.cycles, played.instructions
    ))?;
    for (what, spread) in [("cycles", &played.response_cycles), ("ns at 3.2 GHz", &played.response_ns)] {
        let Some(Spread { minimum, median, p99, maximum }) = spread else { continue };
        console.line(format!(
            "response, {what:<14}  min {minimum:>8.1}   median {median:>8.1}   p99 {p99:>8.1}   max {maximum:>8.1}"
        ))?;
    }
    let faint = format!(
        "from the generator's first word out to the answer's first word back, {} cycles of link each way (simulated)",
        args.link
    );
    console.line(console.paint(Tone::Faint, &faint))?;
    for line in more {
        console.line(line)?;
    }
    if !end.console.is_empty() {
        console.line(&end.console)?;
    }
    if let Some(code) = end.exit_code {
        console.line(format!("the program exited with {code}"))?;
    }
    if let Some(path) = &args.trace {
        console.line(format!("trace: {}", path.display()))?;
    }
    for problem in &end.problems {
        console.line(console.paint(Tone::Bad, problem))?;
    }
    console.finish()
}
