//! Checks of the documentation: the programs accept each command that a page shows, and each link between
//! pages leads to an existing file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::measure::PROGRAMS;
use crate::shell::{Line, Log, root, target_dir};
use crate::test::Tally;

/// Checks every Markdown page of the repository.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    if !Line::cargo(PROGRAMS).run_logged(log)? {
        return Ok(Tally::failure());
    }
    let mut pages = Vec::new();
    for name in ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "java/README.md"] {
        pages.extend(Some(root().join(name)).filter(|path| path.is_file()));
    }
    collect_pages(&root().join("docs"), &mut pages)?;
    let mut tally = Tally::default();
    for page in pages {
        let text = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let shown = page.strip_prefix(root()).unwrap_or(&page).display();
        let links = broken_links(&page, &text).into_iter().map(|link| format!("no such file: {link}"));
        let commands = console_commands(&text);
        let wrong = commands.iter().filter_map(|words| refusal(words));
        let problems: Vec<String> = links.chain(wrong).collect();
        for problem in &problems {
            log.note(&format!("{shown}: {problem}"))?;
        }
        log.note(&format!("{shown}: {} commands", commands.len()))?;
        tally.add(Tally::counts(usize::from(problems.is_empty()), problems.len()));
    }
    Ok(tally)
}

fn collect_pages(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect_pages(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Why the program behind `words` would not accept them; `None` if it would, or if it is not Highwire's.
fn refusal(words: &[String]) -> Option<String> {
    let shown = words.join(" ");
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["cargo", "xtask", rest @ ..] => {
            let error = crate::Cli::command().try_get_matches_from([&["xtask"], rest].concat()).err()?;
            let is_help = matches!(
                error.kind(),
                clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion
            );
            (!is_help).then(|| format!("`{shown}`: {}", error.to_string().trim()))
        }
        ["highwire", rest @ ..] => highwire_refusal(rest).map(|error| format!("`{shown}`: {error}")),
        _ => None,
    }
}

/// `highwire parse-only` parses a command line as the program would, without effect.
fn highwire_refusal(rest: &[&str]) -> Option<String> {
    let program = target_dir().join("debug/highwire");
    let line = Line::new(&program.to_string_lossy()).words("parse-only --");
    match rest.iter().fold(line, |line, word| line.arg(word)).capture() {
        Ok(output) if output.success => None,
        Ok(output) => Some(output.stderr.trim().to_string()),
        Err(error) => Some(format!("{error:#}")),
    }
}

/// The commands in ```` ```console ```` blocks: lines that begin with `$ `, cut into simple commands, comments dropped.
fn console_commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut in_console = false;
    for line in text.lines().map(str::trim) {
        if let Some(language) = line.strip_prefix("```") {
            in_console = !in_console && language == "console";
        } else if in_console && let Some(typed) = line.strip_prefix("$ ") {
            commands.extend(simple_commands(typed));
        }
    }
    commands
}

/// Splits at `|`, `&&`, `&`, `;`, redirections and ` #`, then at blanks; leading `NAME=value` words are environment.
fn simple_commands(typed: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    for word in typed.split_whitespace() {
        match word {
            "#" => break,
            "|" | "&&" | "&" | ";" | "||" => commands.push(Vec::new()),
            ">" | ">>" | "<" => commands.push(vec!["file".into()]),
            _ => commands.last_mut().expect("never empty").push(word.trim_matches('\'').to_string()),
        }
    }
    for command in &mut commands {
        let is_setting = |word: &String| word.contains('=') && !word.starts_with('-');
        while command.first().is_some_and(is_setting) {
            command.remove(0);
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// Targets of `](…)` that lead to no file; addresses elsewhere and anchors are not checked.
fn broken_links(page: &Path, text: &str) -> Vec<String> {
    let folder = page.parent().unwrap_or(root());
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
        .filter(|target| !folder.join(target).exists())
        .map(String::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> = console_commands(text).iter().map(|words| words.join(" ")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn takes_the_commands_out_of_a_console_block() {
        let page = "```console\n$ cargo xtask tour   # shows\noutput\n$ highwire pcap a.pcap | less\n```\n$ not this";
        check(page, &["cargo xtask tour", "highwire pcap a.pcap", "less"]);
    }

    #[test]
    fn leaves_other_blocks_alone() {
        check("```text\n$ highwire nothing\n```\n", &[]);
    }

    #[test]
    fn drops_the_environment_before_a_command() {
        check("```console\n$ HIGHWIRE_ADDR=10.0.0.1 highwire devices &\n```", &["highwire devices"]);
    }

    #[test]
    fn refuses_what_this_program_does_not_have() {
        let words = |typed: &str| typed.split(' ').map(String::from).collect::<Vec<_>>();
        assert_eq!(refusal(&words("cargo xtask test --all")), None);
        assert_eq!(refusal(&words("cargo build")), None);
        assert!(refusal(&words("cargo xtask dance")).is_some());
    }
}
