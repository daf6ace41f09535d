//! `cargo xtask libs`: the shared objects that programs written for RDMA cards load.
//!
//! A Rust `cdylib` cannot carry versioned symbols, so the static library of `crates/ibverbs` is linked here, with a version
//! script made from `crates/ibverbs/symbols/*.txt`. Everything lies in `libibverbs.so.1`, so that its state exists once;
//! `librdmacm.so.1` only promises its versions and needs the other. `libhighwire-paths.so` and
//! `libhighwire-poll.so` stand alone.

mod script;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::debug;
use crate::shell::{Line, root, target_dir};

use table::Table;

/// Options of `cargo xtask libs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask libs --release       target/release/highwire-libs, where `highwire run` finds them
  LD_LIBRARY_PATH=target/release/highwire-libs ibv_devices")]
pub(crate) struct Args {
    /// Build optimised.
    #[arg(long)]
    release: bool,
}

/// Builds both objects and prints their place.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match build(args.release)? {
        Some(folder) => {
            println!("{}", folder.display());
            Ok(ExitCode::SUCCESS)
        }
        None => Ok(ExitCode::FAILURE),
    }
}

/// Builds the objects; returns their folder, or `None` if the compiler failed.
pub(crate) fn build(release: bool) -> Result<Option<PathBuf>> {
    let profile = if release { "release" } else { "debug" };
    let others = "--package highwire-paths --package highwire-poll --lib";
    let cargo = if release {
        Line::cargo("build --release --package highwire-ibverbs")
    } else {
        debug::build("highwire-ibverbs", "")
    };
    if !cargo.words(others).arg("--quiet").run()? {
        return Ok(None);
    }
    let built = target_dir().join(profile);
    let folder = built.join("highwire-libs");
    link_all(&built, &folder, None)?;
    Ok(Some(folder))
}

/// Makes the objects in `folder` from what cargo has built. `stubs` is a folder with the development files of an older C library.
pub(crate) fn link_all(built: &Path, folder: &Path, stubs: Option<&Path>) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let table = table()?;
    link_ibverbs(&table, &built.join("libhighwire_ibverbs.a"), folder, stubs)?;
    link_rdmacm(&table, folder, stubs)?;
    // Cdylibs as cargo makes them: none of their symbols has a version.
    for (made, name) in
        [("libhighwire_paths.so", "libhighwire-paths.so"), ("libhighwire_poll.so", "libhighwire-poll.so")]
    {
        let copy = folder.join(unfinished(name));
        std::fs::copy(built.join(made), &copy).with_context(|| format!("no {made}"))?;
        // Renamed into place: programs that have the old one mapped keep it.
        put(&copy, &folder.join(name))?;
    }
    Ok(())
}

/// The objects' exports.
pub(crate) fn table() -> Result<Table> {
    let folder = root().join("crates/ibverbs/symbols");
    let mut table = Table::default();
    for name in ["ibverbs.txt", "rdmacm.txt"] {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        table.read(name, &text)?;
    }
    Ok(table)
}

fn link_ibverbs(table: &Table, archive: &Path, folder: &Path, stubs: Option<&Path>) -> Result<()> {
    let script = write(folder, "libibverbs.map", &script::versions(table, |_| true))?;
    let aliases = write(folder, "aliases.c", &script::aliases(table))?;
    let calls = root().join("crates/ibverbs/symbols/c_library.c");
    let source = std::fs::read_to_string(&calls).with_context(|| calls.display().to_string())?;
    let mut line = cc(stubs).arg(&aliases).arg(&calls);
    for name in script::wrapped(&source) {
        line = line.arg(format!("-Wl,--wrap={name}"));
    }
    let line = line
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .words("-Wl,-soname,libibverbs.so.1 -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,-z,nodelete")
        .arg(format!("-Wl,--version-script,{}", script.display()))
        .words("-lpthread -ldl -lm -lgcc_s -lc");
    link(line, folder, "libibverbs.so.1")
}

fn link_rdmacm(table: &Table, folder: &Path, stubs: Option<&Path>) -> Result<()> {
    let nodes = script::versions(table, |node| node.starts_with("RDMACM_"));
    let script = write(folder, "librdmacm.map", &nodes)?;
    let line = cc(stubs)
        .words("-x c /dev/null -x none -Wl,--no-as-needed")
        .arg(folder.join("libibverbs.so.1"))
        // Its other half is the one beside it, also for a loader that was not told of the folder.
        .words("-Wl,-soname,librdmacm.so.1 -Wl,-rpath,$ORIGIN")
        .arg(format!("-Wl,--version-script,{}", script.display()));
    link(line, folder, "librdmacm.so.1")
}

/// Links an object under another name and puts it in its place when it is whole: programs that start meanwhile find the old one.
fn link(line: Line, folder: &Path, name: &str) -> Result<()> {
    let new = folder.join(unfinished(name));
    check(&line.arg("-o").arg(&new))?;
    put(&new, &folder.join(name))
}

/// The name of a file that is not whole yet: another `xtask` may be making the same one.
fn unfinished(name: &str) -> String {
    format!(".{name}.{}", std::process::id())
}

fn put(new: &Path, place: &Path) -> Result<()> {
    std::fs::rename(new, place).with_context(|| format!("cannot write {}", place.display()))
}

fn cc(stubs: Option<&Path>) -> Line {
    let line = Line::new("cc").words("-shared -fPIC -O2 -Wall -Werror");
    match stubs {
        // The slash makes it a folder and not the beginning of names.
        Some(folder) => {
            line.arg(format!("-B{}/", folder.display())).words("-Wl,-z,defs,--allow-shlib-undefined")
        }
        None => line,
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let (new, path) = (folder.join(unfinished(name)), folder.join(name));
    std::fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
    put(&new, &path)?;
    Ok(path)
}

fn check(line: &Line) -> Result<()> {
    let output = line.capture()?;
    if !output.success {
        bail!("$ {line}\n{}{}", output.stdout, output.stderr);
    }
    Ok(())
}
