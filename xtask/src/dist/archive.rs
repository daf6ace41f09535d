//! Archives and sums, by GNU tar, gzip and sha256sum.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell::{Line, Log};

use super::stage::Stage;
use super::{check, epoch, version};

/// Packs the tree below one folder, to be unpacked anywhere. The folder's name is that of the product for both parts: unpacked in the
/// same place, the laboratory lies beside the program that looks for it.
pub(super) fn tarball(stage: &Stage, to: &Path, log: &Log) -> Result<PathBuf> {
    let which = format!("{}-{}-linux", version(), std::env::consts::ARCH);
    let plain = to.join(format!("{}-{which}.tar", stage.part.name()));
    pack(stage.prefix(), &format!("highwire-{which}"), &plain, log)?;
    compress(&plain, log)
}

/// Packs what lies in `folder` as files below `below`. Nothing of this machine gets into the archive: not who packs, not
/// when, not in which order its folders list their files.
pub(super) fn pack(folder: &Path, below: &str, to: &Path, log: &Log) -> Result<()> {
    let line = Line::new("tar")
        .words("--create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX")
        .arg(format!("--mtime=@{}", epoch()?))
        .arg("--transform")
        .arg(format!("s,^\\.,{below},"))
        .arg("--file")
        .arg(to)
        .arg("--directory")
        .arg(folder)
        .arg(".");
    check(&line, log)
}

/// Compresses a file in its place, without its name and time.
pub(super) fn compress(plain: &Path, log: &Log) -> Result<PathBuf> {
    check(&Line::new("gzip").words("-9 --no-name --force").arg(plain), log)?;
    Ok(PathBuf::from(format!("{}.gz", plain.display())))
}

/// The SHA-256 sum of a file, as 64 digits.
pub(super) fn sha256(file: &Path) -> Result<String> {
    let output = Line::new("sha256sum").arg("--binary").arg(file).capture()?;
    match output.stdout.split_whitespace().next() {
        // A backslash stands before the sum of a file whose name has one.
        Some(sum) if output.success => Ok(sum.trim_start_matches('\\').to_owned()),
        _ => bail!("sha256sum {}: {}", file.display(), output.stderr.trim()),
    }
}

/// Writes the sums of every file of the release, as `sha256sum --check` reads them.
pub(super) fn sums(folder: &Path) -> Result<PathBuf> {
    const NAME: &str = "SHA256SUMS";
    let mut names: Vec<String> = fs::read_dir(folder)?
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != NAME)
        .collect();
    names.sort();
    let mut text = String::new();
    for name in names {
        text += &format!("{}  {name}\n", sha256(&folder.join(&name))?);
    }
    let path = folder.join(NAME);
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}
