//! Files below `/sys` that change with a device, for programs that read those.
//!
//! `libhighwire-paths.so` redirects the paths, in this library too. So a file is opened by its public name, and then has a
//! real one somewhere else; without that object the name leads to a kernel's file or to none, and nothing is written.

use std::fs::{self, File, Permissions};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Shows a port's state.
pub(super) fn show(device: &str, number: u8, state: u8) {
    let (logical, physical) = match state {
        1 => ("1: DOWN", "3: Disabled"),
        2 => ("2: INIT", "5: LinkUp"),
        _ => ("4: ACTIVE", "5: LinkUp"),
    };
    let port = format!("/sys/class/infiniband/{device}/ports/{number}");
    put(&format!("{port}/state"), logical);
    put(&format!("{port}/phys_state"), physical);
}

/// Moves the entries of a GID table from their places to others.
pub(super) fn move_gids(device: &str, number: u8, from: Range<u32>, to: u32) {
    let port = format!("/sys/class/infiniband/{device}/ports/{number}");
    let Some(gids) = real(&format!("{port}/gids")) else { return };
    let attributes = ["types", "ndevs"].map(|kind| real(&format!("{port}/gid_attrs/{kind}")));
    for (old, new) in from.zip(to..) {
        let (old, new) = (old.to_string(), new.to_string());
        // As above: what fails leaves what was true before.
        if let Ok(gid) = fs::read_to_string(gids.join(&old)) {
            let _ = replace(&gids.join(&new), gid.trim_end());
            let _ = replace(&gids.join(&old), NO_GID);
        }
        for folder in attributes.iter().flatten() {
            let _ = fs::rename(folder.join(&old), folder.join(&new));
        }
    }
}

/// An empty place of the table.
const NO_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

/// Writes a file anew, and renames it into its place: whoever reads the old one reads it whole.
fn put(path: &str, text: &str) {
    if let Some(real) = real(path) {
        // If it fails, verbs tell the truth, and the file what was true before.
        let _ = replace(&real, text);
    }
}

/// A device leaves: nothing below `/sys` and `/dev` has its name any more.
pub(super) fn hide(device: &str) {
    // Any file of the device tells where the folder is that stands for `/`.
    let guid = real(&format!("/sys/class/infiniband/{device}/node_guid"));
    let Some((root, folder)) = guid.as_deref().and_then(of_device) else { return };
    let away = root.join(AWAY).join(device);
    for path in names_of(&root, &folder, device).into_iter().chain([folder]) {
        let Ok(below) = path.strip_prefix(&root) else { continue };
        let to = away.join(below);
        // What cannot be moved stays visible, and verbs tell the truth.
        let _ = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::rename(&path, &to));
    }
}

/// It is there again.
pub(super) fn reveal(device: &str) {
    let Some(abi) = real("/sys/class/infiniband_verbs/abi_version") else { return };
    let Some(root) = abi.ancestors().nth(4) else { return };
    let away = root.join(AWAY).join(device);
    let mut folders = vec![away.clone()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let Ok(below) = path.strip_prefix(&away) else { continue };
            let to = root.join(below);
            // A folder that others share is there still; what is the device's own moves whole.
            match path.is_dir() && !path.is_symlink() && to.is_dir() {
                true => folders.push(path),
                false => drop(fs::rename(&path, &to)),
            }
        }
    }
    let _ = fs::remove_dir_all(&away);
}

/// Beside `sys` and `dev`: what has left.
const AWAY: &str = "away";

/// The folder that stands for `/`, and the device's own among the PCI devices.
fn of_device(guid: &Path) -> Option<(PathBuf, PathBuf)> {
    // …/sys/devices/pci0000:00/0000:00:01.0/0000:41:00.0/infiniband/mlx5_0/node_guid
    let folder = guid.ancestors().nth(3)?;
    Some((folder.ancestors().nth(5)?.to_path_buf(), folder.to_path_buf()))
}

/// The names of a device outside of its folder.
fn names_of(root: &Path, folder: &Path, device: &str) -> Vec<PathBuf> {
    let mut names = vec![root.join("sys/class/infiniband").join(device)];
    let entries = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    for name in entries(folder.join("infiniband_verbs")) {
        names.push(root.join("sys/class/infiniband_verbs").join(&name));
        names.push(root.join("dev/infiniband").join(&name));
    }
    let management = root.join("sys/class/infiniband_mad");
    for name in entries(management.clone()) {
        let of = fs::read_to_string(management.join(&name).join("ibdev"));
        if of.is_ok_and(|of| of.trim_end() == device) {
            names.push(management.join(&name));
            names.push(root.join("dev/infiniband").join(&name));
        }
    }
    names.push(root.join("sys/bus/pci/devices").join(folder.file_name().unwrap_or_default()));
    names
}

/// Where a redirected path really leads; `None` if it is not redirected.
fn real(path: &str) -> Option<PathBuf> {
    let open = File::open(path).ok()?;
    let real = fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).ok()?;
    (!real.starts_with("/sys")).then_some(real)
}

fn replace(real: &Path, text: &str) -> std::io::Result<()> {
    let draft = real.with_extension("new");
    fs::write(&draft, format!("{text}\n"))?;
    fs::set_permissions(&draft, Permissions::from_mode(0o444))?;
    fs::rename(draft, real)
}
