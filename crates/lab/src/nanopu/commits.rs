//! `--commits`: the log of instructions, in the order of their commits.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use highwire_nanopu::Commit;

/// The log, if one was asked for. The first failure to write is kept, and ends it.
pub(super) struct CommitLog {
    out: Option<BufWriter<File>>,
    failure: Option<std::io::Error>,
}

impl CommitLog {
    pub(super) fn new(path: Option<&Path>) -> Result<CommitLog> {
        let open = |path: &Path| {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Ok::<_, anyhow::Error>(BufWriter::new(file))
        };
        Ok(CommitLog { out: path.map(open).transpose()?, failure: None })
    }

    pub(super) fn note(&mut self, core: usize, commit: &Commit) {
        if let Some(out) = &mut self.out
            && let Err(error) = writeln!(out, "core {core}, cycle {}: {}", commit.cycle, commit.retired)
        {
            (self.out, self.failure) = (None, Some(error));
        }
    }

    /// All lines are in the file.
    pub(super) fn finish(self) -> Result<()> {
        if let Some(error) = self.failure {
            return Err(error).context("the log of commits");
        }
        match self.out {
            Some(mut out) => out.flush().context("the log of commits"),
            None => Ok(()),
        }
    }
}
