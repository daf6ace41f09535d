//! Minimal Debian systems in folders of the cache. A trial sees one through an overlay, so each begins with the same files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::debian;
use crate::dist::cache;
use crate::packages::{self, Missing};
use crate::shell::{Line, Log};

use super::scripts;

/// Debian's release of the minimal system, and an older one.
const RELEASE: &str = "bookworm";
const OLDER: &str = "bullseye";

/// What every system has beside the minimum: the program that measures.
const MEASURES: &str = "perftest";

/// Namespaces of a trial: own mounts, processes, shared memory and network.
const TRIAL: &str = "--mount --pid --ipc --net --fork --kill-child";

/// The systems.
pub(super) struct Roots {
    folder: PathBuf,
    archive: String,
}

impl Roots {
    /// Makes the minimal system, unless it is there.
    pub(super) fn prepare(log: &Log) -> Result<Result<Roots, Missing>> {
        if let Err(missing) = packages::ensure(&["debootstrap", "iproute2"], log)? {
            return Ok(Err(missing));
        }
        let probe = Line::new("unshare").words(TRIAL).words("mount -t tmpfs tmpfs /mnt").capture()?;
        if !probe.success {
            return Ok(Err(Missing(format!("no namespaces with mounts here: {}", probe.stderr.trim()))));
        }
        let archive = match debian::archive() {
            Ok(archive) => archive,
            Err(error) => return Ok(Err(Missing(format!("{error:#}")))),
        };
        let roots = Roots { folder: cache().join("roots"), archive };
        Ok(roots.bootstrap(RELEASE, log)?.map(|_| roots))
    }

    /// The minimal system.
    pub(super) fn minimal(&self) -> PathBuf {
        self.folder.join(RELEASE)
    }

    /// The minimal system of an older release, with an older C library.
    pub(super) fn older(&self, log: &Log) -> Result<Result<PathBuf, Missing>> {
        self.bootstrap(OLDER, log)
    }

    fn bootstrap(&self, release: &str, log: &Log) -> Result<Result<PathBuf, Missing>> {
        let place = self.folder.join(release);
        if place.is_dir() {
            return Ok(Ok(place));
        }
        let line = Line::new("unshare")
            .words("--mount --pid --fork --kill-child sh")
            .arg(scripts().join("bootstrap.sh"))
            .arg(release)
            .arg(&self.archive)
            .arg(&place)
            .arg(MEASURES);
        Ok(match line.run_logged(log)? {
            true => Ok(place),
            false => {
                Err(Missing(format!("debootstrap cannot make {release}; the log {} says why", log.name())))
            }
        })
    }

    /// The minimal system with one more package: the folders to lay over each other, the upper first.
    pub(super) fn with(&self, package: &str, log: &Log) -> Result<Result<Vec<PathBuf>, Missing>> {
        let place = self.folder.join(format!("{RELEASE}-{package}"));
        if !place.is_dir() {
            let new = self.folder.join(format!("{RELEASE}-{package}.new"));
            let scratch = self.folder.join(format!("{RELEASE}-{package}.new.work"));
            let _ = fs::remove_dir_all(&new);
            let resolver = self.minimal().join("etc/resolv.conf");
            let _ = fs::copy("/etc/resolv.conf", resolver);
            let line = Line::new("unshare")
                .words("--mount --pid --ipc --fork --kill-child sh")
                .arg(scripts().join("in-root.sh"))
                .arg(self.minimal())
                .arg(&new)
                .arg(scripts())
                .arg("packages.sh")
                .env("PACKAGES", package);
            if !line.run_logged(log)? {
                return Ok(Err(Missing(format!(
                    "apt cannot install {package}; the log {} says why",
                    log.name()
                ))));
            }
            let _ = fs::remove_dir_all(&scratch);
            // The rename comes last: a folder of this name is whole.
            fs::rename(&new, &place)?;
        }
        Ok(Ok(vec![place, self.minimal()]))
    }

    /// Runs a script of a trial in a system and forgets what it has changed there.
    pub(super) fn run(&self, lowers: &[PathBuf], dist: &Path, script: &str, log: &Log) -> Result<bool> {
        let lowers: Vec<String> = lowers.iter().map(|path| path.display().to_string()).collect();
        Line::new("unshare")
            .words(TRIAL)
            .arg("sh")
            .arg(scripts().join("in-root.sh"))
            .arg(lowers.join(":"))
            .arg("-")
            .arg(dist)
            .arg(script)
            .run_logged(log)
    }
}
