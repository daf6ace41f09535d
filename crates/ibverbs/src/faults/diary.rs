//! The log of what went wrong: a line for each thing, without times, so that the logs of two runs can be compared.

use crate::env;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

/// The file, if one was asked for.
pub(super) struct Diary {
    file: Option<Mutex<File>>,
}

impl Diary {
    /// The first process of a run writes to the file that was named; each further one to a file of its own beside it.
    pub(super) fn open(path: Option<&Path>) -> Diary {
        let file = path.and_then(|path| match open(path) {
            Ok(file) => Some(Mutex::new(file)),
            Err(error) => {
                env::say(&format!("HIGHWIRE_SCENARIO_LOG is `{}`: {error}", path.display()));
                None
            }
        });
        Diary { file }
    }

    pub(super) fn line(&self, line: &str) {
        env::log(|| format!("scenario: {line}"));
        let Some(file) = &self.file else { return };
        // A disk that is full loses lines, and the program goes on.
        let _ = super::lock(file).write_all(format!("{line}\n").as_bytes());
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    if file.try_lock().is_ok() {
        file.set_len(0)?;
        return Ok(file);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    File::create(path.with_file_name(format!("{name}-{}", std::process::id())))
}
