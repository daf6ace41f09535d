//! The kernel module: Debian's headers of the guest's kernel, and the build against them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::source;
use crate::debian::View;
use crate::interop::kernel::Kernel;
use crate::shell::Line;

/// The built module's file name.
pub(super) const FILE: &str = "highwire_wake.ko";

/// Builds the module for `kernel` in a folder of `work`; returns the module.
///
/// # Errors
/// The headers cannot be downloaded, or the module does not compile: with make's output.
pub(super) fn build(kernel: &Kernel, work: &Path) -> Result<PathBuf> {
    let headers = headers(&kernel.release(), work)?;
    let folder = work.join("module");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(source("module"))? {
        let path = entry?.path();
        fs::copy(&path, folder.join(path.file_name().context("a file has a name")?))?;
    }
    // Warnings of this module are errors, as elsewhere in the repository.
    let line = Line::new("make").words("-s -C").arg(&headers).arg(format!("M={}", folder.display()));
    let output = line.arg("KCFLAGS=-Werror").arg("modules").capture()?;
    let module = folder.join(FILE);
    if !output.success || !module.exists() {
        bail!("the module does not build:\n{}{}", output.stdout, output.stderr);
    }
    Ok(module)
}

/// The folder to call make in. Its own paths begin at the root, where these headers are not.
pub(super) fn headers(release: &str, work: &Path) -> Result<PathBuf> {
    let package = format!("linux-headers-{release}");
    let view = View::of_this_machine();
    let tree = work.join(&package);
    let mut packages: Vec<String> = view
        .depends(&package)?
        .into_iter()
        .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"))
        .collect();
    packages.push(package.clone());
    let folder = tree.join("usr/src").join(&package);
    if !tree.exists() {
        view.unpack(&packages, &tree)?;
        let makefile = folder.join("Makefile");
        let text = fs::read_to_string(&makefile)
            .with_context(|| format!("no makefile in {}", folder.display()))?
            .replace("/usr/src/", &format!("{}/usr/src/", tree.display()));
        fs::write(&makefile, text)?;
    }
    Ok(folder)
}
