//! Debian packages that a task needs: installed if this process may, otherwise named.

use anyhow::Result;

use crate::shell::{Line, Log, has_program};

/// Why some packages are missing, in words that say what to do.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

/// Makes sure that every one of `packages` is installed. With root and apt, installs the missing ones; apt's
/// output goes to `log`.
pub(crate) fn ensure(packages: &[&str], log: &Log) -> Result<std::result::Result<(), Missing>> {
    let absent: Vec<&str> = packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if absent.is_empty() {
        return Ok(Ok(()));
    }
    let names = absent.join(" ");
    if !has_program("apt-get") {
        return Ok(Err(Missing(format!("needs {names}; this machine has no apt to install them with"))));
    }
    if !is_root() {
        return Ok(Err(Missing(format!("needs {names}: sudo apt-get install {names}"))));
    }
    let apt = |words: &str| Line::new("apt-get").words(words).env("DEBIAN_FRONTEND", "noninteractive");
    let installed = (apt("update -qq").run_logged(log)?)
        && apt("install -y -qq --no-install-recommends").words(&names).run_logged(log)?;
    if installed {
        Ok(Ok(()))
    } else {
        Ok(Err(Missing(format!("apt-get could not install {names}; the log {} says why", log.name()))))
    }
}

fn is_installed(package: &str) -> bool {
    Line::new("dpkg-query")
        .words("-W -f ${db:Status-Abbrev}")
        .arg(package)
        .capture()
        .is_ok_and(|output| output.success && output.stdout.starts_with("ii"))
}

fn is_root() -> bool {
    Line::new("id").arg("-u").capture().is_ok_and(|output| output.stdout.trim() == "0")
}
