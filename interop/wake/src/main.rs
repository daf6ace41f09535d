//! The program in the guest of `cargo xtask wake`. `docs/wake-kernel.md` is the page about it.

mod check;
mod device;
mod module;
mod rxe;
mod scheduler;
mod slices;
mod stage;
mod stress;
mod sys;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// What /dev/highwire-wake promises; unloads the module at the end.
    Check {
        #[arg(long, default_value_t = 100_000)]
        events: u64,
        #[arg(long, default_value_t = 16)]
        threads: u32,
    },
    /// Every way to wait, in turns.
    Table {
        #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128])]
        threads: Vec<u32>,
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        #[arg(long, default_value_t = 200)]
        turn_ms: u64,
        /// The program that loads the sched_ext scheduler, for rows with it.
        #[arg(long)]
        scheduler: Option<PathBuf>,
    },
    /// The completion channels of the kernel's own software RNIC, through stock libibverbs.
    Rxe {
        /// Messages of a run.
        #[arg(long, default_value_t = 2000)]
        messages: u32,
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// The program that loads the sched_ext scheduler, for rows with it.
        #[arg(long)]
        scheduler: Option<PathBuf>,
        /// The kernel module, for rows with it.
        #[arg(long)]
        module: Option<PathBuf>,
        /// So many microseconds a reader of a completion channel polls with the module.
        #[arg(long, default_value_t = 200)]
        poll_us: u32,
        /// Only what the module promises of completion channels.
        #[arg(long)]
        check: bool,
    },
    /// How often a thread loses its core while it holds what others wait for, with and without extensions of its time slice.
    Slices {
        #[arg(long, default_value_t = 5000)]
        ms: u64,
    },
    /// Wait at a slot for ever.
    Hold,
}

fn main() -> Result<ExitCode> {
    match Cli::parse().task {
        Task::Check { events, threads } => {
            let is_well = check::run(&check::Options { events, threads, cores: cores()? });
            Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Task::Table { threads, rounds, turn_ms, scheduler } => {
            let turn = Duration::from_millis(turn_ms);
            table::run(&table::Options { threads, rounds, turn, cores: cores()?, scheduler })?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Rxe { messages, rounds, scheduler, module, poll_us, check } => {
            let options = rxe::Options { messages, rounds, cores: cores()?, scheduler, module, poll_us };
            if check {
                return Ok(if rxe::check(&options) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            rxe::run(&options)?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Slices { ms } => {
            slices::run(Duration::from_millis(ms), cores()?[1])?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Hold => check::hold().map(|()| ExitCode::SUCCESS),
    }
}

/// The two cores that the scenes are played on: the guest has no others.
fn cores() -> Result<[u32; 2]> {
    let count = std::thread::available_parallelism().context("cannot tell how many cores there are")?.get();
    if count < 2 {
        bail!("it takes two cores");
    }
    Ok([0, 1])
}
