//! The version that the programs print: the package's, and the commit that they were built from.
//!
//! A tree without git (a source tarball, a package of a registry) gives the version alone, and so the same
//! bytes wherever it is built.

#[path = "build/version.rs"]
mod version;

use std::path::Path;

fn main() {
    let package = std::env::var("CARGO_PKG_VERSION").expect("cargo says the version");
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    let root = Path::new(&here).ancestors().nth(2).unwrap_or(Path::new("/"));
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    println!("cargo::rustc-env=HIGHWIRE_VERSION={}", version::of(root, &package, is_release));
    for path in version::watched(root, is_release) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/version.rs");
}
