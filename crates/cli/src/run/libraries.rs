//! Where the drop-in libraries are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::embedded;

/// Libraries that every program of the tree gets before its own. The path virtualiser comes first, because
/// its files in `/sys` and `/dev` also help programs that know nothing of RDMA; then `poll`, for programs that sleep on the descriptors of
/// completion channels; the verbs libraries are for
/// programs whose own search path would win over `LD_LIBRARY_PATH`.
const PRELOADED: [&str; 4] =
    ["libhighwire-paths.so", "libhighwire-poll.so", "libibverbs.so.1", "librdmacm.so.1"];

/// The library without which no program works.
const VERBS: &str = "libibverbs.so.1";

/// A folder with the drop-in libraries.
#[derive(Debug)]
pub(super) struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// The folder that the user names, here or in `HIGHWIRE_LIBS`; or the one beside this program, or `../lib/highwire`
    /// from there; or a cache, for the libraries that this program has in itself.
    ///
    /// # Errors
    /// There are none; the message says how to get some.
    pub(super) fn find(named: Option<&Path>) -> Result<Self> {
        let of_environment = std::env::var_os("HIGHWIRE_LIBS").filter(|folder| !folder.is_empty());
        let named = named.map(PathBuf::from).or(of_environment.map(PathBuf::from));
        let is_named = named.is_some();
        let candidates = match named {
            Some(folder) => vec![std::path::absolute(folder)?],
            None => beside_this_program(),
        };
        let found = candidates.iter().find(|folder| folder.join(VERBS).is_file());
        match found {
            Some(folder) => Ok(Self { folder: folder.clone() }),
            None if !is_named && embedded::is_there() => Ok(Self { folder: embedded::unpacked()? }),
            None => bail!(
                "no drop-in libraries in {}: `{}` builds them; --libs or HIGHWIRE_LIBS says where they are",
                candidates.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" or "),
                if cfg!(debug_assertions) { "cargo xtask libs" } else { "cargo xtask libs --release" }
            ),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The value of `LD_PRELOAD`.
    ///
    /// # Errors
    /// The loader would cut the folder's name into pieces.
    pub(super) fn preload(&self) -> Result<OsString> {
        let text = self.folder.to_string_lossy();
        if text.contains([':', ' ', '\t', '\n']) {
            bail!(
                "{text}: the dynamic loader splits names at blanks and colons; choose a folder without any"
            );
        }
        let files = PRELOADED.iter().map(|name| self.folder.join(name)).filter(|file| file.is_file());
        Ok(std::env::join_paths(files)?)
    }
}

fn beside_this_program() -> Vec<PathBuf> {
    let Some(folder) = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_path_buf())) else {
        return Vec::new();
    };
    let installed = folder.parent().map(|prefix| prefix.join("lib/highwire"));
    std::iter::once(folder.join("highwire-libs")).chain(installed).collect()
}
