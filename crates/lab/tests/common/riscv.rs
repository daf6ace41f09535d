//! Programs for the simulated cores, built with Debian's RISC-V gcc.
#![allow(dead_code, reason = "not every test uses both kinds")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A program of `riscv/`, built with Debian's gcc; nothing, and the reason printed, without it.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    built("programs", name)
}

/// A program of `tests/mistakes`.
pub(crate) fn mistaken(name: &str) -> Option<PathBuf> {
    built(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mistakes"), name)
}

/// A program of `tests/debugged`.
pub(crate) fn debugged(name: &str) -> Option<PathBuf> {
    built(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/debugged"), name)
}

/// A program of `tests/bare`, for the core alone.
pub(crate) fn bare(name: &str) -> Option<PathBuf> {
    built(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bare"), name)
}

/// A program of `tests/handled`, which traps.
pub(crate) fn handled(name: &str) -> Option<PathBuf> {
    built(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/handled"), name)
}

/// Programs from `sources`, as `riscv/Makefile` builds them.
fn built(sources: &str, name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../riscv");
    let last = Path::new(sources).file_name().expect("a directory");
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("riscv").join(last);
    if Command::new("riscv64-unknown-elf-gcc").arg("--version").output().is_err() {
        println!("skipped: no riscv64-unknown-elf-gcc, from Debian's gcc-riscv64-unknown-elf");
        return None;
    }
    // Tests run side by side, and each needs complete programs.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(source);
    make.arg(format!("BUILD={}", build.display())).arg(format!("SOURCES={sources}"));
    assert!(make.status().expect("make runs").success());
    Some(build.join(format!("{name}.elf")))
}
