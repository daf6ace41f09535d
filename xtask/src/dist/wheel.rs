//! The wheel. The libraries lie in the package under their own names, in a folder that no loader searches: a process
//! that has two `libibverbs` registers its memory with one and asks the other.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell::{Log, root};

use super::stage::Stage;
use super::tools::Tools;
use super::{cache, check, epoch, glibc, licences, version};

/// Packs the program and its libraries for pip.
pub(super) fn make(stage: &Stage, tools: &Tools, to: &Path, log: &Log) -> Result<PathBuf> {
    let tree = cache().join("wheel");
    let _ = fs::remove_dir_all(&tree);
    let package = tree.join("highwire");
    let source = root().join("packaging/wheel");
    for name in ["__init__.py", "__main__.py"] {
        copy(&source.join("highwire").join(name), &package.join(name))?;
    }
    let files = stage.files()?;
    for name in files.iter().filter(|name| name.starts_with("bin/") || name.starts_with("lib/")) {
        copy(&stage.prefix().join(name), &package.join(name))?;
    }
    let (major, minor) = glibc::FLOOR;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{}", std::env::consts::ARCH);
    let info = tree.join(format!("highwire-{}.dist-info", version()));
    for licence in licences() {
        let name = licence.file_name().context("a licence has a name")?;
        copy(&licence, &info.join("licenses").join(name))?;
    }
    let head = fs::read_to_string(source.join("METADATA"))?.replace("{version}", version());
    let readme = fs::read_to_string(root().join("packaging/README.md"))?;
    fs::write(info.join("METADATA"), head + &readme)?;
    fs::write(info.join("entry_points.txt"), "[console_scripts]\nhighwire = highwire.__main__:main\n")?;
    fs::write(
        info.join("WHEEL"),
        format!("Wheel-Version: 1.0\nGenerator: highwire\nRoot-Is-Purelib: false\nTag: {tag}\n"),
    )?;
    let line = tools.line("wheel").arg("pack").arg(&tree).arg("--dest-dir").arg(to);
    check(&line.env("SOURCE_DATE_EPOCH", zip_time(epoch()?).to_string()), log)?;
    let path = to.join(format!("highwire-{}-{tag}.whl", version()));
    if !path.is_file() {
        bail!("`wheel pack` has made no {}", path.display());
    }
    Ok(path)
}

/// Whether a wheel runs wherever its name says, by auditwheel's judgement.
///
/// # Errors
/// It needs more than its name promises; the message has auditwheel's words.
pub(super) fn audit(wheel: &Path, tools: &Tools, log: &Log) -> Result<()> {
    let output = tools.line("auditwheel").words("show --json").arg(wheel).capture()?;
    log.note(&format!("{}{}", output.stdout, output.stderr))?;
    if !output.success {
        bail!("auditwheel show: {}", output.stderr.trim());
    }
    judge(&output.stdout)
}

/// `overall_tag` is the oldest system on which it runs, `linux` if it needs a library that no system must have.
fn judge(json: &str) -> Result<()> {
    let said: Value = serde_json::from_str(json).context("auditwheel prints no JSON")?;
    let tag = said["overall_tag"].as_str().unwrap_or_default();
    let numbers = tag.strip_prefix("manylinux_").and_then(|tag| {
        let mut parts = tag.split('_');
        Some((parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?))
    });
    if numbers.is_none_or(|numbers| numbers > glibc::FLOOR) {
        bail!("auditwheel finds that the wheel is for {tag}; it needs {}", said["external_libs"]);
    }
    Ok(())
}

/// A zip file knows no time before 1980.
fn zip_time(epoch: u64) -> u64 {
    const FIRST: u64 = 315_532_800;
    epoch.max(FIRST)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file has a folder")?)?;
    fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_for_newer_systems_or_with_needs_of_its_own_is_refused() {
        let said = |tag: &str| format!("{{\"overall_tag\": \"{tag}\", \"external_libs\": {{}}}}");
        assert!(judge(&said("manylinux_2_28_x86_64")).is_ok());
        assert!(judge(&said("manylinux_2_5_x86_64")).is_ok(), "numbers and not text");
        for tag in ["manylinux_2_34_x86_64", "linux_x86_64", ""] {
            assert!(judge(&said(tag)).is_err(), "{tag}");
        }
    }

    #[test]
    fn a_time_that_zip_files_do_not_know_becomes_the_first_that_they_do() {
        assert_eq!(zip_time(0), 315_532_800);
        assert_eq!(zip_time(1_795_873_325), 1_795_873_325);
    }
}
