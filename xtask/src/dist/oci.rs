//! An image from scratch, as an OCI layout: one layer that holds the tree below `/usr/local`.
//!
//! It has no C library of its own and starts nothing. Images copy from it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shell::Log;

use super::packaged::debian;
use super::stage::Stage;
use super::{archive, cache, commit, epoch, version};

/// Writes the layout and packs it as one file.
pub(super) fn make(stage: &Stage, to: &Path, log: &Log) -> Result<PathBuf> {
    let layout = cache().join("oci");
    let _ = fs::remove_dir_all(&layout);
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;

    let plain = layout.join("layer.tar");
    archive::pack(stage.prefix(), "usr/local", &plain, log)?;
    let difference = archive::sha256(&plain)?;
    let layer = Blob::keep(&blobs, &archive::compress(&plain, log)?)?;

    let created = time(epoch()?);
    let arch = debian(std::env::consts::ARCH);
    let labels = json!({
        "org.opencontainers.image.title": "highwire",
        "org.opencontainers.image.description": "RDMA on any Linux machine: no card, no kernel module, no root",
        "org.opencontainers.image.version": version(),
        "org.opencontainers.image.revision": commit().unwrap_or_default(),
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.created": created,
    });
    let config = json!({
        "created": created,
        "architecture": arch,
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{difference}")]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    });
    let config = Blob::write(&blobs, &layout, &config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.described("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.described("application/vnd.oci.image.layer.v1.tar+gzip")],
        "annotations": labels,
    });
    let manifest = Blob::write(&blobs, &layout, &manifest)?;
    let mut entry = manifest.described("application/vnd.oci.image.manifest.v1+json");
    entry["platform"] = json!({"architecture": arch, "os": "linux"});
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": version()});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;

    let path = to.join(format!("highwire-{}-{}-oci.tar", version(), std::env::consts::ARCH));
    archive::pack(&layout, ".", &path, log)?;
    Ok(path)
}

/// A file that its sum names.
struct Blob {
    sum: String,
    bytes: u64,
}

impl Blob {
    /// Moves a file to its place.
    fn keep(blobs: &Path, file: &Path) -> Result<Blob> {
        let sum = archive::sha256(file)?;
        let bytes = fs::metadata(file)?.len();
        fs::rename(file, blobs.join(&sum)).with_context(|| file.display().to_string())?;
        Ok(Blob { sum, bytes })
    }

    fn write(blobs: &Path, scratch: &Path, value: &Value) -> Result<Blob> {
        let file = scratch.join("new.json");
        fs::write(&file, value.to_string())?;
        Blob::keep(blobs, &file)
    }

    fn described(&self, media: &str) -> Value {
        json!({"mediaType": media, "digest": format!("sha256:{}", self.sum), "size": self.bytes})
    }
}

/// Seconds since 1970 as RFC 3339 writes them.
fn time(epoch: u64) -> String {
    let (days, second) = (epoch / 86_400, epoch % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The date so many days after the first of January 1970.
fn date(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_specification_wants_them() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_795_873_325), "2026-11-28T13:42:05Z");
        assert_eq!(time(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(time(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
