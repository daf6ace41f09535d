//! Runs commands: in which folder, with which log, and how a person repeats one.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::guard::{self, End};

/// The root folder of the repository in which this call stands, whatever build folder was copied into it.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let here = std::env::current_dir().unwrap_or_default();
        find_root(std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from), &here).unwrap_or_else(|| {
            eprintln!("xtask: {} lies in no checkout of Highwire: run it as cargo xtask", here.display());
            std::process::exit(2)
        })
    })
}

/// The parent of the package that cargo runs, or without cargo the nearest folder above `here` that has an xtask.
fn find_root(package: Option<PathBuf>, here: &Path) -> Option<PathBuf> {
    let has_xtask = |dir: &&Path| dir.join("xtask/Cargo.toml").is_file();
    package
        .as_deref()
        .and_then(Path::parent)
        .filter(has_xtask)
        .or_else(|| here.ancestors().find(has_xtask))
        .map(Path::to_path_buf)
}

/// Cargo's build folder, which also holds this program's logs and caches.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// One command line: program, arguments and the environment it adds.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    dir: PathBuf,
}

impl Line {
    pub(crate) fn new(program: &str) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new(), dir: root().into() }
    }

    /// `cargo` with the words of `args`, split at blanks.
    pub(crate) fn cargo(args: &str) -> Self {
        Self::new("cargo").words(args)
    }

    pub(crate) fn words(mut self, words: &str) -> Self {
        self.args.extend(words.split_whitespace().map(String::from));
        self
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_string_lossy().into_owned());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_string_lossy().into_owned()));
        self
    }

    pub(crate) fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(&self.dir);
        // Variables that `cargo xtask` set for this process would pin the toolchain of its commands. Its package's
        // make build scripts run again after a build by cargo itself.
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        std::env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| name.to_string_lossy().starts_with("CARGO_PKG_"))
            .chain(["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_BIN_NAME"].map(Into::into))
            .for_each(|name| {
                command.env_remove(name);
            });
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it with its output on the caller's terminal; true when it exits with 0.
    pub(crate) fn run(&self) -> Result<bool> {
        let status = self.command().status().with_context(|| format!("cannot start {}", self.program))?;
        Ok(status.success())
    }

    /// Runs it in silence and returns its output.
    pub(crate) fn capture(&self) -> Result<Captured> {
        let output = self
            .command()
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", self.program))?;
        Ok(Captured {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it with its error output on the caller's terminal, and returns its standard output; `None` if it
    /// failed.
    pub(crate) fn capture_stdout(&self) -> Result<Option<String>> {
        let output = self
            .command()
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {}", self.program))?;
        Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Runs it with both outputs appended to `log`, in the order in which they were written; not beyond the log's time.
    pub(crate) fn run_logged(&self, log: &Log) -> Result<bool> {
        log.note(&format!("$ {self}"))?;
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(log.append()?)
            .stderr(log.append()?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program))?;
        match guard::wait(&mut child, log.ends_at)? {
            End::ByItself(status) => Ok(status.success()),
            End::Hung(report) => {
                log.note(&format!("{report}error: it did not end in time: $ {self}"))?;
                Ok(false)
            }
        }
    }
}

/// As a person would type it in a shell at the root of the repository.
impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.dir != root() {
            write!(f, "cd {} && ", self.dir.strip_prefix(root()).unwrap_or(&self.dir).display())?;
        }
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{word}'") }
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A log file that several commands append to.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    /// When what it is told of must have ended.
    ends_at: Option<Instant>,
}

impl Log {
    /// Creates `target/xtask/<name>.log`, empty.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let dir = target_dir().join("xtask");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let path = dir.join(format!("{name}.log"));
        File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path, ends_at: None })
    }

    /// Ends commands that write to it when `patience` is over.
    pub(crate) fn for_at_most(self, patience: Duration) -> Self {
        Self { ends_at: Some(Instant::now() + patience), ..self }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its file's name, for reasons that pages quote: no page shows where a machine keeps its files.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(crate) fn note(&self, text: &str) -> Result<()> {
        writeln!(self.append()?, "{text}").with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub(crate) fn text(&self) -> Result<String> {
        let bytes =
            std::fs::read(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Keeps the log under another name, because the next run begins it anew.
    pub(crate) fn keep_as(&self, name: &str) -> Result<()> {
        let to = self.path.with_file_name(format!("{name}.log"));
        std::fs::copy(&self.path, &to).map(drop).with_context(|| format!("cannot write {}", to.display()))
    }

    fn append(&self) -> io::Result<File> {
        OpenOptions::new().append(true).open(&self.path)
    }
}

/// Whether `program` is on the `PATH`.
pub(crate) fn has_program(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_one_would_type_it() {
        let line = Line::cargo("test -p x").arg("two words").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(line.to_string(), "RUSTDOCFLAGS='-D warnings' cargo test -p x 'two words'");
    }

    /// Two checkouts may share a build folder, or one may be a copy of the other with it.
    #[test]
    fn the_root_is_the_tree_that_one_stands_in_and_not_where_the_program_was_built() {
        let trees = std::env::temp_dir().join(format!("xtask-root-{}", std::process::id()));
        for tree in ["one", "two"] {
            std::fs::create_dir_all(trees.join(tree).join("xtask")).unwrap();
            std::fs::create_dir_all(trees.join(tree).join("crates/deep")).unwrap();
            std::fs::write(trees.join(tree).join("xtask/Cargo.toml"), "").unwrap();
        }
        let (one, two) = (trees.join("one"), trees.join("two"));
        assert_eq!(
            find_root(Some(one.join("xtask")), &two),
            Some(one.clone()),
            "cargo says which package it runs"
        );
        assert_eq!(
            find_root(None, &two.join("crates/deep")),
            Some(two.clone()),
            "without cargo, the folder above"
        );
        assert_eq!(find_root(Some(trees.join("gone/xtask")), &one), Some(one), "a package that is no more");
        assert_eq!(find_root(None, &trees), None, "beside both");
        std::fs::remove_dir_all(&trees).unwrap();
    }

    #[test]
    fn a_line_elsewhere_says_where() {
        let line = Line::cargo("fuzz list").dir(root().join("fuzz"));
        assert_eq!(line.to_string(), "cd fuzz && cargo fuzz list");
    }
}
