//! Programs of `riscv/`, built with Debian's RISC-V gcc, and packets for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use highwire_riscv::Program;

/// The directory with the built programs; nothing, and the reason printed, where there is no compiler.
fn programs() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../riscv");
            let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("riscv-{}", std::process::id()));
            if Command::new("riscv64-unknown-elf-gcc").arg("--version").output().is_err() {
                println!("skipped: no riscv64-unknown-elf-gcc, from Debian's gcc-riscv64-unknown-elf");
                return None;
            }
            let mut make = Command::new("make");
            make.arg("-s").arg("-C").arg(source).arg(format!("BUILD={}", build.display()));
            let output = make.output().expect("make runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(build)
        })
        .as_deref()
}

/// A program of `riscv/programs`, if it can be built here.
pub(crate) fn program(name: &str) -> Option<Program> {
    let file = programs()?.join(format!("{name}.elf"));
    #[allow(clippy::disallowed_methods, reason = "a test reads its program")]
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    Some(Program::parse(&bytes).expect("the linker makes whole programs"))
}

/// The client that sends to the node.
#[allow(dead_code, reason = "not every test sends")]
pub(crate) const CLIENT: u32 = 0x0a00_0001;
/// The node.
#[allow(dead_code, reason = "not every test sends")]
pub(crate) const NODE: u32 = 0x0a00_0002;
