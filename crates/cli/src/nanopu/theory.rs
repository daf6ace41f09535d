//! `highwire nanopu theory`: the selector with ideal servers, beside closed forms and reference tails.

use std::process::ExitCode;

use anyhow::Result;
use highwire_nanopu::nic::Selection;
use highwire_nanopu::queueing::{Request, percentile, response_times};
use highwire_stdx::Rng;
use serde::Serialize;

use crate::console::Console;

const SERVERS: usize = 4;

/// Options of `highwire nanopu theory`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The 99th percentile of the response of four servers, with a mean service of one.

Examples:
  highwire nanopu theory
  highwire nanopu theory --requests 20000000 --json")]
pub(crate) struct Args {
    /// Requests per point; tails at a load of 0.9 want twenty million.
    #[arg(long, default_value_t = 2_000_000)]
    requests: usize,
    /// Decides every random choice.
    #[arg(long, default_value_t = 3)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One point.
#[derive(Debug, Serialize)]
struct Row {
    service: &'static str,
    selection: &'static str,
    load: f64,
    reference: f64,
    here: f64,
    off_percent: f64,
}

type Draw = fn(&mut Rng) -> f64;

/// Service, selection, and the reference's 99th percentiles at loads of 0.5, 0.8 and 0.9.
const TABLE: [(&str, Draw, &str, Selection, [f64; 3]); 10] = [
    ("exponential", exponential, "one queue (M/M/4)", Selection::Jbsq(1), [4.764, 6.893, 12.19]),
    ("exponential", exponential, "JBSQ(2)", Selection::Jbsq(2), [5.19, 7.60, 12.7]),
    ("exponential", exponential, "JBSQ(4)", Selection::Jbsq(4), [5.26, 8.22, 13.3]),
    ("exponential", exponential, "RSS (4 × M/M/1)", Selection::Rss, [9.21, 23.03, 46.05]),
    ("fixed", |_| 1.0, "one queue", Selection::Jbsq(1), [1.71, 3.45, 6.31]),
    ("fixed", |_| 1.0, "JBSQ(2)", Selection::Jbsq(2), [1.96, 3.55, 6.41]),
    ("fixed", |_| 1.0, "JBSQ(4)", Selection::Jbsq(4), [1.96, 3.78, 6.42]),
    ("bimodal", bimodal, "one queue", Selection::Jbsq(1), [1.95, 5.50, 9.69]),
    ("bimodal", bimodal, "JBSQ(2)", Selection::Jbsq(2), [2.20, 7.10, 10.3]),
    ("bimodal", bimodal, "JBSQ(4)", Selection::Jbsq(4), [2.38, 8.93, 10.8]),
];

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.unit()).ln()
}

/// One in two hundred takes ten times as long.
fn bimodal(rng: &mut Rng) -> f64 {
    if rng.chance(0.005) { 10.0 / 1.045 } else { 1.0 / 1.045 }
}

fn p99(args: &Args, draw: Draw, selection: Selection, load: f64) -> f64 {
    let mut rng = Rng::new(args.seed);
    let mut now = 0.0;
    let requests: Vec<Request> = (0..args.requests)
        .map(|_| {
            now += exponential(&mut rng) / (load * SERVERS as f64);
            Request { arrival: now, service: draw(&mut rng), hash: rng.next_u64() }
        })
        .collect();
    percentile(&response_times(selection, SERVERS, &requests), 0.99)
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut console = Console::new();
    if !args.json {
        console.line("service      selection           load   reference      here      off")?;
    }
    for (service, draw, name, selection, references) in TABLE {
        for (load, reference) in [0.5, 0.8, 0.9].into_iter().zip(references) {
            let here = p99(args, draw, selection, load);
            let off_percent = 100.0 * (here / reference - 1.0);
            let row = Row { service, selection: name, load, reference, here, off_percent };
            if args.json {
                console.json_line(&row)?;
            } else {
                console.line(format!(
                    "{service:<12} {name:<18} {load:>5.2} {reference:>11.3} {here:>9.3} {off_percent:>+7.2} %"
                ))?;
            }
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}
