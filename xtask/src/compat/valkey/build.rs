//! Valkey's programs, built from the source that Debian publishes, and kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::debian::upstream;
use crate::shell::{Line, Log};

use super::super::judge::last_line;

/// The first of Debian's suites whose Valkey has clients that speak RDMA (9.1); it becomes a stable release.
const SUITE: &str = "forky";
/// The module is a file of its own, and clients load the libraries of RDMA only when asked for it: what a
/// distribution would ship. No allocator, Lua, or systemd of its own: they take minutes, and RDMA meets none.
const MAKE: &str = "BUILD_RDMA=module MALLOC=libc BUILD_LUA=no USE_SYSTEMD=no OPTIMIZATION=-O2 \
     valkey-server valkey-cli valkey-benchmark valkey-rdma.so";
const FILES: &[&str] = &["valkey-server", "valkey-cli", "valkey-benchmark", "valkey-rdma.so"];
const TEST: &str = "rdma-test";
/// A file beside the programs: by what they were built, and which version they are.
const RECIPE: &str = "recipe";

/// The built programs.
#[derive(Debug)]
pub(super) struct Programs {
    folder: PathBuf,
    /// As Debian numbers it.
    pub(super) version: String,
}

/// Why there are none.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The source cannot be had here.
    NoSource(String),
    /// It does not build.
    NoBuild(String),
}

impl Programs {
    pub(super) fn at(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Valkey's own test of its module.
    pub(super) fn test(&self) -> String {
        self.at(TEST)
    }

    fn load(folder: &Path) -> Option<Programs> {
        let recipe = fs::read_to_string(folder.join(RECIPE)).ok()?;
        let version = recipe.strip_prefix(MAKE)?.trim().to_string();
        Some(Programs { folder: folder.to_path_buf(), version })
    }
}

/// The programs; the first call builds them, unless they are there from a former run.
pub(super) fn programs(folder: &Path) -> Result<&'static Programs, &'static Trouble> {
    static BUILT: OnceLock<Result<Programs, Trouble>> = OnceLock::new();
    BUILT.get_or_init(|| build(&folder.join("valkey"))).as_ref()
}

fn build(work: &Path) -> Result<Programs, Trouble> {
    let built = work.join("built");
    if let Some(programs) = Programs::load(&built) {
        return Ok(programs);
    }
    let (tree, version) = upstream(SUITE, "valkey", work).map_err(|error| {
        // Of what apt says, the last line names no host, and fits into a table.
        let reason = last_line(&format!("{error:#}"));
        Trouble::NoSource(format!("Debian's source of Valkey cannot be had here: {reason}"))
    })?;
    compile(&tree, &version, &built).map_err(|error| Trouble::NoBuild(format!("{error:#}")))?;
    let _ = fs::remove_dir_all(&tree);
    Programs::load(&built).ok_or_else(|| Trouble::NoBuild("the programs are not where they were put".into()))
}

/// Builds the programs and copies them to `to`, the last of all under its name: a folder of this name is whole.
fn compile(tree: &Path, version: &str, to: &Path) -> Result<()> {
    let log = Log::create("compat-valkey")?;
    println!("valkey: building {version}");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // Cargo's own make flags are for cargo's build scripts.
    let make = Line::new("env").words("-u MAKEFLAGS -u CFLAGS -u LDFLAGS make -C").arg(tree.join("src"));
    if !make.arg(format!("-j{cores}")).words(MAKE).run_logged(&log)? {
        bail!("Valkey does not build: {}", log.name());
    }
    let fresh = to.with_extension("new");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh)?;
    for file in FILES {
        fs::copy(tree.join("src").join(file), fresh.join(file)).with_context(|| (*file).to_string())?;
    }
    let test = Line::new("gcc").words("-O2 -o").arg(fresh.join(TEST));
    let test = test.arg(tree.join("tests/rdma/rdma-test.c")).words("-lpthread -libverbs -lrdmacm");
    if !test.run_logged(&log)? {
        bail!("Valkey's own test does not build: {}", log.name());
    }
    fs::write(fresh.join(RECIPE), format!("{MAKE}\n{version}\n"))?;
    let _ = fs::remove_dir_all(to);
    fs::rename(&fresh, to).with_context(|| to.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_another_recipe_are_not_used() {
        let folder = std::env::temp_dir().join(format!("valkey-recipe-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        assert!(Programs::load(&folder).is_none());
        fs::write(folder.join(RECIPE), "BUILD_RDMA=no\n9.1.2\n").expect("a file");
        assert!(Programs::load(&folder).is_none());
        fs::write(folder.join(RECIPE), format!("{MAKE}\n9.1.2\n")).expect("a file");
        assert_eq!(Programs::load(&folder).expect("as built now").version, "9.1.2");
        fs::remove_dir_all(&folder).expect("it was made here");
    }
}
