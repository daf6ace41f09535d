//! java/memcached beside memcached in C: random commands with compared answers, and tests of memcached's own
//! suite.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::{MEMCACHED, package, tools};
use crate::debian::upstream;
use crate::packages;
use crate::shell::{Line, Log, root, target_dir};

/// The suite whose memcached has the release that java/memcached follows.
const SUITE: &str = "bookworm";
/// Memcached's tests that need neither its debugging commands nor options that java/memcached does not have.
const TESTS: [&str; 13] = [
    "lru",
    "slabs_reassign",
    "slabs-reassign2",
    "getset",
    "cas",
    "incrdecr",
    "touch",
    "flags",
    "noreply",
    "metaget",
    "multiversioning",
    "bogus-commands",
    "issue_29",
];
/// The numbers that classes of chunks have in memcached's tests and here: for 70,000 and for 20,000 bytes.
const CLASSES: [(&str, &str); 2] = [("31", "27"), ("25", "22")];
/// Takes memcached's options, as far as they mean something here. `$1` of `timedrun` is its time.
const SERVER: &str = r#"#!/bin/bash
options=()
memory=64
while [ $# -gt 0 ]; do
  case "$1" in
    -h) echo "memcached"; exit 0 ;;
    -p) options+=(--port "$2"); shift ;;
    -l) options+=(--listen "$2"); shift ;;
    -m) memory=$2; shift ;;
    -[uUotcRnf]) shift ;;
  esac
  shift
done
exec "$HIGHWIRE_JAVA" -cp "$HIGHWIRE_CLASSES" highwire.memcached.MemcachedServer --no-rdma --memory "$memory" "${options[@]}"
"#;
const TIMED_RUN: &str = "#!/bin/bash\nshift\nexec \"$@\"\n";

/// Sends the same random commands to both.
pub(super) fn fuzz(commands: u64, seed: u64, log: &Log) -> Result<ExitCode> {
    let home = java_home(log)?;
    if let Err(missing) = packages::ensure(&MEMCACHED[..1], log)? {
        bail!("{}", missing.0);
    }
    println!("{commands} commands, seed {seed}: {}", log.path().display());
    let success = Line::new("mvn")
        .words("-B -pl memcached -am package -Dtest=OracleTest -Dsurefire.failIfNoSpecifiedTests=false")
        .arg("-Djunit.jupiter.execution.timeout.mode=disabled")
        .arg(format!("-Dhighwire.memcached.commands={commands}"))
        .arg(format!("-Dhighwire.memcached.seed={seed}"))
        .env("JAVA_HOME", home)
        .dir(root().join("java"))
        .run_logged(log)?;
    let text = log.text()?;
    let skipped = text.lines().find(|line| line.contains("Tests run: 1") && line.contains("Skipped: 1"));
    if !success {
        let (_, after) = text.split_once("AssertionError").unwrap_or(("", &text));
        println!("{}", after.lines().take(60).collect::<Vec<_>>().join("\n"));
        return Ok(ExitCode::FAILURE);
    }
    println!("{}", if skipped.is_some() { "skipped: see the log" } else { "all answers were the same" });
    Ok(if skipped.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs memcached's own tests.
pub(super) fn suite(log: &Log) -> Result<ExitCode> {
    let home = java_home(log)?;
    if !package("memcached", &home, log)? {
        bail!("java/memcached does not build: {}", log.path().display());
    }
    let tree = fetch()?;
    let classes = ["memcached", "rpc", "verbs"]
        .map(|module| root().join("java").join(module).join("target/classes").display().to_string())
        .join(":");
    let mut is_good = true;
    println!("| test | passed | failed |\n|---|---:|---:|");
    for test in TESTS {
        let output = Line::new("timeout")
            .words("300 perl")
            .arg(format!("t/{test}.t"))
            .env("HIGHWIRE_JAVA", home.join("bin/java").display().to_string())
            .env("HIGHWIRE_CLASSES", &classes)
            .dir(&tree)
            .capture()?;
        log.note(&format!("== {test}\n{}\n{}", output.stdout, output.stderr))?;
        let count = |prefix: &str| output.stdout.lines().filter(|line| line.starts_with(prefix)).count();
        let (passed, failed) = (count("ok "), count("not ok "));
        println!("| `{test}` | {passed} | {failed} |");
        is_good &= output.success && failed == 0 && passed > 0;
    }
    println!("{}", log.path().display());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn java_home(log: &Log) -> Result<PathBuf> {
    match tools(log)? {
        Ok(home) => Ok(home),
        Err(missing) => bail!("{}", missing.0),
    }
}

/// Memcached's source with its tests, and programs with the names of its own that start java/memcached.
fn fetch() -> Result<PathBuf> {
    let work = target_dir().join("memcached-suite");
    let tree = work.join("tree");
    if !tree.join("t").is_dir() {
        upstream(SUITE, "memcached", &work)?;
        // The classes of chunks have other sizes here, and so other numbers.
        let test = tree.join("t/slabs_reassign.t");
        let text = fs::read_to_string(&test).with_context(|| test.display().to_string())?;
        fs::write(&test, renumbered(&text))?;
    }
    program(&tree.join("memcached-debug"), SERVER)?;
    program(&tree.join("timedrun"), TIMED_RUN)?;
    Ok(tree)
}

fn renumbered(text: &str) -> String {
    CLASSES.iter().fold(text.to_owned(), |text, (theirs, ours)| {
        ["slab ", "items:", "\"", "reassign ", "reassign 27 "].iter().fold(text, |text, before| {
            [" ", ":", "\\r", "\n"].iter().fold(text, |text, after| {
                text.replace(&format!("{before}{theirs}{after}"), &format!("{before}{ours}{after}"))
            })
        })
    })
}

fn program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_chunks_get_their_numbers_here() {
        let text = "tests => 131;\n# slab 31\n\"items:25:evicted\" \"31:total_pages\" \"slabs reassign 31 25\\r\\n\"";
        let ours = "tests => 131;\n# slab 27\n\"items:22:evicted\" \"27:total_pages\" \"slabs reassign 27 22\\r\\n\"";
        assert_eq!(renumbered(text), ours);
    }
}
