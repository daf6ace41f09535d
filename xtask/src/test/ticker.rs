//! A line that shows which steps run, for how long already, and how long each took the last time; on a
//! terminal only.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_secs(1);
/// Back to the first column, and erase to the end of the line.
const ERASE: &str = "\r\x1b[K";

/// Ticks until it is dropped.
pub(super) struct Ticker {
    running: Arc<Mutex<Vec<Running>>>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

/// A step that runs.
struct Running {
    title: String,
    started: Instant,
    expected_seconds: Option<u64>,
}

impl Running {
    fn text(&self) -> String {
        let seconds = self.started.elapsed().as_secs();
        let left = match self.expected_seconds {
            Some(expected) if expected > 2 => format!(", {} s left", expected.saturating_sub(seconds)),
            _ => String::new(),
        };
        format!("{} … {seconds} s{left}", self.title)
    }
}

impl Ticker {
    pub(super) fn start() -> Self {
        let running = Arc::default();
        if !std::io::stdout().is_terminal() {
            return Self { running, thread: None };
        }
        let (stop, stopped) = channel();
        let shown = Arc::clone(&running);
        let thread = std::thread::spawn(move || tick(&shown, &stopped));
        Self { running, thread: Some((stop, thread)) }
    }

    /// Shows a step until [`Ticker::end`].
    pub(super) fn begin(&self, title: &str, expected_seconds: Option<u64>) {
        let started = Instant::now();
        locked(&self.running).push(Running { title: title.into(), started, expected_seconds });
    }

    /// Takes the step away, and calls `say` while the line is not shown: what it prints stays whole.
    pub(super) fn end(&self, title: &str, say: impl FnOnce()) {
        let mut running = locked(&self.running);
        running.retain(|step| step.title != title);
        if self.thread.is_some() {
            print!("{ERASE}");
        }
        say();
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // Only a decoration; that it panicked is its own report.
            let _ = thread.join();
        }
    }
}

fn locked(running: &Mutex<Vec<Running>>) -> MutexGuard<'_, Vec<Running>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tick(running: &Mutex<Vec<Running>>, stopped: &Receiver<()>) {
    loop {
        {
            let running = locked(running);
            let texts: Vec<String> = running.iter().map(Running::text).collect();
            print!("{ERASE}{}", texts.join("; "));
            let _ = std::io::stdout().flush();
        }
        if stopped.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    print!("{ERASE}");
    let _ = std::io::stdout().flush();
}
