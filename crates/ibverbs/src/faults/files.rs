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
pub(super) fn show(device: &str, state: u8) {
    let (logical, physical) = match state {
        1 => ("1: DOWN", "3: Disabled"),
        2 => ("2: INIT", "5: LinkUp"),
        _ => ("4: ACTIVE", "5: LinkUp"),
    };
    let port = format!("/sys/class/infiniband/{device}/ports/1");
    put(&format!("{port}/state"), logical);
    put(&format!("{port}/phys_state"), physical);
}

/// Moves the entries of a GID table from their places to others.
pub(super) fn move_gids(device: &str, from: Range<u32>, to: u32) {
    let port = format!("/sys/class/infiniband/{device}/ports/1");
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
