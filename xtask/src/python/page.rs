//! A page that is run: its files are written, its commands typed and its Python executed, from top to bottom, in one folder.

use std::path::Path;

use anyhow::{Context, Result};

use crate::shell::{Line, Log, target_dir};

/// Something that a reader of the page does.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// Writes a file: a block behind `<!-- file: NAME -->`.
    File(&'a str, String),
    /// Types a command.
    Command(&'a str),
    /// Executes lines of Python; all of them together are one program, as in a notebook.
    Python(String),
}

/// Does what the page says, in a folder that is made anew.
pub(super) fn run(page: &Path, python: &str, folder: &Path, log: &Log) -> Result<bool> {
    let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let parts = parts(&text);
    let mut program = String::new();
    let mut commands = Vec::new();
    for part in &parts {
        match part {
            Part::File(name, text) => std::fs::write(folder.join(name), text)?,
            Part::Command(typed) => commands.push(*typed),
            Part::Python(lines) => program += &format!("{lines}\n"),
        }
    }
    log.note(&format!(
        "{}: {} commands, {} lines of Python",
        page.display(),
        commands.len(),
        program.lines().count()
    ))?;
    let mut is_right = !commands.is_empty() && !program.is_empty();
    let programs =
        format!("{}:{}", target_dir().join("debug").display(), std::env::var("PATH").unwrap_or_default());
    for typed in commands {
        let line = Line::new("sh").words("-euc").arg(typed).env("PATH", &programs).dir(folder);
        is_right &= line.run_logged(log)?;
    }
    std::fs::write(folder.join("page.py"), &program)?;
    let line = Line::new(python).arg("page.py").env("PYTHONWARNINGS", "error").dir(folder);
    Ok(line.run_logged(log)? && is_right)
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut lines = text.lines();
    let mut name = None;
    while let Some(line) = lines.next() {
        if let Some(file) = line.strip_prefix("<!-- file: ").and_then(|rest| rest.strip_suffix(" -->")) {
            name = Some(file);
            continue;
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let whole = || block.iter().map(|line| format!("{line}\n")).collect::<String>();
        match (name.take(), language) {
            (Some(name), _) => parts.push(Part::File(name, whole())),
            (None, "python") => parts.push(Part::Python(whole())),
            (None, "console") => {
                let typed = block.iter().filter_map(|line| line.strip_prefix("$ "));
                parts.extend(
                    typed.map(|typed| Part::Command(typed.split(" # ").next().unwrap_or(typed).trim())),
                );
            }
            _ => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_files_commands_and_python() {
        let page = "# t\n\n<!-- file: a.txt -->\n```text\nhost a\nhost b\n```\n\n```console\n$ highwire sim list   # all\nfig01\n$ ls\n```\n\n\
            ```python\nx = 1\n```\n\n```text\nnothing\n```\n\n```python\nprint(x)\n```\n";
        let expected = [
            Part::File("a.txt", "host a\nhost b\n".into()),
            Part::Command("highwire sim list"),
            Part::Command("ls"),
            Part::Python("x = 1\n".into()),
            Part::Python("print(x)\n".into()),
        ];
        assert_eq!(parts(page), expected);
    }
}
