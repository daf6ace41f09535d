//! A line that shows that a step runs, for how long already, and how long it took the last time; on a
//! terminal only.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_secs(1);
/// Back to the first column, and erase to the end of the line.
const ERASE: &str = "\r\x1b[K";

/// Ticks until it is stopped.
pub(super) struct Ticker {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Ticker {
    pub(super) fn start(title: String, expected_seconds: Option<u64>) -> Self {
        if !std::io::stdout().is_terminal() {
            return Self { running: None };
        }
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || tick(&title, expected_seconds, &stopped));
        Self { running: Some((stop, thread)) }
    }

    /// Takes the line away.
    pub(super) fn stop(self) {
        if let Some((stop, thread)) = self.running {
            drop(stop);
            // Only a decoration; that it panicked is its own report.
            let _ = thread.join();
        }
    }
}

fn tick(title: &str, expected_seconds: Option<u64>, stopped: &Receiver<()>) {
    let started = Instant::now();
    loop {
        let seconds = started.elapsed().as_secs();
        let left = match expected_seconds {
            Some(expected) if expected > 2 => format!(", {} s left", expected.saturating_sub(seconds)),
            _ => String::new(),
        };
        print!("{ERASE}{title} … {seconds} s{left}");
        let _ = std::io::stdout().flush();
        if stopped.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    print!("{ERASE}");
    let _ = std::io::stdout().flush();
}
