//! Making the folder.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::identity::Identity;
use crate::original;

use super::{content, slots};

/// Part of the name, so that programs of different versions do not share a folder.
const LAYOUT: u32 = 1;

/// The folders of a machine with RDMA devices, beside whose devices Highwire's is shown.
const REAL: [&str; 4] =
    ["/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/infiniband_mad", "/dev/infiniband"];

/// The complete folder for `identity`; `None` if the place for it is not safe or not writable.
pub(super) fn folder(identities: &[Identity]) -> Option<PathBuf> {
    let place = shared_place()?;
    let real: Vec<(&str, String)> =
        REAL.iter().flat_map(|folder| names_in(folder).into_iter().map(|name| (*folder, name))).collect();
    let folder = place.join(format!("files-{:016x}", key(identities, &real)));
    if hold(&folder) {
        return Some(folder);
    }
    // Threads of one process may be here at once as well.
    // SAFETY: it always succeeds.
    let thread = unsafe { libc::gettid() };
    let draft = place.join(format!("draft-{thread}"));
    // Held from the beginning, so that no process believes it left behind by a process that was killed.
    let is_held = fs::create_dir_all(&draft).is_ok() && hold(&draft);
    let made = fill(&draft, identities, &real).and_then(|()| fs::rename(&draft, &folder));
    if made.is_ok() && is_held {
        return Some(folder);
    }
    if made.is_err() {
        let _ = fs::remove_dir_all(&draft);
    }
    // Another process may have made the same folder first; then its folder is used.
    hold(&folder).then_some(folder)
}

/// Marks a folder as used by this process, for as long as it lives, or until it closes descriptors that it
/// does not know: a process that opens a device removes folders that are not in use. False if the folder is
/// not there, or about to go.
fn hold(folder: &Path) -> bool {
    let Ok(open) = File::open(folder) else { return false };
    if open.try_lock_shared().is_err() || !folder.is_dir() {
        return false;
    }
    // This library never closes it: the program may have closed it, and opened a file of its own under the
    // number.
    let _ = open.into_raw_fd();
    true
}

/// The folder that all processes of this user share, if no other user owns it.
fn shared_place() -> Option<PathBuf> {
    // SAFETY: it always succeeds.
    let uid = unsafe { libc::geteuid() };
    let place = match crate::identity::variable("HIGHWIRE_SHM_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(format!("/dev/shm/highwire-{uid}")),
    };
    match DirBuilder::new().mode(0o700).create(&place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
        _ => {}
    }
    let meta = fs::symlink_metadata(&place).ok()?;
    let is_safe = meta.is_dir() && meta.uid() == uid && meta.mode() & 0o077 == 0;
    is_safe.then_some(place)
}

fn fill(draft: &Path, identities: &[Identity], real: &[(&str, String)]) -> io::Result<()> {
    for folder in REAL {
        fs::create_dir_all(draft.join(&folder[1..]))?;
    }
    for (folder, name) in real {
        symlink(format!("{folder}/{name}"), draft.join(&folder[1..]).join(name))?;
    }
    if identities.iter().any(|identity| identity.played.is_some()) {
        show_real_pci(draft)?;
    }
    let is_free = |minor: &u32| real.iter().all(|(_, name)| *name != format!("uverbs{minor}"));
    for (identity, minor) in identities.iter().zip((0..).filter(is_free)) {
        for (path, text) in content::files(identity, minor) {
            write(&draft.join(slots::place(identity, minor, &path)), &text, 0o444)?;
        }
        for path in content::nodes(minor) {
            write(&draft.join(path), "", 0o666)?;
        }
        for (path, target) in content::links(identity, minor) {
            link(&draft.join(slots::place(identity, minor, &path)), &target)?;
        }
        for (path, text) in slots::files(identity) {
            write(&draft.join(path), &text, 0o444)?;
        }
        for (path, target) in slots::links(identity, minor) {
            link(&draft.join(path), &target)?;
        }
    }
    Ok(())
}

/// The machine's own PCI devices stay visible beside those of a scenario.
fn show_real_pci(draft: &Path) -> io::Result<()> {
    for folder in slots::FOLDERS {
        fs::create_dir_all(draft.join(&folder[1..]))?;
        for name in names_in(folder) {
            link(&draft.join(&folder[1..]).join(&name), &format!("{folder}/{name}"))?;
        }
    }
    Ok(())
}

/// Makes a link, unless there is something already.
fn link(path: &Path, target: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().expect("below the folder"))?;
    match symlink(target, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Writes a file, unless a link to a real file is there already.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    if path.is_symlink() {
        return Ok(());
    }
    fs::create_dir_all(path.parent().expect("below the folder"))?;
    // A scenario's devices have some files that all have, with other content.
    let _ = fs::remove_file(path);
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The real names in a folder; this process's own `opendir` would show the private folder.
fn names_in(folder: &str) -> Vec<String> {
    let (Some(open), Ok(path)) = (original::opendir.function(), CString::new(folder)) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    // SAFETY: a C string; the stream is read and closed here, and its entries' names are C strings.
    unsafe {
        let stream = open(path.as_ptr());
        if stream.is_null() {
            return names;
        }
        while let Some(entry) = libc::readdir(stream).as_ref() {
            let name = std::ffi::CStr::from_ptr(entry.d_name.as_ptr()).to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        libc::closedir(stream);
    }
    names.sort();
    names
}

/// FNV-1a over everything that determines the folder's content.
fn key(identities: &[Identity], real: &[(&str, String)]) -> u64 {
    let is_played = crate::identity::is_played();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Files of a scenario change, so they are this process's alone.
    let own = is_played.then(|| (std::process::id(), now.unwrap_or_default().as_nanos()));
    let text = format!("{LAYOUT} {} {identities:?} {real:?} {own:?}", env!("CARGO_PKG_VERSION"));
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_device_gets_another_folder() {
        let of = |address: &str| Identity {
            name: "hw0".into(),
            address: address.parse().unwrap(),
            interface: "lo".into(),
            played: None,
        };
        let real = [("/dev/infiniband", "uverbs0".to_string())];
        let key = |address: &str, real: &[(&str, String)]| key(&[of(address)], real);
        assert_eq!(key("127.1.1.1", &[]), key("127.1.1.1", &[]));
        assert_ne!(key("127.1.1.1", &[]), key("127.1.1.2", &[]));
        assert_ne!(key("127.1.1.1", &[]), key("127.1.1.1", &real));
    }

    #[test]
    fn real_devices_are_beside_ours() {
        let draft = std::env::temp_dir().join(format!("highwire-paths-{}", std::process::id()));
        let identity = Identity {
            name: "hw0".into(),
            address: "127.1.1.1".parse().unwrap(),
            interface: "lo".into(),
            played: None,
        };
        let real = [
            ("/sys/class/infiniband", "mlx5_0".to_string()),
            ("/dev/infiniband", "rdma_cm".into()),
            ("/dev/infiniband", "uverbs0".into()),
        ];
        fill(&draft, &[identity], &real).expect("a folder");
        let link = |path: &str| fs::read_link(draft.join(path)).ok();
        assert_eq!(link("sys/class/infiniband/mlx5_0"), Some("/sys/class/infiniband/mlx5_0".into()));
        assert_eq!(link("dev/infiniband/rdma_cm"), Some("/dev/infiniband/rdma_cm".into()));
        assert!(draft.join("sys/class/infiniband/hw0/node_guid").is_file());
        assert!(draft.join("dev/infiniband/uverbs1").is_file());
        fs::remove_dir_all(draft).expect("ours");
    }
}
