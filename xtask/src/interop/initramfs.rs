//! The guest's whole file system: kernel modules, programs with their libraries, the agent and `init`.
//!
//! It is made anew for every run (it takes less than a second) and not compressed: unpacking would cost the
//! emulated processor more than reading the larger file costs QEMU.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cpio::Cpio;
use super::guest_sources;
use super::kernel::Kernel;

/// Modules that `init` loads, in this order, each after its dependencies.
///
/// `crc32_generic` is rxe's ICRC, which it asks for by the algorithm's name, so no dependency mentions it.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "crc32_generic",
    "rdma_rxe",
    "rdma_ucm",
    "sch_prio",
    "sch_netem",
    "sch_ingress",
    "cls_u32",
    "act_gact",
];

/// Programs of this machine that go into the guest with the libraries they load.
const PROGRAMS: &[&str] = &[
    "/usr/sbin/ip",
    "/usr/sbin/tc",
    "/usr/bin/rdma",
    "/usr/bin/ibv_devices",
    "/usr/bin/ibv_devinfo",
    "/usr/bin/ibv_rc_pingpong",
    "/usr/bin/ibv_uc_pingpong",
    "/usr/bin/ibv_ud_pingpong",
    "/usr/bin/ibv_srq_pingpong",
    "/usr/bin/rping",
    "/usr/bin/ucmatose",
    "/usr/bin/udaddy",
    "/usr/bin/rstream",
    "/usr/bin/ib_send_lat",
    "/usr/bin/ib_send_bw",
    "/usr/bin/ib_write_lat",
    "/usr/bin/ib_write_bw",
    "/usr/bin/ib_read_lat",
    "/usr/bin/ib_read_bw",
    "/usr/bin/ib_atomic_lat",
    "/usr/bin/ib_atomic_bw",
];

/// Libraries that programs open by name at run time: rxe's provider, the one that `pthread_exit` needs, and
/// the loader, for which a second linker namespace asks by its name.
const LIBRARIES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so",
    "/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
];

/// The folder of Highwire's own files in the guest.
pub(super) const OURS: &str = "/highwire";

/// The built initramfs within the work folder.
pub(super) fn path(work: &Path) -> PathBuf {
    work.join("initramfs.cpio")
}

/// The kernel image that [`build`] put beside the initramfs.
pub(super) fn kernel_path(work: &Path) -> PathBuf {
    work.join("kernel-image")
}

/// Compiles the agent and writes the initramfs, with files of `ours` in [`OURS`], and a link to the kernel image into `work`.
///
/// # Errors
/// The agent does not compile, or a module, program or library is missing.
pub(super) fn build(kernel: &Kernel, ours: &[PathBuf], work: &Path) -> Result<()> {
    build_with(kernel, ours, &[], work)
}

/// The same with `more` of this machine's files and folders at their own places.
pub(super) fn build_with(kernel: &Kernel, ours: &[PathBuf], more: &[PathBuf], work: &Path) -> Result<()> {
    let agent = compile_agent(work)?;
    let ours = ours.iter().map(|file| stripped(file, work)).collect::<Result<Vec<PathBuf>>>()?;
    let mut files = BTreeMap::new();
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    for file in &ours {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        files.insert(format!("{OURS}/{name}"), read(file)?);
    }
    files.insert("/init".into(), read(&guest_sources().join("init"))?);
    files.insert("/usr/bin/pair".into(), read(&guest_sources().join("pair"))?);
    files.insert("/bin/busybox".into(), read(Path::new("/bin/busybox"))?);
    files.insert("/usr/bin/interop-agent".into(), read(&agent)?);
    files.insert("/etc/libibverbs.d/rxe.driver".into(), b"driver rxe\n".to_vec());
    add_modules(kernel, MODULES, &mut files)?;

    let mut programs: Vec<PathBuf> =
        PROGRAMS.iter().map(PathBuf::from).filter(|program| program.exists()).collect();
    programs.extend(libraries_by_name());
    let (mut objects, mut texts) = (Vec::new(), Vec::new());
    for path in more {
        gather(path, &mut objects, &mut texts)?;
    }
    for text in texts {
        files.insert(text.to_string_lossy().into_owned(), read(&text)?);
    }
    programs.extend(objects);
    for library in libraries_of(programs.iter().chain([&agent]).chain(&ours))? {
        files.insert(library.clone(), read(Path::new(&library))?);
    }
    for program in &programs {
        files.insert(program.to_string_lossy().into_owned(), read(program)?);
    }

    fs::write(path(work), archive(&files)).context("cannot write the initramfs")?;
    let link = kernel_path(work);
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&kernel.image, &link).context("cannot link the kernel image")
}

/// Files below `path`: those that are linked, and all others. Links are followed; what Python compiles is left out.
fn gather(path: &Path, objects: &mut Vec<PathBuf>, texts: &mut Vec<PathBuf>) -> Result<()> {
    if path.file_name().is_some_and(|name| name == "__pycache__" || name == "test") {
        return Ok(());
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
            gather(&entry?.path(), objects, texts)?;
        }
    } else if path.is_file() {
        let mut head = [0; 4];
        let is_linked = fs::File::open(path)
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head))
            .is_ok_and(|()| head == *b"\x7fELF");
        let list = if is_linked { objects } else { texts };
        list.push(path.to_owned());
    }
    Ok(())
}

/// A copy without the sections for debuggers, which are nine tenths of it.
pub(super) fn stripped(file: &Path, work: &Path) -> Result<PathBuf> {
    let folder = work.join("stripped");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let copy = folder.join(file.file_name().context("a file has a name")?);
    let output = Command::new("strip").arg("-o").arg(&copy).arg(file).output().context("cannot run strip")?;
    if !output.status.success() {
        bail!("strip fails:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(copy)
}

/// Compiles the agent against this machine's libibverbs.
fn compile_agent(work: &Path) -> Result<PathBuf> {
    let agent = work.join("interop-agent");
    let mut sources: Vec<PathBuf> = fs::read_dir(guest_sources())?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let output = Command::new("gcc")
        .args(["-std=c17", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&agent)
        .args(&sources)
        .arg("-libverbs")
        .output()
        .context("cannot run gcc")?;
    if !output.status.success() {
        bail!("the agent does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(agent)
}

/// Adds these modules with their dependencies, and the order to load them in.
pub(super) fn add_modules(
    kernel: &Kernel,
    names: &[&str],
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<()> {
    let mut index = BTreeMap::new();
    index_modules(&kernel.modules.join("kernel"), &mut index)?;
    let mut order = Vec::new();
    for name in names {
        add_module(name, &index, files, &mut order)?;
    }
    files.insert("/modules/order".into(), (order.join("\n") + "\n").into_bytes());
    Ok(())
}

/// Maps each module's name to its file.
fn index_modules(dir: &Path, index: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("no modules in {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            index_modules(&path, index)?;
        } else if let Some((name, "ko" | "ko.xz")) =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('.'))
        {
            index.insert(name.replace('-', "_"), path.clone());
        }
    }
    Ok(())
}

/// Adds one module behind everything it depends on. One without a file is built into the kernel.
fn add_module(
    name: &str,
    index: &BTreeMap<String, PathBuf>,
    files: &mut BTreeMap<String, Vec<u8>>,
    order: &mut Vec<String>,
) -> Result<()> {
    let file = format!("{name}.ko");
    let Some(path) = index.get(name) else { return Ok(()) };
    if order.contains(&file) {
        return Ok(());
    }
    let bytes = read_module(path)?;
    for dependency in dependencies(&bytes) {
        add_module(&dependency.replace('-', "_"), index, files, order)?;
    }
    files.insert(format!("/modules/{file}"), bytes);
    order.push(file);
    Ok(())
}

fn read_module(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|extension| extension == "ko") {
        return fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    }
    let output = Command::new("xz").arg("-dc").arg(path).output().context("cannot run xz")?;
    if !output.status.success() {
        bail!("xz cannot unpack {}", path.display());
    }
    Ok(output.stdout)
}

/// The `depends=` string of a module's `.modinfo` section: zero-terminated, names separated by commas.
fn dependencies(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(start) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let value = module[start + key.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let value = String::from_utf8_lossy(value);
    value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Every library that the dynamic linker would load for `programs`, by the paths it would use.
pub(super) fn libraries_of<'a>(programs: impl Iterator<Item = &'a PathBuf>) -> Result<BTreeSet<String>> {
    let output = Command::new("ldd").args(programs).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        bail!("a guest program lacks a library: {}", line.trim());
    }
    // "libc.so.6 => /lib/…/libc.so.6 (0x…)" or "/lib64/ld-linux-x86-64.so.2 (0x…)"
    Ok(text
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/') && !word.ends_with(':')))
        .map(str::to_owned)
        .collect())
}

/// The libraries of [`LIBRARIES`] that this machine has.
pub(super) fn libraries_by_name() -> impl Iterator<Item = PathBuf> {
    LIBRARIES.iter().filter_map(|pattern| newest_match(pattern))
}

/// The last file, by name, that matches a path with one `*` in its file name.
fn newest_match(pattern: &str) -> Option<PathBuf> {
    let (dir, name) = pattern.rsplit_once('/')?;
    let (prefix, suffix) = name.split_once('*').unwrap_or((name, ""));
    let matches = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix) && name.ends_with(suffix)
    };
    fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(matches).max()
}

/// The whole file system as one archive.
pub(super) fn archive(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut folders: BTreeSet<&str> =
        BTreeSet::from(["/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/usr", "/usr/lib"]);
    for path in files.keys() {
        folders.extend(path.match_indices('/').filter(|(at, _)| *at > 0).map(|(at, _)| &path[..at]));
    }
    let mut cpio = Cpio::default();
    // A folder sorts before everything inside it.
    folders.iter().for_each(|folder| cpio.dir(folder));
    for (path, content) in files {
        cpio.file(path, content);
    }
    cpio.link("/sbin", "usr/sbin");
    cpio.finish()
}
