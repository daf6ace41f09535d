//! `highwire run --report`: what became of a program's devices, once it has ended.
//!
//! The libraries in the program, and in those that it starts, write to a folder ([`Told::collect`] reads it): so there is a report also of
//! a process that was killed. Whatever lies in the folder was written by a program that may be broken, so it is read as text with bounds.

mod collect;
mod page;

use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use highwire_host::EndSignals;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) use collect::{Device, Process, Told};
pub(crate) use page::escaped;

/// The variable by which the libraries know the folder.
pub(crate) const VARIABLE: &str = "HIGHWIRE_REPORT";
/// A shell adds this to the number of the signal that has ended a program.
const SIGNALLED: i32 = 128;

/// The folder that processes write to. It goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Folder> {
        let own = |number: u32| format!("highwire-report-{}-{number}", std::process::id());
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        let mut last = None;
        for number in 0..16 {
            let path = std::env::temp_dir().join(own(number));
            match builder.create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("it was tried")).context("no folder for the report can be made in TMPDIR")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the program, and reports when it has ended. The exit status is the program's own, or 128 and the signal that ended it.
///
/// # Errors
/// It cannot be started, or the report cannot be written.
pub(crate) fn run(mut command: Command, name: &str, to: Option<&Path>) -> Result<ExitCode> {
    // One clear error now is better than one after an hour.
    if let Some(file) = to {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .with_context(|| format!("the report cannot be written to {}", file.display()))?;
    }
    let folder = Folder::create()?;
    command.env(VARIABLE, &folder.0);
    // Before there is a program: from its first moment signals are passed to it, so that its end is reported.
    let signals = EndSignals::block();
    signals.spare(&mut command);
    let mut child = match command.arg0(name).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("error: cannot execute {name}: {error}");
            return Ok(ExitCode::from(crate::run::CANNOT_EXECUTE));
        }
    };
    let is_over = Arc::new(AtomicBool::new(false));
    pass_on(signals, child.id(), Arc::clone(&is_over));
    let status = child.wait().context("the program cannot be waited for")?;
    is_over.store(true, Ordering::SeqCst);
    let told = Told::collect(&folder.0, name, &words_of(status));
    match to {
        None => {
            // A reader that has gone away is no failure of the program's.
            let _ = std::io::stderr().write_all(told.text().as_bytes());
        }
        Some(file) => {
            let what = match file.extension().and_then(|extension| extension.to_str()) {
                Some("json") => told.json()?,
                Some("html" | "htm") => page::html(&told),
                _ => told.text(),
            };
            fs::write(file, what)
                .with_context(|| format!("the report cannot be written to {}", file.display()))?;
        }
    }
    let code = status.code().or(status.signal().map(|signal| SIGNALLED + signal)).unwrap_or(1);
    Ok(ExitCode::from(code as u8))
}

/// Passes signals to the program, for as long as it is there. Those of the keyboard go to it anyway.
fn pass_on(signals: EndSignals, child: u32, is_over: Arc<AtomicBool>) {
    let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) else { return };
    std::thread::spawn(move || {
        while !is_over.load(Ordering::SeqCst) {
            let (signal, is_sent) = signals.wait();
            if is_sent
                && !is_over.load(Ordering::SeqCst)
                && let Some(signal) = Signal::from_named_raw(signal)
            {
                let _ = kill_process(child, signal);
            }
        }
    });
}

fn words_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_string(),
    }
}
