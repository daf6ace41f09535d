//! Runs kept in a folder, so that an interrupted `sim run` goes on where it was.
//!
//! A file per run, named after its key and this program. Another program may play the same run differently, so it finds
//! nothing here: the program's own bytes are part of the key.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use highwire_sim::campaign::Archive;
use highwire_sim::report::Measures;
use serde::{Deserialize, Serialize};

/// A folder of runs.
#[derive(Debug)]
pub(super) struct Kept {
    folder: PathBuf,
    /// This program.
    program: String,
}

#[derive(Deserialize)]
struct Stored {
    key: String,
    measures: Measures,
}

#[derive(Serialize)]
struct Storing<'a> {
    key: &'a str,
    measures: &'a Measures,
}

impl Kept {
    /// The folder `out/.runs`, which is made if it does not exist.
    pub(super) fn open(out: &Path) -> Result<Self> {
        let folder = out.join(".runs");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = std::env::current_exe().context("cannot find this program")?;
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { folder, program: format!("{:016x}", hash(&bytes)) })
    }

    /// The whole key, and the file's name.
    fn place(&self, key: &str) -> (String, PathBuf) {
        let key = format!("program {}\n{key}", self.program);
        let path = self.folder.join(format!("{:016x}.json", hash(&key)));
        (key, path)
    }
}

impl Archive for Kept {
    fn find(&self, key: &str) -> Option<Measures> {
        let (key, path) = self.place(key);
        let stored: Stored = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (stored.key == key).then_some(stored.measures)
    }

    fn keep(&self, key: &str, measures: &Measures) {
        let (key, path) = self.place(key);
        let Ok(text) = serde_json::to_vec(&Storing { key: &key, measures }) else { return };
        // Renamed when it is complete: an interrupted program leaves no half of a run. Several processes may play the same run.
        let unfinished = path.with_extension(format!("{}.unfinished", std::process::id()));
        if let Err(error) =
            std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, &path))
        {
            eprintln!("warning: a run could not be kept in {}: {error}", path.display());
        }
    }
}

fn hash(what: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
