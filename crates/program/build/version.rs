//! Asks git for the commit of a checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is compiled into the programs: a change of anything else leaves them the same.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

/// `0.1.0 (1a2b3c4d5e6f)`; with `-dirty` if the sources differ from the commit. A build for development is only
/// called that: to follow its sources, each commit would have to build the programs anew.
pub(crate) fn of(root: &Path, package: &str, is_release: bool) -> String {
    if !is_release {
        return format!("{package} (debug build)");
    }
    let Some(commit) = git(root, &["rev-parse", "--short=12", "HEAD"]) else { return package.into() };
    let mark = if is_dirty(root) { "-dirty" } else { "" };
    format!("{package} ({commit}{mark})")
}

/// The files whose change makes another version.
pub(crate) fn watched(root: &Path, is_release: bool) -> Vec<PathBuf> {
    if !is_release {
        return Vec::new();
    }
    // Each commit and each checkout writes a line into the log.
    let of_git =
        ["HEAD", "logs/HEAD"].iter().filter_map(|name| git(root, &["rev-parse", "--git-path", name]));
    let mut paths: Vec<PathBuf> = of_git.map(|path| root.join(path)).filter(|path| path.exists()).collect();
    if !paths.is_empty() {
        paths.extend(SOURCES.iter().map(|name| root.join(name)));
    }
    paths
}

fn is_dirty(root: &Path) -> bool {
    let arguments = [&["status", "--porcelain", "--"][..], &SOURCES].concat();
    git(root, &arguments).is_none_or(|changes| !changes.is_empty())
}

/// What git prints; `None` without git, and where `root` lies in a repository of something else.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let ask = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim_end().to_string())
    };
    let top = PathBuf::from(ask(&["rev-parse", "--show-toplevel"])?);
    (top.canonicalize().ok()? == root.canonicalize().ok()?).then(|| ask(arguments))?
}
