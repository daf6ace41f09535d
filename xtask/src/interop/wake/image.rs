//! The guest's initramfs: `init`, the programs that it runs with their libraries, the module, the scheduler, and rxe with its programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::source;
use crate::interop::initramfs::{self, OURS};
use crate::interop::kernel::Kernel;

/// Modules that the guest loads before anything else, for its `rxe0`.
const MODULES: &[&str] = &["dummy", "crc32_generic", "rdma_rxe", "ib_uverbs"];

const PROGRAMS: &[&str] = &[
    "/usr/sbin/ip",
    "/usr/bin/rdma",
    "/usr/bin/ibv_devices",
    "/usr/bin/ibv_rc_pingpong",
    "/usr/bin/ib_send_lat",
];

/// Writes the initramfs and a link to the kernel image into `work`; `ours` go to [`OURS`].
///
/// # Errors
/// A module, program or library is missing.
pub(super) fn build(kernel: &Kernel, ours: &[PathBuf], work: &Path) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut files = BTreeMap::new();
    files.insert("/init".into(), read(&source("init"))?);
    files.insert("/bin/busybox".into(), read(Path::new("/bin/busybox"))?);
    files.insert("/etc/libibverbs.d/rxe.driver".into(), b"driver rxe\n".to_vec());
    initramfs::add_modules(kernel, MODULES, &mut files)?;
    for file in ours {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        files.insert(format!("{OURS}/{name}"), read(file)?);
    }
    let mut programs: Vec<PathBuf> =
        PROGRAMS.iter().map(PathBuf::from).filter(|program| program.exists()).collect();
    programs.extend(initramfs::libraries_by_name());
    let linked = ours.iter().filter(|file| file.extension().is_none());
    for library in initramfs::libraries_of(programs.iter().chain(linked))? {
        files.insert(library.clone(), read(Path::new(&library))?);
    }
    for program in &programs {
        files.insert(program.to_string_lossy().into_owned(), read(program)?);
    }
    fs::write(work.join("initramfs.cpio"), initramfs::archive(&files))
        .context("cannot write the initramfs")?;
    let link = work.join("kernel-image");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&kernel.image, &link).context("cannot link the kernel image")
}
