//! The guest's kernel: Debian's own, downloaded and unpacked, never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell::Line;

/// A kernel package unpacked under `target/interop/`.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// The bootable image.
    pub(super) image: PathBuf,
    /// The folder `lib/modules/VERSION`.
    pub(super) modules: PathBuf,
}

impl Kernel {
    /// Its version, in the form of `uname -r`.
    pub(super) fn release(&self) -> String {
        self.modules.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The stock kernel of this Debian release; downloads it unless it is there already.
///
/// # Errors
/// apt knows no kernel or cannot download it, and none was unpacked earlier.
pub(super) fn fetch(work: &Path) -> Result<Kernel> {
    let kernels = work.join("kernel");
    fs::create_dir_all(&kernels)?;
    match current_package() {
        Ok(package) => {
            let dir = kernels.join(&package);
            if !dir.exists() {
                download(&package, &kernels)?;
            }
            open(&dir)
        }
        // Without package lists (offline, say) any kernel unpacked earlier will do.
        Err(error) => match unpacked(&kernels)?.pop() {
            Some(dir) => open(&dir),
            None => Err(error),
        },
    }
}

/// The versioned package that `linux-image-amd64` stands for today.
fn current_package() -> Result<String> {
    const META: &str = "linux-image-amd64";
    let depends = || Line::new("apt-cache").words("depends").arg(META).capture();
    let mut text = depends()?.stdout;
    if text.is_empty() {
        // A fresh container has no package lists yet. Without root this fails, and so do the next steps.
        let _ = Line::new("apt-get").words("-qq update").capture()?;
        text = depends()?.stdout;
    }
    text.lines()
        .find_map(|line| {
            line.trim().strip_prefix("Depends: ").filter(|name| name.starts_with("linux-image-"))
        })
        .map(str::to_owned)
        .with_context(|| format!("apt knows no {META}; try: apt-get update"))
}

fn download(package: &str, kernels: &Path) -> Result<()> {
    println!("interop: downloading {package}");
    let scratch = kernels.join("download");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    let output = Line::new("apt-get")
        .dir(&scratch)
        .words("-qq -o APT::Sandbox::User=root download")
        .arg(package)
        .capture()?;
    if !output.success {
        bail!("apt-get download {package}: {}", output.stderr.trim());
    }
    let archive = fs::read_dir(&scratch)?.next().context("apt-get downloaded nothing")??.path();
    let tree = scratch.join("tree");
    let output = Line::new("dpkg").arg("-x").arg(&archive).arg(&tree).capture()?;
    if !output.success {
        bail!("dpkg cannot unpack {}: {}", archive.display(), output.stderr.trim());
    }
    // The rename comes last: a folder of this name is a whole kernel.
    fs::rename(&tree, kernels.join(package))?;
    fs::remove_dir_all(&scratch)?;
    Ok(())
}

/// Kernels unpacked earlier, oldest name first.
fn unpacked(kernels: &Path) -> Result<Vec<PathBuf>> {
    let mut dirs: Vec<PathBuf> = fs::read_dir(kernels)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("linux-image-"))
        })
        .collect();
    dirs.sort();
    Ok(dirs)
}

/// The kernel that was unpacked to `dir`.
pub(super) fn open(dir: &Path) -> Result<Kernel> {
    let only = |folder: &str, prefix: &str| -> Result<PathBuf> {
        let folder = dir.join(folder);
        fs::read_dir(&folder)
            .with_context(|| format!("no {}", folder.display()))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
            .with_context(|| format!("no {prefix}… in {}", folder.display()))
    };
    let modules_root = if dir.join("lib/modules").exists() { "lib/modules" } else { "usr/lib/modules" };
    let modules = only(modules_root, "")?;
    // Newer packages put the image beside the modules.
    let beside = modules.strip_prefix(dir).unwrap_or(&modules).to_string_lossy().into_owned();
    let folder = if dir.join("boot").exists() { "boot" } else { &beside };
    let image = match only(folder, "vmlinux") {
        Ok(plain) => plain,
        Err(_) => unpack_image(&only(folder, "vmlinuz")?)?,
    };
    Ok(Kernel { image, modules })
}

/// The ELF image inside a bzImage, put beside it; the bzImage itself if it uses another compression.
///
/// The guest would unpack it too, and take three seconds longer. QEMU boots an ELF image that carries a PVH note.
fn unpack_image(packed: &Path) -> Result<PathBuf> {
    let bytes = fs::read(packed).with_context(|| format!("cannot read {}", packed.display()))?;
    let Some(payload) = payload(&bytes) else { return Ok(packed.into()) };
    let unpacker = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => return Ok(packed.into()),
    };
    let name = packed.file_name().unwrap_or_default().to_string_lossy().replace("vmlinuz", "vmlinux");
    let (compressed, part) = (packed.with_file_name("payload"), packed.with_file_name("part"));
    fs::write(&compressed, payload)?;
    let unpacked = Command::new(unpacker)
        .arg("-dc")
        .stdin(fs::File::open(&compressed)?)
        .stdout(fs::File::create(&part)?)
        .stderr(Stdio::null())
        .status();
    fs::remove_file(&compressed)?;
    if !unpacked.is_ok_and(|status| status.success()) {
        fs::remove_file(&part)?;
        return Ok(packed.into());
    }
    // The rename comes last: a file of this name is whole.
    let plain = packed.with_file_name(name);
    fs::rename(&part, &plain)?;
    Ok(plain)
}

/// The compressed kernel within a bzImage: behind the boot sectors, at the place that the setup header names;
/// up to four bytes of the kernel's own follow it.
fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    let start = (usize::from(*bytes.get(0x1f1)?) + 1) * 512 + word(0x248)?;
    bytes.get(start..)?.get(..word(0x24c)?.checked_sub(4)?)
}
