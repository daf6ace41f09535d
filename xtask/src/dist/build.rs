//! The product: the program and the drop-in libraries, optimised, linked for an older C library. And the laboratory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell::{Line, Log, target_dir};
use crate::{debug, libs};

use super::tools::Tools;
use super::{check, floor, glibc};

/// The drop-in libraries: all that a folder needs that `highwire run` uses.
pub(super) const LIBRARIES: [&str; 4] =
    ["libhighwire-paths.so", "libhighwire-poll.so", "libibverbs.so.1", "librdmacm.so.1"];

/// What was built, stripped.
pub(super) struct Product {
    folder: PathBuf,
}

impl Product {
    /// Builds it. Only the last crate of each file differs from what the other steps build: the two share all others.
    ///
    /// # Errors
    /// The compiler or the linker failed; the log says why.
    pub(super) fn build(tools: &Tools, profile: Profile, log: &Log) -> Result<Product> {
        let stubs = glibc::stubs(tools, log)?;
        // What the compiler's own library needs of newer systems is none of the product's needs.
        let words = format!("-B{}/ -Wl,-z,defs,--allow-shlib-undefined", stubs.display());
        let folder = target_dir().join("dist-cache/product");
        let _ = fs::remove_dir_all(&folder);
        let product = Product { folder };
        fs::create_dir_all(product.libraries())?;

        let libraries = "--package highwire-paths --package highwire-poll --lib";
        let libraries = profile.build("highwire-ibverbs", libraries).env("HIGHWIRE_LINK_ARGS", &words);
        check(&libraries, log)?;
        let built = target_dir().join(profile.folder());
        libs::link_all(&built, &product.libraries(), Some(&stubs))?;
        for name in LIBRARIES {
            strip(&product.libraries().join(name), "--strip-unneeded", log)?;
        }
        // What the linker was told stays out of the packages.
        for entry in fs::read_dir(product.libraries())? {
            let entry = entry?;
            if !LIBRARIES.iter().any(|name| entry.file_name() == *name) {
                fs::remove_file(entry.path())?;
            }
        }
        // The program comes last, because it may hold the libraries.
        let program = profile.build("highwire", "--bin highwire").env("HIGHWIRE_LINK_ARGS", &words);
        check(&program.env("HIGHWIRE_EMBED_DIR", product.libraries()), log)?;
        fs::copy(built.join("highwire"), product.program()).context("cargo has made no program")?;
        strip(&product.program(), "--strip-all", log)?;

        let laboratory = profile.build("highwire-lab", "--bin highwire-lab");
        check(&laboratory.env("HIGHWIRE_LINK_ARGS", &words), log)?;
        fs::copy(built.join("highwire-lab"), product.laboratory()).context("cargo has made no laboratory")?;
        strip(&product.laboratory(), "--strip-all", log)?;
        Ok(product)
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder.join("highwire")
    }

    pub(super) fn laboratory(&self) -> PathBuf {
        self.folder.join("highwire-lab")
    }

    pub(super) fn libraries(&self) -> PathBuf {
        self.folder.join("libraries")
    }

    /// The faults of files that would not start on the oldest C library.
    pub(super) fn problems(&self) -> Result<Vec<String>> {
        let libraries = LIBRARIES.iter().map(|name| self.libraries().join(name));
        let mut problems = Vec::new();
        for file in libraries.chain([self.program(), self.laboratory()]) {
            problems.extend(floor::problems(&file, glibc::FLOOR)?);
        }
        Ok(problems)
    }
}

/// How it is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// As users get it.
    Release,
    /// Quickly, to try the packages themselves.
    Debug,
}

impl Profile {
    fn build(self, package: &str, targets: &str) -> Line {
        match self {
            Profile::Release => Line::cargo("build --release --package").arg(package).words(targets),
            Profile::Debug => debug::build(package, targets),
        }
    }

    fn folder(self) -> &'static str {
        if self == Profile::Release { "release" } else { "debug" }
    }
}

fn strip(file: &Path, how: &str, log: &Log) -> Result<()> {
    check(&Line::new("strip").arg(how).arg(file), log)
}
