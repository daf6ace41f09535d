//! What packages carry beside a program, made from its command line: manual pages, and completions of shells.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::console::written;

/// Options of `completions`.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// Whose completions.
    shell: Shell,
}

/// Options of `man`.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// The folder for the pages; it is made if it is not there.
    folder: PathBuf,
}

/// Prints the completions of `program`.
///
/// # Errors
/// The output takes no more.
pub fn complete(program: &mut Command, args: &Completions) -> Result<ExitCode> {
    let name = program.get_name().to_string();
    let mut text = Vec::new();
    clap_complete::generate(args.shell, program, name, &mut text);
    let mut out = std::io::stdout().lock();
    written(out.write_all(&text).and_then(|()| out.flush()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for `program`, and one for each of its commands: `highwire.1`, `highwire-perf-read.1`.
///
/// # Errors
/// The folder takes no files.
pub fn write(program: Command, args: &Man) -> Result<ExitCode> {
    let folder = &args.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // Subcommands get the name of their parents with this, and `help` for each of them no page.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = vec![program];
    while let Some(command) = pages.pop() {
        pages.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
        let path = folder.join(format!("{name}.1"));
        let shown = || format!("cannot write {}", path.display());
        let mut file = File::create(&path).with_context(shown)?;
        // The version of the package alone: pages are the same from whatever commit.
        let page = clap_mangen::Man::new(command.version(env!("CARGO_PKG_VERSION"))).title(name);
        page.render(&mut file).with_context(shown)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn every_visible_command_has_a_page() {
        let read = Command::new("read").about("Read remote memory").arg(Arg::new("size").long("size"));
        let secret = Command::new("secret").hide(true);
        let program = Command::new("tool").version("7").subcommand(Command::new("perf").subcommand(read));
        let folder = std::env::temp_dir().join(format!("highwire-man-{}", std::process::id()));
        write(program.subcommand(secret), &Man { folder: folder.clone() }).expect("the folder takes files");
        let mut names: Vec<String> = fs::read_dir(&folder)
            .expect("it was made")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["tool-perf-read.1", "tool-perf.1", "tool.1"]);
        let page = fs::read_to_string(folder.join("tool-perf-read.1")).expect("a page");
        fs::remove_dir_all(&folder).expect("it is ours");
        assert!(page.contains("Read remote memory") && page.contains("\\-\\-size"), "{page}");
    }
}
