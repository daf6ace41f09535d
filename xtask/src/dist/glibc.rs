//! The oldest C library that the product runs on, and how it is linked for that.
//!
//! A program needs the versions of the symbols that the linker saw. So the product is compiled as always, and linked
//! by the usual linker, which finds stubs of an older C library first. `ziglang` makes them: symbols and versions
//! without code, and the few objects that every program gets from its C library.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell::{Line, Log, root};

use super::check;
use super::tools::{Tools, compiler_cache};

/// The version, which is also in the wheel's name.
pub(crate) const FLOOR: (u32, u32) = (2, 28);

/// What the linker looks for, and the object that a program loads.
const STUBS: [(&str, &str); 5] = [
    ("libpthread.so", "libpthread.so.0"),
    ("libdl.so", "libdl.so.2"),
    ("libm.so", "libm.so.6"),
    ("librt.so", "librt.so.1"),
    ("libutil.so", "libutil.so.1"),
];

/// A folder with the stubs for this machine's architecture, as `cc -B` takes it.
pub(super) fn stubs(tools: &Tools, log: &Log) -> Result<PathBuf> {
    let (major, minor) = FLOOR;
    let arch = std::env::consts::ARCH;
    let folder = super::cache().join(format!("glibc-{major}.{minor}-{arch}"));
    let is_newer = |file: PathBuf| {
        Some(
            fs::metadata(folder.join("libc.so")).ok()?.modified().ok()?
                > fs::metadata(file).ok()?.modified().ok()?,
        )
    };
    if is_newer(root().join("packaging/older.c")) == Some(true) {
        return Ok(folder);
    }
    let cache = compiler_cache().join(format!("{major}.{minor}-{arch}"));
    let _ = fs::remove_dir_all(&cache);
    fs::create_dir_all(&cache)?;
    let source = cache.join("main.c");
    fs::write(&source, "int main(void) { return 0; }\n")?;
    let line = tools
        .line("python")
        .words("-m ziglang cc -pie -fPIE -target")
        .arg(format!("{arch}-linux-gnu.{major}.{minor}"))
        .arg(&source)
        .arg("-o")
        .arg(cache.join("main"))
        .env("ZIG_GLOBAL_CACHE_DIR", &cache)
        .env("ZIG_LOCAL_CACHE_DIR", &cache);
    if !line.run_logged(log)? {
        bail!("no stubs of glibc {major}.{minor}; the log {} says why", log.name());
    }
    collect(&cache, &folder, log)?;
    fs::remove_dir_all(&cache)?;
    Ok(folder)
}

/// Arranges what the compiler has made as a folder of development files.
fn collect(cache: &Path, folder: &Path, log: &Log) -> Result<()> {
    let new = folder.with_extension("new");
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&new)?;
    let objects: Vec<&str> = STUBS.iter().map(|(_, object)| *object).collect();
    for name in ["libc.so.6", "libld.so.2", "libc_nonshared.a", "Scrt1.o"].into_iter().chain(objects) {
        let made = find(cache, name).with_context(|| format!("the compiler has made no {name}"))?;
        fs::copy(&made, new.join(name))?;
    }
    for (name, object) in STUBS {
        std::os::unix::fs::symlink(object, new.join(name))?;
    }
    // Every linked file looks into this archive after the library itself.
    let object = new.join("older.o");
    let source = root().join("packaging/older.c");
    check(&Line::new("cc").words("-c -O2 -fPIC -Wall -Werror").arg(source).arg("-o").arg(&object), log)?;
    check(&Line::new("ar").arg("rcs").arg(new.join("libc_nonshared.a")).arg(&object), log)?;
    let at = |name: &str| folder.join(name).display().to_string();
    let script = format!(
        "GROUP ( {} {} AS_NEEDED ( {} ) )\n",
        at("libc.so.6"),
        at("libc_nonshared.a"),
        at("libld.so.2")
    );
    fs::write(new.join("libc.so"), script)?;
    let _ = fs::remove_dir_all(folder);
    // The rename comes last: a folder of this name is whole.
    fs::rename(&new, folder).with_context(|| format!("cannot write {}", folder.display()))
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    let here = entries.iter().find(|path| path.is_file() && path.file_name().is_some_and(|n| n == name));
    here.cloned().or_else(|| entries.iter().filter(|path| path.is_dir()).find_map(|dir| find(dir, name)))
}
