//! `highwire bench idle`: threads that wait for events that do not come, and the processor time of the
//! process meanwhile.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use highwire_host::{ChannelTarget, CompletionQueueConfig, Device, DeviceConfig, WaitFor, WakeMode};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::console::Console;

/// How long the threads may take to fall asleep.
const SETTLING: Duration = Duration::from_millis(500);
const STACK_BYTES: usize = 128 << 10;

/// Options of `highwire bench idle`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every thread waits on a channel of its own. What counts is the CPU time of the whole process, with the device's own thread.

Examples:
  highwire bench idle
  highwire bench idle --threads 64 --seconds 10 --wake power --json"
)]
pub(crate) struct Args {
    /// Waiting threads.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,
    /// How long.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How they wait: latency, balanced, power, dispatcher or event.
    #[arg(long, default_value_t)]
    wake: WakeMode,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Idle {
    threads: u32,
    seconds: f64,
    cpu_seconds: f64,
    /// Of one core.
    share: f64,
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let config = DeviceConfig { wake: Some(args.wake), ..DeviceConfig::default() };
    let device = Device::open(&config).context("cannot open a device")?;
    let span = Duration::from_secs(args.seconds);
    let mut queues = Vec::new();
    for tag in 0..u64::from(args.threads) {
        let channel = device.completion_channel().context("cannot make a channel")?;
        let target = Some(ChannelTarget { channel: &channel, tag });
        let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(1) };
        let queue = device.create_completion_queue(&config).context("cannot make a completion queue")?;
        queues.push((channel, queue));
    }
    let cpu = thread::scope(|threads| {
        for (channel, queue) in &queues {
            queue.request_notify(WaitFor::Any)?;
            // The threads end by themselves, when everything has been measured.
            let wait = move || channel.event(Some(2 * SETTLING + span));
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(threads, wait)?;
        }
        thread::sleep(SETTLING);
        let before = process_time();
        thread::sleep(span);
        anyhow::Ok(process_time() - before)
    })?;
    let (seconds, cpu_seconds) = (span.as_secs_f64(), cpu.as_secs_f64());
    let idle = Idle { threads: args.threads, seconds, cpu_seconds, share: cpu_seconds / seconds };
    let mut console = Console::new();
    if args.json {
        console.json(&idle)?;
    } else {
        let Idle { threads, share, .. } = idle;
        let percent = 100.0 * share;
        console.line(format!(
            "{threads} threads wait: {percent:.3} % of a core, {cpu_seconds:.4} s in {seconds} s"
        ))?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
