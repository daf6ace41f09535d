//! Packages for distributions, by nfpm: one description, two formats.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shell::Log;

use super::stage::{Part, Stage};
use super::tools::Tools;
use super::{cache, check, epoch, glibc, version};

/// A format of nfpm's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Deb,
    Rpm,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Deb => "deb",
            Format::Rpm => "rpm",
        }
    }
}

/// Packs the tree below `/usr`.
pub(super) fn make(format: Format, stage: &Stage, tools: &Tools, to: &Path, log: &Log) -> Result<PathBuf> {
    let name = stage.part.name();
    let recipe = cache().join(format!("nfpm-{name}-{}.json", format.name()));
    let text = serde_json::to_string_pretty(&description(format, stage)?)?;
    fs::write(&recipe, text).with_context(|| recipe.display().to_string())?;
    let arch = std::env::consts::ARCH;
    let path = to.join(match format {
        Format::Deb => format!("{name}_{}_{}.deb", version(), debian(arch)),
        Format::Rpm => format!("{name}-{}-1.{arch}.rpm", version()),
    });
    let line = tools.line("nfpm").words("package --packager").arg(format.name()).arg("--config").arg(&recipe);
    let line = line.arg("--target").arg(&path).env("SOURCE_DATE_EPOCH", epoch()?.to_string());
    check(&line, log)?;
    Ok(path)
}

/// What nfpm reads: JSON, which YAML includes.
fn description(format: Format, stage: &Stage) -> Result<Value> {
    let mut contents = stage
        .files()?
        .into_iter()
        .map(|name| {
            let from = stage.prefix().join(&name);
            let mode = fs::metadata(&from)?.permissions().mode() & 0o777;
            Ok(json!({
                "src": from,
                "dst": format!("/usr/{}", place(format, &name)),
                "file_info": {"mode": mode, "owner": "root", "group": "root"},
            }))
        })
        .collect::<Result<Vec<Value>>>()?;
    // rpm removes the folders that a package names, and no others.
    let names: Vec<String> = stage.files()?.iter().map(|name| place(format, name)).collect();
    for folder in folders(names.iter().map(String::as_str)) {
        let info = json!({"mode": 0o755, "owner": "root", "group": "root"});
        contents.push(json!({"dst": format!("/usr/{folder}"), "type": "dir", "file_info": info}));
    }
    Ok(json!({
        "name": stage.part.name(),
        "arch": debian(std::env::consts::ARCH),
        "platform": "linux",
        "version": version(),
        "release": "1",
        "section": "net",
        "priority": "optional",
        "maintainer": "The Highwire developers <highwire@invalid>",
        "description": about(stage.part),
        "license": "MIT OR Apache-2.0",
        "depends": depends(format, stage.part),
        // Otherwise the name of the machine that packs.
        "rpm": {"buildhost": "highwire", "group": "System Environment/Libraries"},
        "contents": contents,
    }))
}

/// The first line, and then more of them.
fn about(part: Part) -> &'static str {
    match part {
        Part::Product => {
            "RDMA on any Linux machine: no card, no kernel module, no root\n\
             A software RNIC in user space, and libraries that programs for RDMA cards use unmodified."
        }
        Part::Laboratory => {
            "Simulations and measurements of Highwire\n\
             The commands `highwire sim`, `highwire nanopu` and `highwire bench`."
        }
    }
}

/// The packages without which it does not start. The laboratory finds the product of its own version.
fn depends(format: Format, part: Part) -> Vec<String> {
    let (major, minor) = glibc::FLOOR;
    let mut depends = match format {
        Format::Deb => vec![format!("libc6 (>= {major}.{minor})"), "libgcc-s1 | libgcc1".to_owned()],
        Format::Rpm => vec![format!("glibc >= {major}.{minor}"), "libgcc".to_owned()],
    };
    if part == Part::Laboratory {
        depends.push(match format {
            Format::Deb => format!("highwire (= {}-1)", version()),
            Format::Rpm => format!("highwire = {}", version()),
        });
    }
    depends
}

/// Where a distribution wants a file.
fn place(format: Format, name: &str) -> String {
    match format {
        Format::Deb if name.ends_with("/LICENSE-MIT") => name.replace("LICENSE-MIT", "copyright"),
        Format::Deb => name.replace("share/zsh/site-functions", "share/zsh/vendor-completions"),
        Format::Rpm => name.to_owned(),
    }
}

/// The architecture, as Debian and Go call it.
pub(super) fn debian(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The folders of files that not every system has; several packages may name one.
fn folders<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    const EVERYWHERE: [&str; 6] = ["bin", "lib", "share", "share/doc", "share/man", "share/man/man1"];
    let above = |name: &'a str| name.match_indices('/').map(move |(end, _)| &name[..end]);
    names.flat_map(above).filter(|folder| !EVERYWHERE.contains(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_a_system_may_not_have_are_named() {
        let names =
            ["bin/highwire", "share/fish/vendor_completions.d/highwire.fish", "share/man/man1/highwire.1.gz"];
        assert!(folders(names.into_iter()).into_iter().eq(["share/fish", "share/fish/vendor_completions.d"]));
    }

    #[test]
    fn debian_has_places_of_its_own() {
        let licence = "share/doc/highwire/LICENSE-MIT";
        assert_eq!(place(Format::Deb, licence), "share/doc/highwire/copyright");
        assert_eq!(place(Format::Rpm, licence), licence);
        let completion = "share/zsh/site-functions/_highwire";
        assert_eq!(place(Format::Deb, completion), "share/zsh/vendor-completions/_highwire");
        assert_eq!(place(Format::Deb, "bin/highwire"), "bin/highwire");
    }
}
