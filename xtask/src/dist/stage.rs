//! The trees of files that packages hold, laid out below a prefix as `/usr` is: one of the product, one of the laboratory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell::{Line, Log, root};

use super::build::{LIBRARIES, Product};
use super::{cache, check, licences};

/// Shells, and where each looks for completions below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/{}"),
    ("zsh", "share/zsh/site-functions/_{}"),
    ("fish", "share/fish/vendor_completions.d/{}.fish"),
];

/// What a tree holds, and so a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The program and the drop-in libraries.
    Product,
    /// What measures and teaches. It is larger than the product, which does without it.
    Laboratory,
}

impl Part {
    /// Of its package and of its program.
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::Product => "highwire",
            Part::Laboratory => "highwire-lab",
        }
    }
}

/// The tree.
pub(super) struct Stage {
    pub(super) part: Part,
    prefix: PathBuf,
}

impl Stage {
    /// Lays a part out, with its manual and completions if the program makes them.
    pub(super) fn make(part: Part, product: &Product, log: &Log) -> Result<Stage> {
        let name = part.name();
        let prefix = cache().join("stage").join(name);
        let _ = fs::remove_dir_all(&prefix);
        let stage = Stage { part, prefix };
        let program = match part {
            Part::Product => product.program(),
            Part::Laboratory => product.laboratory(),
        };
        stage.add(&format!("bin/{name}"), &program, 0o755)?;
        if part == Part::Product {
            for name in LIBRARIES {
                stage.add(&format!("lib/highwire/{name}"), &product.libraries().join(name), 0o644)?;
            }
            stage.add("share/doc/highwire/README.md", &root().join("packaging/README.md"), 0o644)?;
        }
        for licence in licences() {
            let file = licence.file_name().unwrap_or_default().to_string_lossy().into_owned();
            stage.add(&format!("share/doc/{name}/{file}"), &licence, 0o644)?;
        }
        stage.add_what_the_program_writes(&program, log)?;
        Ok(stage)
    }

    /// Lays both out.
    pub(super) fn both(product: &Product, log: &Log) -> Result<[Stage; 2]> {
        Ok([Stage::make(Part::Product, product, log)?, Stage::make(Part::Laboratory, product, log)?])
    }

    fn add_what_the_program_writes(&self, program: &Path, log: &Log) -> Result<()> {
        let program = program.to_string_lossy();
        for (shell, place) in COMPLETIONS {
            let output = Line::new(&program).arg("completions").arg(shell).capture()?;
            if output.success && !output.stdout.is_empty() {
                self.write(&place.replace("{}", self.part.name()), output.stdout.as_bytes())?;
            } else {
                log.note(&format!("no completions for {shell}: {}", output.stderr.trim()))?;
            }
        }
        let pages = cache().join("man");
        let _ = fs::remove_dir_all(&pages);
        fs::create_dir_all(&pages)?;
        let output = Line::new(&program).arg("man").arg(&pages).capture()?;
        if !output.success {
            log.note(&format!("no manual: {}", output.stderr.trim()))?;
        }
        for page in fs::read_dir(&pages)? {
            let page = page?.path();
            let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let section = name.rsplit('.').next().unwrap_or("1").to_owned();
            check(&Line::new("gzip").words("-9 --no-name").arg(&page), log)?;
            let packed = pages.join(format!("{name}.gz"));
            self.add(&format!("share/man/man{section}/{name}.gz"), &packed, 0o644)?;
        }
        Ok(())
    }

    fn add(&self, place: &str, from: &Path, mode: u32) -> Result<()> {
        let bytes = fs::read(from).with_context(|| from.display().to_string())?;
        self.write(place, &bytes)?;
        // The modes are those of the packages, whatever the umask is.
        fs::set_permissions(self.prefix.join(place), fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    fn write(&self, place: &str, bytes: &[u8]) -> Result<()> {
        let path = self.prefix.join(place);
        fs::create_dir_all(path.parent().context("a place has a folder")?)?;
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        Ok(())
    }

    /// The folder that stands for the prefix.
    pub(super) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Every file, as a sorted list of names below the prefix.
    pub(super) fn files(&self) -> Result<Vec<String>> {
        let mut files = Vec::new();
        collect(&self.prefix, &self.prefix, &mut files)?;
        files.sort();
        Ok(files)
    }
}

fn collect(top: &Path, folder: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(top, &path, files)?;
        } else {
            files.push(path.strip_prefix(top)?.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
