//! The version of a checkout, of one that was changed, and of sources without git.

#[path = "../build/version.rs"]
mod version;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with sources, which goes with the test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let folder = std::env::temp_dir().join(format!("highwire-version-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("crates")).expect("a folder");
        fs::write(folder.join("crates/a.rs"), "1").expect("a file");
        Tree(folder)
    }

    fn committed(name: &str) -> Tree {
        let tree = Tree::new(name);
        for words in ["init --quiet", "add .", "commit --quiet --message first"] {
            tree.git(words);
        }
        tree
    }

    fn git(&self, words: &str) -> String {
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.0).args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        let output = git.args(words.split(' ')).output().expect("git is there");
        assert!(output.status.success(), "git {words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    fn version(&self) -> String {
        version::of(&self.0, "1.2.3", true)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn has_git() -> bool {
    let is_there = Command::new("git").arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: no git here");
    }
    is_there
}

#[test]
fn sources_without_git_have_the_version_alone() {
    let tree = Tree::new("tarball");
    assert_eq!(tree.version(), "1.2.3");
    assert_eq!(version::watched(&tree.0, true), Vec::<PathBuf>::new());
}

#[test]
fn a_commit_is_named_and_a_change_too() {
    if !has_git() {
        return;
    }
    let tree = Tree::committed("checkout");
    let commit = tree.git("rev-parse --short=12 HEAD");
    assert_eq!(tree.version(), format!("1.2.3 ({commit})"));
    assert_eq!(version::of(&tree.0, "1.2.3", false), "1.2.3 (debug build)");
    assert_eq!(version::watched(&tree.0, false), Vec::<PathBuf>::new(), "a commit builds nothing anew");
    // What is not built changes nothing.
    fs::write(tree.0.join("README.md"), "words").expect("a file");
    assert_eq!(tree.version(), format!("1.2.3 ({commit})"));
    fs::write(tree.0.join("crates/new.rs"), "2").expect("a file");
    assert_eq!(tree.version(), format!("1.2.3 ({commit}-dirty)"), "a file that git does not know");
    fs::remove_file(tree.0.join("crates/new.rs")).expect("it is there");
    fs::write(tree.0.join("crates/a.rs"), "2").expect("a file");
    assert_eq!(tree.version(), format!("1.2.3 ({commit}-dirty)"));
    let watched = version::watched(&tree.0, true);
    for name in [".git/HEAD", ".git/logs/HEAD", "crates"] {
        assert!(watched.iter().any(|path| path.ends_with(name)), "{name}: {watched:?}");
    }
}

/// Sources that were unpacked inside another project have not that project's commit.
#[test]
fn the_repository_around_is_not_asked() {
    if !has_git() {
        return;
    }
    let tree = Tree::committed("around");
    let inner: &Path = &tree.0.join("vendor/highwire");
    fs::create_dir_all(inner.join("crates")).expect("a folder");
    assert_eq!(version::of(inner, "1.2.3", true), "1.2.3");
}
