//! Two programs, one name: `highwire` hands commands of the laboratory to `highwire-lab`, as git does with
//! commands that are programs of their own.
//!
//! The product names the laboratory's commands, so that its help lists them and says what is missing where
//! only the product is installed. A test of the laboratory compares the names with its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// The file of the product.
const PRODUCT: &str = "highwire";
/// The file of the laboratory.
const LABORATORY: &str = "highwire-lab";

/// The laboratory's commands that `highwire` lists, and what each is for.
pub const COMMANDS: &[(&str, &str)] = &[
    ("sim", "Experiments on a simulated network, beside what the papers report"),
    ("nanopu", "Programs on the nanoPU, a simulated processor with the network in its registers"),
    ("bench", "Measure parts of Highwire by themselves"),
    ("churn", "Let processes come to a shared address and leave it at random"),
];

/// The laboratory's commands below `highwire store`.
pub const STORE_COMMANDS: &[(&str, &str)] = &[
    ("check", "Run simulated clusters through faults, and check their transactions"),
    ("faults", "Do real faults to a cluster of processes, and tell how long each was felt"),
];

/// The lines below the list of a command's own subcommands.
pub fn listing(commands: &[(&str, &str)]) -> String {
    let width = commands.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = commands.iter().map(|(name, about)| format!("\n  {name:width$}  {about}"));
    format!("Commands of {LABORATORY}, found beside this program or in PATH:{}", lines.collect::<String>())
}

/// Whether the laboratory has the command that these words begin with, or ask help for.
pub fn has(words: &[OsString]) -> bool {
    let is_of = |commands: &[(&str, &str)], word: &OsStr| commands.iter().any(|(name, _)| word == *name);
    let mut path = words.iter().map(OsString::as_os_str).enumerate();
    // `help sim`, `store help check`: clap takes the word at either place.
    let mut next = || path.find(|(place, word)| *place > 1 || *word != "help").map(|(_, word)| word);
    match next() {
        Some(word) if word == "store" => next().is_some_and(|word| is_of(STORE_COMMANDS, word)),
        Some(word) => is_of(COMMANDS, word),
        None => false,
    }
}

/// Becomes the laboratory's program, with `words` as they are.
///
/// # Errors
/// It is not there, and the message says where to get it; or it cannot be started.
pub fn become_laboratory(words: &[OsString]) -> Result<ExitCode> {
    let program = laboratory().with_context(|| {
        let shown = words.iter().take(2).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        format!(
            "`highwire {shown}` belongs to {LABORATORY}, which is neither beside this program nor in PATH: \
             the package {LABORATORY} has it, and `cargo install --path crates/lab` in a checkout builds it"
        )
    })?;
    // By this name its help speaks of the commands as they were typed.
    let error = Command::new(&program).arg0(PRODUCT).args(words).exec();
    Err(error).with_context(|| format!("cannot execute {}", program.display()))
}

/// The laboratory's program, if it is installed.
pub fn laboratory() -> Option<PathBuf> {
    find(LABORATORY)
}

/// The product's program, for commands of the laboratory that start nodes of the store.
///
/// # Errors
/// It is neither beside this program nor in PATH.
pub fn product() -> Result<PathBuf> {
    find(PRODUCT).with_context(|| format!("no program `{PRODUCT}` beside this one or in PATH"))
}

/// Beside this program, or else in PATH.
fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(typed: &str, expected: bool) {
        let words: Vec<OsString> = typed.split_whitespace().map(OsString::from).collect();
        assert_eq!(has(&words), expected, "{typed}");
    }

    #[test]
    fn commands_and_their_help_are_told_apart() {
        check("sim run plan.toml", true);
        check("help nanopu", true);
        check("help nanopu run", true);
        check("store check --seed 7", true);
        check("store help check", true);
        check("help store faults", true);
        check("store get check", false);
        check("store", false);
        check("store help", false);
        check("run -- sim", false);
        check("--help sim", false);
        check("", false);
        check("help", false);
    }

    #[test]
    fn a_listing_has_a_line_for_each() {
        let text = listing(COMMANDS);
        assert_eq!(text.lines().count(), COMMANDS.len() + 1);
        assert!(text.contains("\n  sim     Experiments"), "{text}");
    }
}
