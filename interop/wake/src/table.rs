//! Every way to wait, with few threads and many, in turns.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use highwire_wake::Strategy;
use serde::Serialize;

use crate::device;
use crate::scheduler::Scheduler;
use crate::stage::{Outcome, Scene, Way, play};

/// The scenes to play.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) threads: Vec<u32>,
    pub(crate) rounds: u32,
    pub(crate) turn: Duration,
    pub(crate) cores: [u32; 2],
    /// The program that loads the sched_ext scheduler.
    pub(crate) scheduler: Option<PathBuf>,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    threads: u32,
    busy: bool,
    strategy: &'static str,
    /// The scheduler of `scheduler/`, or the kernel's own.
    sched_ext: bool,
    events: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    /// The processor time of the waiting threads and their dispatcher.
    cpu_s_per_million: f64,
}

const USER: [Strategy; 5] =
    [Strategy::BusyPoll, Strategy::Event, Strategy::Dispatcher, Strategy::LeaderFollower, Strategy::Affine];

/// Plays every scene once in each round, and prints a line of JSON for each.
pub(crate) fn run(options: &Options) -> Result<()> {
    let has_module = std::path::Path::new(device::PATH).exists();
    let has_scheduler = options.scheduler.is_some() && Scheduler::is_possible();
    let mut totals: Vec<(Scene, bool, Option<Outcome>)> = Vec::new();
    for is_busy in [false, true] {
        for &threads in &options.threads {
            for sched_ext in [false, true] {
                let ways = USER.map(Way::User).into_iter().chain(has_module.then_some(Way::Module));
                for way in ways {
                    // Several threads that spin on one core wait for each other's slices.
                    let is_sensible = (way != Way::User(Strategy::BusyPoll) || threads == 1 && !sched_ext)
                        && (!sched_ext || has_scheduler);
                    if is_sensible {
                        totals.push((Scene { way, threads, is_busy }, sched_ext, None));
                    }
                }
            }
        }
    }
    for round in 0..options.rounds {
        for with in [false, true] {
            let scheduler = match &options.scheduler {
                Some(program) if with && has_scheduler => Some(Scheduler::start(program)?),
                _ => None,
            };
            for (scene, sched_ext, total) in totals.iter_mut().filter(|(_, sched_ext, _)| *sched_ext == with)
            {
                let turn = play(*scene, options.cores, options.turn, round.into())
                    .with_context(|| format!("{scene:?}, sched_ext: {sched_ext}"))?;
                match total {
                    None => *total = Some(turn),
                    Some(total) => {
                        total.times.add(&turn.times)?;
                        total.cpu += turn.cpu;
                    }
                }
            }
            // The kernel throws out a scheduler that keeps threads waiting: then these rows would not be its own.
            if scheduler.is_some() {
                anyhow::ensure!(Scheduler::is_active(), "the kernel has thrown the scheduler out");
            }
        }
    }
    for (scene, sched_ext, total) in &totals {
        let Some(total) = total else { continue };
        let times = &total.times;
        let row = Row {
            threads: scene.threads,
            busy: scene.is_busy,
            strategy: scene.way.name(),
            sched_ext: *sched_ext,
            events: times.len(),
            p50_ns: times.value_at_quantile(0.5),
            p99_ns: times.value_at_quantile(0.99),
            p999_ns: times.value_at_quantile(0.999),
            cpu_s_per_million: total.cpu.as_secs_f64() * 1e6 / times.len() as f64,
        };
        println!("row: {}", serde_json::to_string(&row)?);
    }
    Ok(())
}
