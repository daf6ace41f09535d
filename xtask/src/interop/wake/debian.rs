//! Debian's packages, downloaded and unpacked, never installed: of this machine's release.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::shell::Line;

/// What apt knows on this machine.
#[derive(Clone, Debug)]
pub(super) struct View {
    options: Vec<String>,
}

impl View {
    /// What this machine installs from.
    pub(super) fn of_this_machine() -> View {
        View { options: vec!["-oAPT::Sandbox::User=root".into()] }
    }

    /// What a package depends on, its own names only, newest version.
    pub(super) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let output = self.line("apt-cache").words("depends").arg(package).capture()?;
        Ok(output
            .stdout
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .filter(|name| !name.starts_with('<'))
            .map(str::to_owned)
            .collect())
    }

    /// Unpacks these packages into one tree at `to`, unless it is there already.
    ///
    /// # Errors
    /// apt cannot download one, or dpkg cannot unpack it.
    pub(super) fn unpack(&self, packages: &[String], to: &Path) -> Result<()> {
        if to.exists() {
            return Ok(());
        }
        println!("wake: downloading {}", packages.join(" "));
        let scratch = to.with_extension("download");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch)?;
        let mut line = self.line("apt-get").dir(&scratch).words("-qq download");
        for package in packages {
            line = line.arg(package);
        }
        let output = line.capture()?;
        if !output.success {
            bail!("apt-get download {}: {}", packages.join(" "), output.stderr.trim());
        }
        let archives: Vec<PathBuf> = fs::read_dir(&scratch)?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        let tree = scratch.join("tree");
        for archive in archives {
            let output = Line::new("dpkg").arg("-x").arg(&archive).arg(&tree).capture()?;
            if !output.success {
                bail!("dpkg cannot unpack {}: {}", archive.display(), output.stderr.trim());
            }
        }
        // The rename comes last: a folder of this name is whole.
        fs::rename(&tree, to)?;
        fs::remove_dir_all(&scratch)?;
        Ok(())
    }

    fn line(&self, program: &str) -> Line {
        self.options.iter().fold(Line::new(program), |line, option| line.arg(option))
    }
}
