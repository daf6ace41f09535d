//! Debian's packages and sources, downloaded and unpacked, never installed: of this machine's release, or of another suite beside it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell::Line;

/// An apt configuration: this machine's, or another suite in folders of its own.
#[derive(Clone, Debug)]
pub(crate) struct View {
    options: Vec<String>,
}

impl View {
    /// The source from which this machine installs.
    pub(crate) fn of_this_machine() -> View {
        View { options: vec!["-oAPT::Sandbox::User=root".into()] }
    }

    /// Another suite of the same archive. Its lists go to `folder`; the machine's own are left alone.
    ///
    /// # Errors
    /// apt does not know where the archive is, or cannot read the suite's lists.
    pub(crate) fn of_suite(suite: &str, folder: &Path) -> Result<View> {
        View::of(suite, "deb", folder)
    }

    /// The source packages of another suite, likewise.
    ///
    /// # Errors
    /// As for `of_suite`.
    pub(crate) fn of_sources(suite: &str, folder: &Path) -> Result<View> {
        View::of(suite, "deb-src", folder)
    }

    fn of(suite: &str, kind: &str, folder: &Path) -> Result<View> {
        let archive = archive()?;
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let sources = folder.join("sources.list");
        let signed = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
        fs::write(&sources, format!("{kind} [{signed}] {archive} {suite} main\n"))?;
        let mut view = View::of_this_machine();
        let at = |part: &str| folder.join(part).display().to_string();
        view.options.extend([
            format!("-oDir::Etc::sourcelist={}", sources.display()),
            "-oDir::Etc::sourceparts=/dev/null".into(),
            format!("-oDir::State::lists={}", at("lists")),
            format!("-oDir::Cache={}", at("cache")),
        ]);
        let output = view.line("apt-get").words("-qq update --error-on=any").capture()?;
        if !output.success {
            bail!("apt-get update of {suite}: {}", output.stderr.trim());
        }
        Ok(view)
    }

    /// What a package depends on, its own names only, newest version.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>> {
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
    pub(crate) fn unpack(&self, packages: &[String], to: &Path) -> Result<()> {
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

    /// Downloads the newest source of a package to `to`, and returns the name of its upstream archive: what
    /// its authors have published, without Debian's changes.
    ///
    /// # Errors
    /// The suite has no such source, or apt cannot download it.
    pub(crate) fn source(&self, package: &str, to: &Path) -> Result<PathBuf> {
        fs::create_dir_all(to)?;
        let output = self
            .line("apt-get")
            .dir(to)
            .words("-qq source --download-only --tar-only")
            .arg(package)
            .capture()?;
        if !output.success {
            bail!("apt-get source {package}: {}", output.stderr.trim());
        }
        let is_upstream = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.contains(".orig.tar.") && !name.ends_with(".asc")
        };
        let found = fs::read_dir(to)?.filter_map(|entry| Some(entry.ok()?.path())).find(is_upstream);
        found.with_context(|| format!("the source of {package} has no upstream archive"))
    }

    fn line(&self, program: &str) -> Line {
        self.options.iter().fold(Line::new(program), |line, option| line.arg(option))
    }
}

/// The newest source that a suite has of a package, as its authors have published it: where it is unpacked below `work`, and its version.
///
/// # Errors
/// As for [`View::of_sources`] and [`View::source`], or the archive cannot be unpacked.
pub(crate) fn upstream(suite: &str, package: &str, work: &Path) -> Result<(PathBuf, String)> {
    let (source, tree) = (work.join("source"), work.join("tree"));
    for folder in [&source, &tree] {
        let _ = fs::remove_dir_all(folder);
    }
    fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
    println!("downloading the source of {package} from {suite}");
    let archive = View::of_sources(suite, &work.join("apt"))?.source(package, &source)?;
    let line = Line::new("tar").words("--strip-components 1 -xf").arg(&archive).arg("-C").arg(&tree);
    let output = line.capture()?;
    if !output.success {
        bail!("the archive cannot be unpacked: {}", output.stderr.trim());
    }
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let version = name.trim_start_matches(&format!("{package}_")).split(".orig.").next().unwrap_or_default();
    Ok((tree, version.to_string()))
}

/// The archive of this machine's own suite.
pub(crate) fn archive() -> Result<String> {
    let output = Line::new("apt-get")
        .words("indextargets --format $(REPO_URI)")
        .arg("Created-By: Packages")
        .capture()?;
    output
        .stdout
        .lines()
        .find(|uri| uri.trim_end_matches('/').ends_with("/debian"))
        .map(str::to_owned)
        .context("apt knows no archive of Debian's; try: apt-get update")
}
