//! The drop-in libraries that lie in the program itself, and their place in a cache of the user's.
//!
//! Programs load files, so the libraries are unpacked on first use, into a folder whose name is the hash of
//! their bytes. Invariants:
//!
//! - A file appears under its name whole or not at all: it is written under another name and renamed. Users
//!   that start at once each write their own, and whichever is renamed last has the same bytes.
//! - No file is used whose bytes are not those in this program; the bytes themselves are compared.
//! - No folder and no file is used that another user owns or may write to.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Versions that stay in a cache: shells may still have the libraries of an earlier one in their settings.
const VERSIONS_MAX: usize = 8;
/// Files that are being written begin so.
const UNFINISHED: &str = ".new-";
/// Nobody writes the libraries for as long as this: a file that is unfinished and older was given up.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60 * 60);

/// Whether this program has the libraries in it.
pub(super) fn is_there() -> bool {
    !FILES.is_empty()
}

/// The folder with this program's libraries, which are unpacked if they are not there.
///
/// # Errors
/// No cache can be used; the message has the reason of each, and the way out.
pub(super) fn unpacked() -> Result<PathBuf> {
    if highwire_link::environment::is_privileged() {
        bail!("a set-user-ID program does not unpack libraries: --libs names a folder that has them");
    }
    unpack_into_one(&caches(), HASH, FILES)
}

/// The folders to try, in this order: the user's cache, and one in memory or on disk that needs no home.
fn caches() -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = rustix::process::geteuid().as_raw();
    let home = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let own = home.map(|folder| folder.join("highwire"));
    own.into_iter().chain([std::env::temp_dir().join(format!("highwire-{user}"))]).collect()
}

fn unpack_into_one(caches: &[PathBuf], hash: &str, files: &[(&str, &[u8])]) -> Result<PathBuf> {
    let mut reasons = Vec::new();
    for cache in caches {
        match unpack(cache, hash, files) {
            Ok(folder) => return Ok(folder),
            Err(error) => reasons.push(format!("{}: {error:#}", cache.display())),
        }
    }
    bail!(
        "the drop-in libraries cannot be unpacked ({}); XDG_CACHE_HOME names another folder for them, and --libs or HIGHWIRE_LIBS one that has them",
        reasons.join("; ")
    )
}

/// Makes the files of `cache/hash` what they should be.
fn unpack(cache: &Path, hash: &str, files: &[(&str, &[u8])]) -> Result<PathBuf> {
    if let Some(parent) = cache.parent() {
        std::fs::create_dir_all(parent).context("its folder cannot be made")?;
        check_parent(parent)?;
    }
    let outer = own_folder(fs::CWD, cache)?;
    let folder = cache.join(hash);
    let is_new = fs::statat(&outer, hash, AtFlags::SYMLINK_NOFOLLOW).is_err();
    let inner = own_folder(&outer, Path::new(hash))?;
    if fs::fstatvfs(&inner)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        bail!("it is mounted noexec, so that no program can load a library from there");
    }
    for (name, bytes) in files {
        if !is_whole(&inner, name, bytes) {
            put(&inner, name, bytes).with_context(|| format!("cannot write {name}"))?;
        }
    }
    if is_new {
        forget_old(cache, &outer, hash);
    }
    Ok(folder)
}

/// In a folder where anybody may rename anything, no check of what lies in it lasts.
fn check_parent(parent: &Path) -> Result<()> {
    let mode = fs::stat(parent)?.st_mode;
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        bail!("others may write to {}, and it is not sticky", parent.display());
    }
    Ok(())
}

/// Opens a folder that belongs to this user alone; makes it if it is not there.
fn own_folder(at: impl AsFd, path: &Path) -> Result<OwnedFd> {
    match fs::mkdirat(&at, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        // A file system that is read-only may have the folder all the same.
        Err(Errno::ROFS) if fs::statat(&at, path, AtFlags::empty()).is_ok() => {}
        Err(error) => return Err(error).context("the folder cannot be made"),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::openat(&at, path, flags, Mode::empty()).context("it is no folder of ours")?;
    let stat = fs::fstat(&folder)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        bail!("user {} owns it", stat.st_uid);
    }
    if stat.st_mode & 0o022 != 0 {
        bail!("others may write to it (mode {:o}): chmod go-w makes it safe", stat.st_mode & 0o777);
    }
    Ok(folder)
}

/// Whether the file is there with these bytes, and nobody else's.
fn is_whole(folder: &OwnedFd, name: &str, bytes: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(folder, name, flags, Mode::empty()) else { return false };
    let is_ours = fs::fstat(&file).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && stat.st_mode & 0o022 == 0
            && u64::try_from(stat.st_size) == Ok(bytes.len() as u64)
    });
    let mut found = Vec::with_capacity(bytes.len() + 1);
    is_ours && File::from(file).take(bytes.len() as u64 + 1).read_to_end(&mut found).is_ok() && found == bytes
}

/// Writes a file under a name of this process's, and renames it into its place: programs that have an earlier one mapped
/// keep that.
fn put(folder: &OwnedFd, name: &str, bytes: &[u8]) -> Result<()> {
    remove_unfinished(folder, SystemTime::now());
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let unfinished = format!("{UNFINISHED}{}-{number}-{name}", std::process::id());
    let written =
        write(folder, &unfinished, bytes).and_then(|()| Ok(fs::renameat(folder, &unfinished, folder, name)?));
    if written.is_err() {
        let _ = fs::unlinkat(folder, &unfinished, AtFlags::empty());
    }
    written
}

fn write(folder: &OwnedFd, name: &str, bytes: &[u8]) -> Result<()> {
    let _ = fs::unlinkat(folder, name, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(folder, name, flags, Mode::from_raw_mode(0o755))?;
    // The user's mask may take rights away; a library needs these.
    fs::fchmod(&file, Mode::from_raw_mode(0o755))?;
    Ok(File::from(file).write_all(bytes)?)
}

/// Removes what killed users left. A file that another user still writes is younger, so no lock is needed.
fn remove_unfinished(folder: &OwnedFd, now: SystemTime) {
    let Ok(entries) = fs::Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_bytes().starts_with(UNFINISHED.as_bytes()) {
            continue;
        }
        let Ok(stat) = fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let last_written = UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
        if now.duration_since(last_written).is_ok_and(|age| age >= GIVEN_UP_AFTER) {
            let _ = fs::unlinkat(folder, entry.file_name(), AtFlags::empty());
        }
    }
}

/// Removes the versions that were unpacked first, when there are too many. Nothing is done about a failure: it costs room
/// and nothing else.
fn forget_old(cache: &Path, outer: &OwnedFd, current: &str) {
    let Ok(entries) = fs::Dir::read_from(outer) else { return };
    let mut versions: Vec<(i64, String)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_str().ok()?.to_string();
            let is_version = name.len() == current.len() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let stat = fs::statat(outer, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            (is_version && is_folder && name != current).then_some((stat.st_mtime as i64, name))
        })
        .collect();
    versions.sort();
    let too_many = (versions.len() + 1).saturating_sub(VERSIONS_MAX);
    for (_, name) in versions.iter().take(too_many) {
        let _ = std::fs::remove_dir_all(cache.join(name));
    }
}

#[cfg(test)]
#[path = "embedded/tests.rs"]
mod tests;
