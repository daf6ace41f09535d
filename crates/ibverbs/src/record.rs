//! The record of this process (`HIGHWIRE_RECORD`), which `highwire run --record` asks for.
//!
//! Devices write to it by themselves; here are the lines in words, and the part of the file that a process has. A child of `fork` takes
//! another part as soon as it has something to say.

use crate::boundary::at_exit;
use crate::env;
use crate::refusal::About;
use highwire_host::record::Recorder;
use std::sync::{Arc, Mutex, Once, TryLockError};

/// The part of this process, or that there is none for it.
static PART: Mutex<Option<(u32, Option<Arc<Recorder>>)>> = Mutex::new(None);
/// How often a thread tries to get the lock: a child of `fork` may have a copy of one that nobody frees.
const PATIENCE: u32 = 10_000;

/// The record, if one was asked for and there is room for this process.
pub(crate) fn recorder() -> Option<Arc<Recorder>> {
    let file = env::settings()?.record.as_deref()?;
    let process = std::process::id();
    for _ in 0..PATIENCE {
        let mut part = match PART.try_lock() {
            Ok(part) => part,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
        };
        if let Some((owner, recorder)) = &*part
            && *owner == process
        {
            return recorder.clone();
        }
        let opened = Recorder::open(file);
        if let Err(error) = &opened {
            env::say(&format!(
                "HIGHWIRE_RECORD is `{}`, and this process is not in it: {error}",
                file.display()
            ));
        }
        let recorder = opened.ok().map(Arc::new);
        if recorder.is_some() {
            note_the_end();
        }
        // A parent's is not unmapped: its own mapping has the same pages.
        std::mem::forget(part.replace((process, recorder.clone())));
        return recorder;
    }
    None
}

/// The process asks for devices for the first time.
pub(crate) fn begin() {
    let _ = recorder();
}

/// A line about what was refused or has failed.
pub(crate) fn note(about: About, qpn: u32, line: &str) {
    if let Some(recorder) = recorder() {
        recorder.text(about, qpn, line);
    }
}

fn note_the_end() {
    extern "C" fn at_end() {
        // Another thread may hold the lock; then the end is not noted.
        if let Ok(part) = PART.try_lock()
            && let Some((process, Some(recorder))) = &*part
            && *process == std::process::id()
        {
            recorder.note_end();
        }
    }
    static ASKED: Once = Once::new();
    at_exit(&ASKED, at_end);
}
