//! Puts the drop-in libraries into the program, if `HIGHWIRE_EMBED_DIR` names the folder that holds them:
//! `HIGHWIRE_EMBED_DIR=$(cargo xtask libs --release) cargo install --path crates/cli`.
//!
//! Cargo cannot build them here: they are linked with versions that a `cdylib` cannot carry. The package that is published has
//! them for some architectures in the folder `libraries`. With neither, the program looks for them beside itself.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

const VARIABLE: &str = "HIGHWIRE_EMBED_DIR";
/// One folder for each architecture, put there by `cargo xtask dist crates`.
const PUBLISHED: &str = "libraries";
/// The library without which no program works.
const VERBS: &str = "libibverbs.so.1";

pub(super) fn write() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let files = match std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        Some(folder) => libraries(Path::new(&folder)),
        None => published().map(|folder| libraries(&folder)).unwrap_or_default(),
    };
    let mut hash = Sha256::new();
    let mut list = String::new();
    for (name, path) in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        hash.update(name);
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
        let _ = writeln!(list, "    ({name:?}, include_bytes!({path:?})),");
    }
    let hash = hash.finalize().iter().take(16).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let text = format!(
        "/// Of the names and bytes of all files.\npub(super) const HASH: &str = \"{hash}\";\n\
         /// Names, and the bytes that they stand for.\npub(super) static FILES: &[(&str, &[u8])] = &[\n{list}];\n"
    );
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder"));
    fs::write(out.join("embedded.rs"), text).expect("cargo's folder takes files");
}

/// The folder of the published package for the architecture that the program is built for.
fn published() -> Option<PathBuf> {
    let (package, target) =
        (std::env::var_os("CARGO_MANIFEST_DIR")?, std::env::var_os("CARGO_CFG_TARGET_ARCH")?);
    let folder = Path::new(&package).join(PUBLISHED).join(target);
    // Cargo takes a file that is not there for changed.
    folder.is_dir().then(|| println!("cargo::rerun-if-changed={PUBLISHED}"))?;
    Some(folder)
}

/// The shared objects of a folder, by name, with whole paths.
fn libraries(folder: &Path) -> Vec<(String, PathBuf)> {
    let fail = |what: &str| -> ! { panic!("{VARIABLE}={}: {what}", folder.display()) };
    if !folder.is_absolute() {
        fail("name the folder by its whole path, since cargo builds each package in its own folder");
    }
    let Ok(entries) = fs::read_dir(folder) else { fail("no such folder") };
    let mut files: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((path.file_name()?.to_str()?.to_string(), path)))
        // Files that are being written begin with a dot.
        .filter(|(name, path)| !name.starts_with('.') && name.contains(".so") && path.is_file())
        .collect();
    files.sort();
    if !files.iter().any(|(name, _)| name == VERBS) {
        fail("no libibverbs.so.1 in there; `cargo xtask libs --release` prints a folder that has it");
    }
    files
}
