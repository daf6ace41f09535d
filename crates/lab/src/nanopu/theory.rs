//! `highwire nanopu theory`: the selector with ideal servers, beside exact tails and recorded ones.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use highwire_nanopu::nic::Selection;
use highwire_nanopu::queueing::{
    RECORDED_REQUESTS, RECORDED_SEED, Reference, Request, SHARE, Service, Source, percentile, references,
    requests, response_times,
};
use highwire_stdx::Rng;
use rand_mt::Mt64;
use serde::Serialize;

use super::limits;
use crate::console::Console;
use crate::failure::usage;
use crate::progress::Progress;

/// How far a tail may be off.
const BAND_PERCENT: f64 = 2.0;

/// Options of `highwire nanopu theory`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The 99th percentile of the response of ideal servers with a mean service of one: two minutes on two cores. \
Tails known exactly are held against the mean of several runs; tails of a recorded simulation against the same requests, and \
beside them the other runs show how much such a tail varies by itself. The status is 1 if one is off by more than 2 %.

Examples:
  highwire nanopu theory
  highwire nanopu theory --runs 20 --json
  highwire nanopu theory --runs 0              # the recorded ones only: seconds"
)]
pub(crate) struct Args {
    /// Requests of each run.
    #[arg(long, default_value_t = 2_000_000, value_parser = limits::whole::<u32>(1..=100_000_000))]
    requests: u32,
    /// Runs, each with other requests; at loads beyond 0.8 more of them where the tail is known exactly.
    #[arg(long, default_value_t = 10, value_parser = limits::whole::<u16>(0..=10_000))]
    runs: u16,
    /// Decides every random choice.
    #[arg(long, default_value_t = 3)]
    seed: u64,
    /// Threads; as many as there are cores, if not said.
    #[arg(long, value_parser = limits::threads())]
    threads: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One tail.
#[derive(Debug, Serialize)]
struct Row {
    service: &'static str,
    selection: String,
    servers: usize,
    load: f64,
    source: &'static str,
    reference: f64,
    /// With the recorded simulation's requests.
    same_requests: Option<f64>,
    /// Runs with requests of this program's; their mean, the least and the most.
    runs: usize,
    mean: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    /// How far the compared value is off: that of the same requests, or the mean.
    off_percent: Option<f64>,
}

/// The runs of one reference.
#[derive(Clone, Default)]
struct Runs {
    same: Option<f64>,
    others: Vec<f64>,
}

/// So many requests are in memory at once, at the most.
const REQUESTS_MAX: usize = 256_000_000;

/// Each thread has the requests of its run in memory.
fn threads_max(args: &Args) -> usize {
    (REQUESTS_MAX / args.requests as usize).max(1)
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(threads) = args.threads.filter(|&threads| threads > threads_max(args)) {
        return Err(usage(format!(
            "--threads {threads}: at most {} with --requests {}, since each has its requests in memory",
            threads_max(args),
            args.requests
        )));
    }
    let references = references();
    let runs = play(args, &references);
    let rows: Vec<Row> = references.iter().zip(runs).map(|(reference, runs)| row(reference, &runs)).collect();
    let mut console = Console::new();
    if args.json {
        for row in &rows {
            console.json_line(row)?;
        }
    } else {
        table(&mut console, args, &rows)?;
    }
    console.finish()?;
    let is_off = |row: &Row| row.off_percent.is_some_and(|off| off.abs() > BAND_PERCENT);
    Ok(if rows.iter().any(is_off) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Plays all runs of all references, spread over threads; the result does not depend on their number.
fn play(args: &Args, references: &[Reference]) -> Vec<Runs> {
    let tasks: Vec<Task> = references
        .iter()
        .enumerate()
        .flat_map(|(reference, of)| {
            let same = matches!(of.source, Source::Recorded(_)).then_some(None);
            let others = (0..runs_of(args, of)).map(Some);
            same.into_iter().chain(others).map(move |run| Task { reference, run })
        })
        .collect();
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = args.threads.unwrap_or(cores.min(threads_max(args))).min(tasks.len());
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    let mut tails = vec![0.0; tasks.len()];
    thread::scope(|scope| {
        for _ in 0..threads {
            let (tell, next, tasks) = (tell.clone(), &next, &tasks);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(number) else { return };
                    let reference = &references[task.reference];
                    let requests = match task.run {
                        Some(run) => own(args, reference, run),
                        None => recorded(reference),
                    };
                    // Sending fails only if the main thread is gone.
                    let _ = tell.send((number, tail(reference, &requests)));
                }
            });
        }
        drop(tell);
        let mut progress = Progress::new("playing requests", tasks.len() as u64);
        for (done, (number, tail)) in told.into_iter().enumerate() {
            tails[number] = tail;
            progress.at(done as u64 + 1, Instant::now());
        }
    });
    let mut runs = vec![Runs::default(); references.len()];
    for (task, tail) in tasks.iter().zip(tails) {
        let runs = &mut runs[task.reference];
        match task.run {
            Some(_) => runs.others.push(tail),
            None => runs.same = Some(tail),
        }
    }
    runs
}

/// The task of a thread: one run of one reference, with the recorded requests if it has no number.
struct Task {
    reference: usize,
    run: Option<usize>,
}

/// Tails vary as one over the free capacity, so those compared with an exact one need as many more runs as
/// its square.
fn runs_of(args: &Args, reference: &Reference) -> usize {
    let times = match reference.source {
        Source::Recorded(_) => 1.0,
        _ => (0.2 / (1.0 - reference.load)).powi(2).round().max(1.0),
    };
    usize::from(args.runs) * times as usize
}

fn tail(reference: &Reference, requests: &[Request]) -> f64 {
    percentile(&response_times(reference.selection, reference.servers, requests), SHARE)
}

/// The requests of run number `run`.
fn own(args: &Args, reference: &Reference, run: usize) -> Vec<Request> {
    let mut rng = Rng::new(args.seed).fork(run as u64);
    let mut hashes = rng.fork(1);
    let count = args.requests as usize;
    requests(reference.service, reference.servers, reference.load, count, || rng.unit(), || hashes.next_u64())
}

/// The requests of the recorded simulation.
fn recorded(reference: &Reference) -> Vec<Request> {
    let mut twister = Mt64::new(RECORDED_SEED);
    let unit = || (twister.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    requests(reference.service, reference.servers, reference.load, RECORDED_REQUESTS, unit, || 0)
}

fn row(reference: &Reference, runs: &Runs) -> Row {
    let tail = reference.tail();
    let others = &runs.others;
    let of = |value: f64| (!others.is_empty()).then_some(value);
    let mean = of(others.iter().sum::<f64>() / others.len() as f64);
    let held = runs.same.or(mean);
    Row {
        service: match reference.service {
            Service::Exponential => "exponential",
            Service::Fixed => "fixed",
            Service::Bimodal => "bimodal",
        },
        selection: match reference.selection {
            Selection::Jbsq(1) => "one queue".to_string(),
            Selection::Jbsq(u32::MAX) => "JSQ".to_string(),
            Selection::Jbsq(bound) => format!("JBSQ({bound})"),
            Selection::Rss => "RSS".to_string(),
            Selection::Tree(_) => "tree".to_string(),
        },
        servers: reference.servers,
        load: reference.load,
        source: match (reference.source, reference.service) {
            (Source::MarkovServers, _) => "M/M/k",
            (Source::SingleServers, Service::Exponential) => "M/M/1",
            (Source::SingleServers, Service::Fixed) => "M/D/1",
            (Source::SingleServers, Service::Bimodal) => "M/G/1",
            (Source::Recorded(_), _) => "recorded",
        },
        reference: tail,
        same_requests: runs.same,
        runs: others.len(),
        mean,
        least: of(others.iter().copied().fold(f64::INFINITY, f64::min)),
        most: of(others.iter().copied().fold(0.0, f64::max)),
        off_percent: held.map(|held| 100.0 * (held / tail - 1.0)),
    }
}

fn table(console: &mut Console, args: &Args, rows: &[Row]) -> Result<()> {
    console.line(format!("{:81}other runs of {} requests", "", args.requests))?;
    console.line(
        "servers  service      selection   load  source    reference  same requests        off  runs      mean    least      most",
    )?;
    for row in rows {
        let cell = |value: Option<f64>| value.map_or("–".to_string(), |value| format!("{value:.3}"));
        console.line(format!(
            "{:>7}  {:<12} {:<10} {:>5.2}  {:<9} {:>9.3} {:>14} {:>10} {:>5} {:>9} {:>8} {:>9}",
            row.servers,
            row.service,
            row.selection,
            row.load,
            row.source,
            row.reference,
            cell(row.same_requests),
            row.off_percent.map_or("–".to_string(), |off| format!("{off:+.2} %")),
            row.runs,
            cell(row.mean),
            cell(row.least),
            cell(row.most),
        ))?;
    }
    let summary = |name: &str, is_exact: bool| {
        let of = rows.iter().filter(|row| (row.source != "recorded") == is_exact);
        let offs: Vec<f64> = of.filter_map(|row| row.off_percent).map(f64::abs).collect();
        let inside = offs.iter().filter(|off| **off <= BAND_PERCENT).count();
        let most = offs.iter().copied().fold(0.0, f64::max);
        (!offs.is_empty()).then(|| {
            format!("{name}: {inside} of {} within {BAND_PERCENT:.0} %, at most {most:.2} % off", offs.len())
        })
    };
    let exact = summary("exact, against the mean", true);
    let recorded = summary("recorded, against the same requests", false);
    for line in [exact, recorded].into_iter().flatten() {
        console.line(line)?;
    }
    Ok(())
}
