//! The newest kernel that Debian builds for people who keep a stable release: it has sched_ext and extensions of time slices.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::source;
use crate::debian::View;
use crate::interop::kernel::Kernel;
use crate::shell::Line;

/// The suite of the newest kernel: this machine's own release keeps the kernel with which it began.
const SUITE: &str = "trixie-backports";
const META: &str = "linux-image-amd64";
/// The guest's program that loads the scheduler; the scheduler itself lies beside it.
const LOADER: &str = "wake-scheduler";
/// The packages with which both are built.
pub(super) const PACKAGES: &[&str] =
    &["clang", "libbpf-dev", "libelf-dev", "libc6-dev", "linux-libc-dev", "xz-utils"];

/// Downloads it unless it is there already.
///
/// # Errors
/// apt reaches no archive, or the kernel comes in other packages than before.
pub(super) fn fetch(work: &Path) -> Result<Kernel> {
    let folder = work.join(SUITE);
    let view = View::of_suite(SUITE, &folder)?;
    let image = view.depends(META)?.into_iter().find(|name| name.starts_with("linux-image-"));
    let image = image.with_context(|| format!("{SUITE} has no {META}"))?;
    let is_part = |name: &String| name.starts_with("linux-binary-") || name.starts_with("linux-modules-");
    let parts: Vec<String> = view.depends(&image)?.into_iter().filter(is_part).collect();
    if parts.len() != 2 {
        bail!("{image} consists of {parts:?}, and not of a kernel and its modules");
    }
    let tree = folder.join(&image);
    view.unpack(&parts, &tree)?;
    let modules = fs::read_dir(tree.join("usr/lib/modules"))?.next().context("no modules")??.path();
    Ok(Kernel { image: modules.join("vmlinuz"), modules })
}

/// Compiles the scheduler and the program that loads it; returns both.
///
/// # Errors
/// One does not compile: with the compiler's output.
pub(super) fn scheduler(work: &Path) -> Result<[PathBuf; 2]> {
    let folder = work.join("scheduler");
    fs::create_dir_all(&folder)?;
    let (loader, object) = (folder.join(LOADER), folder.join(format!("{LOADER}.bpf.o")));
    // The architecture's own folder of headers: a compiler for BPF searches none.
    let machine = Line::new("gcc").words("-print-multiarch").capture()?.stdout;
    let headers = format!("-I/usr/include/{}", machine.trim());
    let bpf = Line::new("clang").words("-O2 -g -Wall -Werror -target bpf -D__TARGET_ARCH_x86").arg(headers);
    compile(bpf.arg("-c").arg(source("scheduler/wake.bpf.c")).arg("-o").arg(&object))?;
    let c = Line::new("gcc").words("-std=gnu17 -O2 -Wall -Wextra -Werror").arg(source("scheduler/load.c"));
    compile(c.arg("-o").arg(&loader).arg("-lbpf"))?;
    Ok([loader, object])
}

fn compile(line: Line) -> Result<()> {
    let output = line.capture()?;
    if !output.success {
        bail!("the scheduler does not build:\n$ {line}\n{}", output.stderr);
    }
    Ok(())
}
