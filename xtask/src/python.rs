//! The simulator as a Python module: built, installed into a virtual environment, and tried as its users would.
//!
//! The environment stays in `target/python`, so that packages are fetched once. What needs them is skipped, with the
//! reason, where they cannot be had.

mod page;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell::{Line, Log, has_program, root, target_dir};
use crate::test::Tally;

/// What builds the wheel, and what the tests and the example use, by the names of their modules.
const PACKAGES: [&str; 5] = ["maturin", "numpy", "pandas", "pyarrow", "distributed"];

/// The page whose files, commands and programs are tried.
const PAGE: &str = "docs/researchers.md";

/// Builds the wheel and runs its tests, the sweep on a cluster of two workers, and the page for researchers.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    let folder = target_dir().join("python");
    let python = match environment(&folder, log)? {
        Ok(python) => python,
        Err(reason) => return Ok(Tally::skipped("python", &reason)),
    };
    let is_built = Line::cargo("build --package highwire --package highwire-lab").run_logged(log)?
        && install(&folder, &python, log)?;
    if !is_built {
        return Ok(Tally::failure());
    }
    let lab = target_dir().join("debug/highwire-lab");
    let line = Line::new(&python).words("-m unittest discover --verbose --start-directory python/tests");
    let success = line.env("HIGHWIRE_LAB", &lab).dir(root()).run_logged(log)?;
    let mut tally = counted(&log.text()?, success);
    let sweep = root().join("python/examples/sweep_dask.py");
    tally.add(Tally::one(Line::new(&python).arg(sweep).dir(&folder).run_logged(log)?));
    tally.add(Tally::one(page::run(&root().join(PAGE), &python, &folder.join("page"), log)?));
    Ok(tally)
}

/// The environment's Python, or why there is none.
fn environment(folder: &Path, log: &Log) -> Result<Result<String, String>> {
    if !has_program("python3") {
        return Ok(Err("no python3 here".into()));
    }
    let environment = folder.join("environment");
    let python = environment.join("bin/python").display().to_string();
    if !Path::new(&python).exists()
        && !Line::new("python3").words("-m venv").arg(&environment).run_logged(log)?
    {
        // Half an environment would be taken for a whole one the next time.
        let _ = std::fs::remove_dir_all(&environment);
        return Ok(Err("python3 makes no virtual environment; Debian's package is python3-venv".into()));
    }
    let modules = format!("import {}", PACKAGES.join(", "));
    let has_all = || Line::new(&python).arg("-c").arg(&modules).run_logged(log);
    if has_all()? {
        return Ok(Ok(python));
    }
    let pip = Line::new(&python).words("-m pip install --quiet --disable-pip-version-check");
    let is_there = PACKAGES.iter().fold(pip, |line, name| line.arg(name)).run_logged(log)? && has_all()?;
    Ok(if is_there { Ok(python) } else { Err("pip cannot fetch its packages; the log says why".into()) })
}

/// Builds the wheel and puts it into the environment.
fn install(folder: &Path, python: &str, log: &Log) -> Result<bool> {
    let wheels = folder.join("wheels");
    let _ = std::fs::remove_dir_all(&wheels);
    let build =
        Line::new(python).words("-m maturin build --profile dev --manifest-path python/Cargo.toml --out");
    if !build.arg(&wheels).dir(root()).run_logged(log)? {
        return Ok(false);
    }
    let wheel = only_file(&wheels)?;
    let pip = Line::new(python)
        .words("-m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall");
    pip.arg(&wheel).run_logged(log)
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let entry =
        std::fs::read_dir(folder)?.next().with_context(|| format!("nothing in {}", folder.display()))?;
    Ok(entry?.path())
}

/// What `unittest` says of each test, from its verbose output.
fn counted(output: &str, success: bool) -> Tally {
    let ends = |word: &str| output.lines().filter(|line| line.ends_with(word)).count();
    let (passed, failed) = (ends(" ... ok"), ends(" ... FAIL") + ends(" ... ERROR"));
    let is_silent = passed == 0 || !success && failed == 0;
    Tally::counts(passed, failed + usize::from(is_silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_python_are_counted() {
        let output =
            "test_a (x.A.test_a) ... ok\ntest_b (x.A.test_b) ... FAIL\ntest_c (x.A.test_c) ... ERROR\n";
        assert_eq!(counted(output, false), Tally::counts(1, 2));
        assert_eq!(counted("test_a (x.A.test_a) ... ok\n", true), Tally::counts(1, 0));
        // A run that breaks off, or that finds no test, has failed.
        assert_eq!(counted("test_a (x.A.test_a) ... ok\n", false), Tally::counts(1, 1));
        assert_eq!(counted("Ran 0 tests\n", true), Tally::counts(0, 1));
    }
}
