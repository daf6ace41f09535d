//! The step `dist`: each package is made twice, checked, and tried in a fresh minimal system: installed by one line, used by
//! perftest, removed without a trace.
//!
//! The scripts of the trials are in `packaging/trial`.

mod roots;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::packages::{self, Missing};
use crate::shell::{Line, Log, root};
use crate::test::Tally;

use super::build::{Product, Profile};
use super::stage::Stage;
use super::tools::Tools;
use super::{FILES, archive, cache, pack_all, wheel};
use roots::Roots;

/// What is tried in which system.
const TRIALS: [(&str, System); 7] = [
    ("tar", System::Minimal),
    ("tar", System::Older),
    ("deb", System::Minimal),
    ("rpm", System::With("rpm")),
    ("wheel", System::With("python3-venv")),
    ("action", System::Minimal),
    ("pods", System::With("iproute2")),
];

/// A system for trials.
#[derive(Debug, Clone, Copy)]
enum System {
    /// A minimal Debian with perftest.
    Minimal,
    /// The same of an older release.
    Older,
    /// The minimal one with another package.
    With(&'static str),
}

/// Builds the product and tries it.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    let tools = match Tools::get(log)? {
        Ok(tools) => tools,
        Err(missing) => return Ok(Tally::skipped("dist", &missing.0)),
    };
    let product = Product::build(&tools, profile(), log)?;
    let mut tally = Tally::default();
    let problems = product.problems()?;
    tally.add(judged(problems, log)?);

    let stages = Stage::both(&product, log)?;
    let (one, two) = (cache().join("trial/one"), cache().join("trial/two"));
    for folder in [&one, &two] {
        let _ = fs::remove_dir_all(folder);
        pack_all(&FILES, &stages, &tools, folder, log)?;
        archive::sums(folder)?;
    }
    tally.add(judged(differences(&one, &two)?, log)?);
    tally.add(judged(wheel::audit(&only(&one, "whl")?, &tools, log), log)?);
    tally.add(image(&one, log)?);
    tally.add(trials(&one, log)?);
    Ok(tally)
}

/// The other steps have built the debug product already. `HIGHWIRE_DIST_PROFILE=release` tries what users get, which
/// differs in nothing that a package is made of.
fn profile() -> Profile {
    match std::env::var("HIGHWIRE_DIST_PROFILE") {
        Ok(name) if name == "release" => Profile::Release,
        _ => Profile::Debug,
    }
}

/// One check: what it found is noted.
fn judged(problems: impl Into<Problems>, log: &Log) -> Result<Tally> {
    let Problems(problems) = problems.into();
    for problem in &problems {
        log.note(&format!("problem: {problem}"))?;
    }
    Ok(Tally::one(problems.is_empty()))
}

/// Faults in words.
struct Problems(Vec<String>);

impl From<Vec<String>> for Problems {
    fn from(problems: Vec<String>) -> Self {
        Self(problems)
    }
}

impl From<Result<()>> for Problems {
    fn from(result: Result<()>) -> Self {
        Self(result.err().map(|error| format!("{error:#}")).into_iter().collect())
    }
}

/// Names of files that two folders do not have with the same bytes.
fn differences(one: &Path, two: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let (mine, others) = (names(one)?, names(two)?);
    if mine != others {
        problems.push(format!("{mine:?} and then {others:?}"));
    }
    for name in mine {
        if fs::read(one.join(&name))? != fs::read(two.join(&name)).unwrap_or_default() {
            problems.push(format!("{name} has other bytes when it is made again"));
        }
    }
    Ok(problems)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// The only file of that kind.
fn only(folder: &Path, extension: &str) -> Result<PathBuf> {
    let name = names(folder)?.into_iter().find(|name| name.ends_with(&format!(".{extension}")));
    Ok(folder.join(name.with_context(|| format!("no .{extension} in {}", folder.display()))?))
}

/// Other programs read the image: skopeo its description, umoci its files.
fn image(folder: &Path, log: &Log) -> Result<Tally> {
    if let Err(missing) = packages::ensure(&["skopeo", "umoci"], log)? {
        return Ok(Tally::skipped("the image", &missing.0));
    }
    let place = cache().join("trial/image");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(place.join("layout"))?;
    let archive =
        folder.join(names(folder)?.into_iter().find(|name| name.ends_with("-oci.tar")).context("no image")?);
    let from = format!("oci-archive:{}:{}", archive.display(), super::version());
    let to = format!("oci:{}:copied", place.join("layout").display());
    let unpacked = place.join("unpacked");
    let copied =
        Line::new("skopeo").words("--insecure-policy copy --quiet").arg(from).arg(&to).run_logged(log)?;
    let is_whole = copied
        && Line::new("umoci")
            .words("unpack --rootless --image")
            .arg(format!("{}:copied", place.join("layout").display()))
            .arg(&unpacked)
            .run_logged(log)?;
    let local = unpacked.join("rootfs/usr/local");
    let is_there =
        ["bin/highwire", "lib/highwire/libibverbs.so.1"].iter().all(|name| local.join(name).is_file());
    Ok(Tally::one(is_whole && is_there))
}

/// Every trial; a system that cannot be made is a skip.
fn trials(dist: &Path, log: &Log) -> Result<Tally> {
    let roots = match Roots::prepare(log)? {
        Ok(roots) => roots,
        Err(missing) => return Ok(Tally::skipped("the packages in a fresh system", &missing.0)),
    };
    let mut tally = Tally::default();
    for (kind, system) in TRIALS {
        let system = match system {
            System::Minimal => Ok(vec![roots.minimal()]),
            System::Older => roots.older(log)?.map(|older| vec![older]),
            System::With(package) => roots.with(package, log)?,
        };
        match system {
            Ok(lowers) => tally.add(Tally::one(roots.run(&lowers, dist, &format!("{kind}.sh"), log)?)),
            Err(Missing(reason)) => tally = tally.with_skip(&format!("the trial of {kind}"), &reason),
        }
    }
    for took in log.text()?.lines().filter_map(|line| line.strip_prefix("took: ")) {
        println!("dist: {took}");
    }
    Ok(tally)
}

/// The folder with the scripts.
fn scripts() -> PathBuf {
    root().join("packaging/trial")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_or_is_missing_is_named() {
        let folder = std::env::temp_dir().join(format!("xtask-dist-{}", std::process::id()));
        let (one, two) = (folder.join("one"), folder.join("two"));
        for place in [&one, &two] {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join("same"), "x").unwrap();
        }
        assert!(differences(&one, &two).unwrap().is_empty());
        fs::write(two.join("same"), "y").unwrap();
        assert_eq!(differences(&one, &two).unwrap(), ["same has other bytes when it is made again"]);
        fs::remove_file(two.join("same")).unwrap();
        assert_eq!(differences(&one, &two).unwrap().len(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
