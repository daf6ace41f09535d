//! The program under test, as its users start it.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// The built program with `args`.
pub(crate) fn highwire<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwire"));
    command.args(args);
    command
}

/// The golden captures of the repository.
pub(crate) fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/roce")
}
