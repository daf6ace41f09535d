//! The programs under test, as their users start them.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The laboratory's program with `args`. Its devices find a broker in the program itself.
pub(crate) fn lab<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwire-lab"));
    command.args(args).env("HIGHWIRE_BROKER", env!("CARGO_BIN_EXE_highwire-lab"));
    command
}

/// The product's program with `args`.
pub(crate) fn highwire<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(product());
    command.args(args).env("HIGHWIRE_BROKER", env!("CARGO_BIN_EXE_highwire-lab"));
    command
}

/// The product beside the laboratory; built if it is not there, for cargo builds another package's program for no test.
fn product() -> &'static Path {
    static PRODUCT: OnceLock<PathBuf> = OnceLock::new();
    PRODUCT.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_BIN_EXE_highwire-lab")).parent().expect("a program lies in a folder");
        let product = folder.join("highwire");
        if !product.is_file() {
            let target = folder.parent().expect("a profile's folder lies in the build folder");
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "--package", "highwire", "--target-dir"]).arg(target);
            if folder.ends_with("release") {
                cargo.arg("--release");
            }
            assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs").success());
        }
        product
    })
}
