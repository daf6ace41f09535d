//! The tools that make packages: a Python environment in the build folder, from `packaging/tools.txt`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::packages::{self, Missing};
use crate::shell::{Line, Log, has_program, root, target_dir};

/// An environment that has the tools.
pub(crate) struct Tools {
    bin: PathBuf,
}

impl Tools {
    /// The environment; made if there is none, or if the list of tools has changed.
    ///
    /// # Errors
    /// Only those of this machine's files. Tools that cannot be had are `Missing`.
    pub(crate) fn get(log: &Log) -> Result<Result<Tools, Missing>> {
        let list = root().join("packaging/tools.txt");
        let wanted = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        let place = super::cache().join("tools");
        let tools = Tools { bin: place.join("bin") };
        let stamp = place.join("tools.txt");
        if fs::read_to_string(&stamp).is_ok_and(|has| has == wanted) {
            return Ok(Ok(tools));
        }
        if !has_program("python3")
            && let Err(missing) = packages::ensure(&["python3", "python3-venv"], log)?
        {
            return Ok(Err(missing));
        }
        let make = Line::new("python3").words("-m venv --clear").arg(&place);
        // A Python of Debian's keeps this part in a package of its own.
        if !make.run_logged(log)? {
            if let Err(missing) = packages::ensure(&["python3-venv"], log)? {
                return Ok(Err(missing));
            }
            if !make.run_logged(log)? {
                return Ok(Err(Missing(format!("no Python environment; the log {} says why", log.name()))));
            }
        }
        let pip = tools.line("python").words("-m pip install --quiet --disable-pip-version-check");
        if !pip.words("--no-deps --only-binary :all: --require-hashes -r").arg(&list).run_logged(log)? {
            return Ok(Err(Missing(format!(
                "pip cannot install packaging/tools.txt; the log {} says why",
                log.name()
            ))));
        }
        fs::write(&stamp, wanted)?;
        Ok(Ok(tools))
    }

    /// A program of the environment.
    pub(crate) fn line(&self, program: &str) -> Line {
        Line::new(&self.bin.join(program).to_string_lossy())
    }
}

/// Where the caches of compilers go, so that nothing lies in the user's home.
pub(super) fn compiler_cache() -> PathBuf {
    target_dir().join("dist-cache/zig")
}
