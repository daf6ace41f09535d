//! `highwire env`: the same settings as `highwire run`'s, as commands for a shell to evaluate.

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::console::Console;
use crate::run::environment::{EnvironmentArgs, Settings};

/// Options of `highwire env`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eval \"$(highwire env)\"                      for the rest of a shell's life, or a container's entry point
  eval \"$(highwire env --loss 1% --seed 7)\"
  highwire env --shell fish | source
  eval \"$(highwire env --unset)\"              and back")]
pub(crate) struct Args {
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Whose language to speak: sh is also that of bash, zsh, dash and ksh [default: that of $SHELL]
    #[arg(long, value_enum)]
    shell: Option<Shell>,
    /// Take the settings back instead.
    #[arg(long)]
    unset: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Sh,
    Fish,
}

/// Every variable that an earlier `highwire env` may have set.
const ALL: [&str; 15] = [
    "HIGHWIRE_ADDR",
    "HIGHWIRE_LINK",
    "HIGHWIRE_RECOVERY",
    "HIGHWIRE_WAKE",
    "HIGHWIRE_LOSS",
    "HIGHWIRE_DUPLICATE",
    "HIGHWIRE_REORDER",
    "HIGHWIRE_CORRUPT",
    "HIGHWIRE_DELAY",
    "HIGHWIRE_SEED",
    "HIGHWIRE_PCAP",
    "HIGHWIRE_SCENARIO",
    "HIGHWIRE_SCENARIO_LOG",
    "HIGHWIRE_LIBS",
    "HIGHWIRE_BROKER",
];

/// Prints the commands.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let shell = args.shell.unwrap_or_else(|| of_user(std::env::var_os("SHELL").as_deref()));
    let settings = args.environment.settings()?;
    let mut console = Console::new();
    let lines = if args.unset { unset(shell, &settings)? } else { export(shell, &settings)? };
    for line in lines {
        console.line(line)?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn of_user(shell: Option<&OsStr>) -> Shell {
    let name = shell.and_then(|path| std::path::Path::new(path).file_name());
    if name == Some(OsStr::new("fish")) { Shell::Fish } else { Shell::Sh }
}

fn export(shell: Shell, settings: &Settings) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for (name, value) in &settings.set {
        lines.push(assignment(shell, name, &quoted(shell, value)?));
    }
    for (name, value) in &settings.prepend {
        let value = quoted(shell, value)?;
        lines.push(match shell {
            Shell::Sh => assignment(shell, name, &format!("{value}\"${{{name}:+:${name}}}\"")),
            // A fish variable whose name ends in PATH is a list; any other is not.
            Shell::Fish => {
                format!("set -gx {name} {value}(set -q {name}; and string join '' ':' \"${name}\")")
            }
        });
    }
    Ok(lines)
}

/// Removes only the library folders that this program added: each is cut off the list if the list begins with
/// it.
fn unset(shell: Shell, settings: &Settings) -> Result<Vec<String>> {
    let mut lines: Vec<String> = ALL
        .iter()
        .map(|name| match shell {
            Shell::Sh => format!("unset {name}"),
            Shell::Fish => format!("set -e {name}"),
        })
        .collect();
    for (name, value) in &settings.prepend {
        let value = quoted(shell, value)?;
        lines.push(match shell {
            Shell::Sh => format!(
                "{name}=\"${{{name}#{value}}}\"; {name}=\"${{{name}#:}}\"; [ -n \"${name}\" ] || unset {name}"
            ),
            Shell::Fish => format!("set -e {name}"),
        });
    }
    Ok(lines)
}

fn assignment(shell: Shell, name: &str, value: &str) -> String {
    match shell {
        Shell::Sh => format!("export {name}={value}"),
        Shell::Fish => format!("set -gx {name} {value}"),
    }
}

/// Between single quotes only the quote itself has a meaning, and in fish the backslash.
fn quoted(shell: Shell, value: &OsStr) -> Result<String> {
    let text = value.to_str().with_context(|| format!("{} is not UTF-8", value.display()))?;
    Ok(match shell {
        Shell::Sh => format!("'{}'", text.replace('\'', r"'\''")),
        Shell::Fish => format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            set: vec![("HIGHWIRE_PCAP", "/tmp/it's $HOME.pcap".into())],
            prepend: vec![("LD_LIBRARY_PATH", "/libs".into())],
        }
    }

    fn evaluate(lines: &[String], before: &str, shown: &str) -> String {
        let script = format!("{before}\n{}\n{shown}", lines.join("\n"));
        let output = std::process::Command::new("/bin/sh").args(["-euc", &script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        let lines = export(Shell::Sh, &settings()).unwrap();
        let shown = "printf '%s|%s' \"$HIGHWIRE_PCAP\" \"$LD_LIBRARY_PATH\"";
        assert_eq!(evaluate(&lines, "unset LD_LIBRARY_PATH", shown), "/tmp/it's $HOME.pcap|/libs");
        assert_eq!(evaluate(&lines, "LD_LIBRARY_PATH=/a:/b", shown), "/tmp/it's $HOME.pcap|/libs:/a:/b");
    }

    #[test]
    fn unset_goes_all_the_way_back() {
        let there_and_back = [export(Shell::Sh, &settings()), unset(Shell::Sh, &settings())];
        let lines: Vec<String> = there_and_back.into_iter().flat_map(Result::unwrap).collect();
        let shown = "printf '%s|%s' \"${HIGHWIRE_PCAP-none}\" \"${LD_LIBRARY_PATH-none}\"";
        assert_eq!(evaluate(&lines, "unset LD_LIBRARY_PATH", shown), "none|none");
        assert_eq!(evaluate(&lines, "LD_LIBRARY_PATH=/a:/b", shown), "none|/a:/b");
    }

    #[test]
    fn fish_has_its_own_language() {
        let lines = export(Shell::Fish, &settings()).unwrap();
        assert_eq!(lines[0], r"set -gx HIGHWIRE_PCAP '/tmp/it\'s $HOME.pcap'");
        assert_eq!(of_user(Some(OsStr::new("/usr/bin/fish"))), Shell::Fish);
        assert_eq!(of_user(Some(OsStr::new("/bin/bash"))), Shell::Sh);
        assert_eq!(of_user(None), Shell::Sh);
    }
}
