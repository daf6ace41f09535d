//! Highwire's end: a process that speaks the same lines as the guest's agent (`interop/peer`).

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::shell::{Line, target_dir};

/// Builds the program. Its errors are the compiler's.
pub(super) fn build() -> Result<()> {
    let output = Line::cargo("build --quiet --release --package interop-peer").capture()?;
    if !output.success {
        bail!("Highwire's end does not build:\n{}", output.stderr.trim());
    }
    Ok(())
}

/// The program that [`build`] makes.
pub(super) fn program() -> PathBuf {
    target_dir().join("release/interop-peer")
}
