//! Software of others that is distributed as Python wheels: each set of wheels has a virtual environment of its own.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::shell::{Line, Log, has_program, root, target_dir};

/// A Python that has these wheels, without what they would install for graphics processors, and `needs` with all that these need; or why there
/// is none. The folder is named after the first wheel.
///
/// # Errors
/// A program cannot be started.
pub(crate) fn python(wheels: &[&str], needs: &[&str], log: &Log) -> Result<Result<PathBuf, String>> {
    if !has_program("python3") {
        return Ok(Err("no python3 here".into()));
    }
    let folder = target_dir().join("wheels").join(wheels[0]);
    let python = folder.join("bin/python");
    if !python.exists() && !Line::new("python3").words("-m venv").arg(&folder).run_logged(log)? {
        let _ = fs::remove_dir_all(&folder);
        return Ok(Err("python3 makes no virtual environment; Debian's package is python3-venv".into()));
    }
    let pip = |words: &str, names: &[&str]| {
        let line = Line::new(&python.to_string_lossy()).words("-m pip").words(words);
        names.iter().fold(line, |line, name| line.arg(name))
    };
    // `show` takes names without versions.
    let all: Vec<&str> = wheels.iter().chain(needs).filter_map(|name| name.split("==").next()).collect();
    let has_all = pip("show --quiet", &all).run_logged(log)?
        || pip("install --quiet --no-deps", wheels).run_logged(log)?
            && (needs.is_empty() || pip("install --quiet", needs).run_logged(log)?);
    if !has_all {
        return Ok(Err(format!("the wheel {} cannot be had here: {} says why", wheels[0], log.name())));
    }
    Ok(Ok(python))
}

/// A program of this repository that software of others runs.
pub(crate) fn script(name: &str) -> PathBuf {
    root().join("interop/programs").join(name)
}
