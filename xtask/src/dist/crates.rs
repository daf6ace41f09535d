//! The crates that are published, packed as the registry would get them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell::{Line, Log, root};

use super::build::{LIBRARIES, Product};

/// Packs every crate that is published, and sends nothing. Each is compiled from its archive only, so a file that is
/// missing there shows.
pub(super) fn check(product: &Product, log: &Log) -> Result<bool> {
    let _libraries = Libraries::lend(product)?;
    let published = published()?;
    println!("{} crates: {}", published.len(), published.join(" "));
    let mut line = Line::cargo("publish --dry-run --allow-dirty");
    for name in &published {
        line = line.arg("--package").arg(name);
    }
    line.run_logged(log)
}

/// The drop-in libraries in the folder of the program's package, from which `cargo install` puts them into the program; and
/// out of it again at the end.
struct Libraries(PathBuf);

impl Libraries {
    fn lend(product: &Product) -> Result<Libraries> {
        let lent = Libraries(root().join("crates/cli/libraries"));
        let folder = lent.0.join(std::env::consts::ARCH);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for name in LIBRARIES {
            fs::copy(product.libraries().join(name), folder.join(name))?;
        }
        Ok(lent)
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names of the workspace's crates that may be published.
pub(super) fn published() -> Result<Vec<String>> {
    let output = Line::cargo("metadata --format-version 1 --no-deps").capture()?;
    if !output.success {
        bail!("cargo metadata: {}", output.stderr);
    }
    let json: Value = serde_json::from_str(&output.stdout).context("cargo metadata is not JSON")?;
    let packages = json["packages"].as_array().context("cargo metadata lists no packages")?;
    // `publish = false` is an empty list of registries.
    let is_published =
        |package: &&Value| package["publish"].as_array().is_none_or(|registries| !registries.is_empty());
    Ok(packages.iter().filter(is_published).filter_map(|p| Some(p["name"].as_str()?.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path, PathBuf};

    use super::*;
    use crate::shell::root;

    /// A registry has the crate's own folder only.
    #[test]
    fn a_published_crate_compiles_no_file_from_outside_its_folder() {
        let mut looked_at = 0;
        for krate in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
            let folder = krate.path();
            if folder.is_dir() {
                look(&folder, &folder.join("src"), &mut looked_at);
            }
        }
        assert!(looked_at > 3, "{looked_at}");
    }

    fn look(krate: &Path, folder: &Path, looked_at: &mut usize) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let is_of_tests = path.file_stem().is_some_and(|stem| stem == "tests");
            if path.is_dir() && !is_of_tests {
                look(krate, &path, looked_at);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_of_tests {
                let text = std::fs::read_to_string(&path).unwrap();
                for included in included(&text) {
                    *looked_at += 1;
                    let resolved = resolve(&folder.join(included));
                    assert!(resolved.starts_with(krate), "{} includes {included}", path.display());
                }
            }
        }
    }

    /// Names of files that the compiler reads for a text of source, its tests left out.
    fn included(text: &str) -> Vec<&str> {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""]
            .iter()
            .flat_map(|before| product.split(before).skip(1))
            .filter_map(|rest| rest.split('"').next())
            .collect()
    }

    /// The path without `..`: a link counts as a file of its folder, because cargo packs what it leads to.
    fn resolve(path: &Path) -> PathBuf {
        let mut resolved = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => drop(resolved.pop()),
                part => resolved.push(part),
            }
        }
        resolved
    }

    #[test]
    fn what_only_tests_include_does_not_count() {
        let text = "const A: &str = include_str!(\"a.txt\");\n#[cfg(test)]\nmod t { include_str!(\"../../b.txt\"); }";
        assert_eq!(included(text), ["a.txt"]);
        assert_eq!(resolve(Path::new("/x/crates/sim/src/../../../y")), Path::new("/x/y"));
    }

    #[test]
    fn the_program_and_the_crates_of_the_library_are_published_and_the_tasks_are_not() {
        let published = published().unwrap();
        for name in ["highwire", "highwire-host", "highwire-store", "highwire-lab"] {
            assert!(published.iter().any(|has| has == name), "{name}");
        }
        assert!(published.iter().all(|name| name.starts_with("highwire")), "{published:?}");
    }

    /// The registry refuses a dependency by path alone.
    #[test]
    fn every_crate_of_the_workspace_is_named_with_a_version() {
        let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let by_path: Vec<&str> = text.lines().filter(|line| line.contains("path = \"crates/")).collect();
        assert!(by_path.len() > 20, "{}", by_path.len());
        let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
        for line in by_path {
            assert!(line.contains(&version), "{line}");
        }
    }
}
