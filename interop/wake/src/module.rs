//! The kernel module, loaded for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::sys;

const PARAMETERS: &str = "/sys/module/highwire_wake/parameters";
/// The kernel lets go of a file a moment after its process has ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// Unloads the module when dropped.
#[derive(Debug)]
pub(crate) struct Module {
    is_loaded: bool,
}

/// How often a reader of a completion channel has polled, and how often it then had its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Polled {
    pub(crate) polls: u64,
    pub(crate) hits: u64,
}

impl Module {
    /// Loads it; readers of completion channels poll for the given time.
    ///
    /// # Errors
    /// The kernel refuses it: with the output of `insmod`.
    pub(crate) fn load(file: &PathBuf, channel_poll_us: u32) -> Result<Module> {
        let poll = format!("channel_poll_us={channel_poll_us}");
        let output = Command::new("insmod").arg(file).arg(poll).output().context("cannot run insmod")?;
        let refusal = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the module is not loaded: {}", refusal.trim());
        Ok(Module { is_loaded: true })
    }

    pub(crate) fn polled(&self) -> Result<Polled> {
        let count = |name: &str| -> Result<u64> {
            let path = Path::new(PARAMETERS).join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(text.trim().parse()?)
        };
        Ok(Polled { polls: count("channel_polls")?, hits: count("channel_hits")? })
    }

    /// Unloads it now.
    ///
    /// # Errors
    /// A program still uses it.
    pub(crate) fn unload(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let begin = Instant::now();
        while let Err(error) = sys::unload() {
            ensure!(begin.elapsed() < PATIENCE, "the module is not unloaded: {error}");
            thread::sleep(Duration::from_millis(10));
        }
        self.is_loaded = false;
        Ok(())
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.is_loaded {
            let _ = self.end();
        }
    }
}
