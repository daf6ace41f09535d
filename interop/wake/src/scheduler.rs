//! The sched_ext scheduler as a process beside the measurement: it schedules while it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const STATE: &str = "/sys/kernel/sched_ext/state";
/// Loading takes the kernel's verifier a moment, and emulated cores are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Its process ends with this value.
#[derive(Debug)]
pub(crate) struct Scheduler {
    process: Child,
}

impl Scheduler {
    /// Starts it and returns when it schedules.
    pub(crate) fn start(program: &PathBuf) -> Result<Scheduler> {
        ensure!(!Scheduler::is_active(), "another scheduler is there already");
        let process = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let process = process.with_context(|| format!("cannot start {}", program.display()))?;
        let mut scheduler = Scheduler { process };
        let begin = Instant::now();
        while !Scheduler::is_active() {
            if let Some(status) = scheduler.process.try_wait()? {
                bail!("the scheduler ended at once ({status})");
            }
            if begin.elapsed() > PATIENCE {
                bail!("the scheduler does not schedule: {}", fs::read_to_string(STATE)?.trim());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(scheduler)
    }

    /// Whether any such scheduler is active now.
    pub(crate) fn is_active() -> bool {
        fs::read_to_string(STATE).is_ok_and(|state| state.trim() == "enabled")
    }

    /// Whether this kernel supports it.
    pub(crate) fn is_possible() -> bool {
        Path::new(STATE).exists()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // It unloads the scheduler when its input ends; a moment later the kernel's own has all threads back.
        drop(self.process.stdin.take());
        let begin = Instant::now();
        let has_ended = |process: &mut Child| matches!(process.try_wait(), Ok(Some(_)));
        while (Scheduler::is_active() || !has_ended(&mut self.process)) && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
