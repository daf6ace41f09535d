//! Debian packages that a task needs: installed if this process may, otherwise named.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::shell::{Captured, Line, Log, has_program};

/// How long another program may hold apt's locks before a step gives up, and how often it asks meanwhile.
const LOCK_PATIENCE: Duration = Duration::from_secs(600);
const LOCK_PAUSE: Duration = Duration::from_secs(2);

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
    let install = apt("install -y -qq --no-install-recommends").words(&names);
    let installed = patiently(&apt("update -qq"), log)? && patiently(&install, log)?;
    if installed {
        Ok(Ok(()))
    } else {
        Ok(Err(Missing(format!("apt-get could not install {names}; the log {} says why", log.name()))))
    }
}

/// Runs an apt command; waits while another program holds a lock that it needs.
fn patiently(line: &Line, log: &Log) -> Result<bool> {
    let begun = Instant::now();
    let mut has_said = false;
    loop {
        let output = capture_logged(line, log)?;
        let gives_up = begun.elapsed() > LOCK_PATIENCE;
        if output.success || gives_up || !is_locked(&output.stderr) {
            return Ok(output.success);
        }
        if !has_said {
            println!("waiting for another program that holds apt's lock");
            has_said = true;
        }
        thread::sleep(LOCK_PAUSE);
    }
}

fn capture_logged(line: &Line, log: &Log) -> Result<Captured> {
    log.note(&format!("$ {line}"))?;
    let output = line.capture()?;
    log.note(&format!("{}{}", output.stdout, output.stderr))?;
    Ok(output)
}

/// Whether apt or dpkg stopped because another program works on the same files.
fn is_locked(errors: &str) -> bool {
    ["Could not get lock", "Unable to acquire the dpkg frontend lock", "Unable to lock"]
        .iter()
        .any(|words| errors.contains(words))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_another_program_is_no_failure() {
        let lists = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n\
                     E: Unable to lock directory /var/lib/apt/lists/";
        let frontend = "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another \
                        process using it?";
        assert!(is_locked(lists) && is_locked(frontend));
        assert!(!is_locked("E: Unable to locate package no-such-package"));
        assert!(!is_locked(""));
    }
}
