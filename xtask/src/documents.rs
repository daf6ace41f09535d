//! Checks of the documentation against the repository: each dependency has its row of reason, CONTRIBUTING.md
//! names exactly the crates that hold unsafe code, pages link to existing files and headings, tables name
//! functions that those files have, and no file has the marks of an unfinished merge. Pages are short, use the
//! glossary's words, every promise of `docs/testing.md` has its test, and the README's figures are measured ones.

mod glossary;
mod links;
#[cfg(test)]
mod picture;
mod promises;
mod proof;
mod prose;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::shell::{Line, Log, root};
use crate::test::Tally;

const REASONS: &str = "docs/decisions/dependencies.md";
/// Pages that commands write have tables as long as there are measurements.
const MEASUREMENTS: &str = "docs/measurements/";

/// Checks all of it.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    let mut tally = Tally::default();
    let reasons = read(REASONS)?;
    let used = dependencies()?;
    for problem in compare(&used, &first_column(&reasons), "a dependency", REASONS, &mut tally) {
        log.note(&problem)?;
    }
    let rule = read("CONTRIBUTING.md")?;
    let sentence = rule.lines().find(|line| line.contains("`unsafe` lives in"));
    let sentence = sentence.context("CONTRIBUTING.md does not say where unsafe code lives")?;
    let named = quoted_words(sentence).into_iter().filter(|word| word != "unsafe").collect();
    let holding = crates_with_unsafe(&root().join("crates"))?;
    for problem in compare(&holding, &named, "a crate with unsafe code", "CONTRIBUTING.md", &mut tally) {
        log.note(&problem)?;
    }
    let (replaced, wrong) = glossary::read(&read(glossary::PAGE)?, root());
    let (promises, unkept) = promises::check(&read(promises::PAGE)?, &root().join("docs"));
    let old = proof::problems(&read("README.md")?, &read(proof::PAGE)?);
    tally.add(Tally::counts(promises, wrong.len() + unkept.len() + old.len()));
    wrong.iter().chain(&unkept).chain(&old).try_for_each(|problem| log.note(problem))?;
    let (mut links, mut files, mut long_sentences) = (0, 0, 0);
    for name in tracked()? {
        let path = root().join(&name);
        // Symbolic links, and files that are no text, hold no sentences.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        files += 1;
        let mut problems: Vec<String> =
            merge_marks(&text).map(|line| format!("line {line}: a mark of a merge")).collect();
        let is_page = name.ends_with(".md");
        if is_page {
            links += links::of(&text).len();
            problems.extend(links::problems(&path, &text));
            problems.extend(wrong_functions(&path, &text));
            problems.extend(wrong_style(&name, &text, &replaced));
            if !name.starts_with(MEASUREMENTS) {
                long_sentences += prose::long_sentences(&text);
            }
        }
        tally.add(Tally::counts(usize::from(is_page && problems.is_empty()), problems.len()));
        problems.iter().try_for_each(|problem| log.note(&format!("{name}: {problem}")))?;
    }
    log.note(&format!(
        "{} dependencies, {} crates with unsafe code, {links} links, {promises} promises, {files} files, {long_sentences} long sentences",
        used.len(),
        holding.len()
    ))?;
    Ok(tally)
}

/// What is wrong with a page's length, and with its words.
fn wrong_style(name: &str, page: &str, replaced: &[glossary::Replaced]) -> Vec<String> {
    let mut problems = Vec::new();
    if name.starts_with(MEASUREMENTS) {
        return problems;
    }
    let words = prose::words(page);
    if words > prose::WORDS_MAX {
        problems.push(format!("{words} words: a page has {} at most", prose::WORDS_MAX));
    }
    if name != glossary::PAGE {
        problems.extend(glossary::problems(page, replaced));
    }
    problems
}

/// Functions that a page's tables name and that the files beside them do not have.
fn wrong_functions(path: &Path, page: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(path);
    let mut problems = Vec::new();
    for (source, functions) in page.lines().filter_map(functions_named) {
        let code = std::fs::read_to_string(folder.join(source)).unwrap_or_default();
        let missing = functions.iter().filter(|function| !has_function(&code, function));
        problems.extend(missing.map(|it| format!("says that {source} has `{it}`")));
    }
    problems
}

/// Every file of the repository.
fn tracked() -> Result<Vec<String>> {
    let output = Line::new("git").words("ls-files --cached --others --exclude-standard").capture()?;
    if !output.success {
        bail!("git ls-files: {}", output.stderr);
    }
    Ok(output.stdout.lines().map(String::from).collect())
}

/// The numbers of the lines that a merge has left behind.
fn merge_marks(text: &str) -> impl Iterator<Item = usize> {
    let is_mark = |line: &str| ["<<<<<<< ", ">>>>>>> "].iter().any(|mark| line.starts_with(mark));
    text.lines().enumerate().filter(move |(_, line)| is_mark(line)).map(|(number, _)| number + 1)
}

/// The source file that a row of a table links to in its last cell, and the functions that it names behind that.
fn functions_named(row: &str) -> Option<(&str, Vec<String>)> {
    let (_, rest) = row.strip_prefix('|')?.trim_end().strip_suffix('|')?.rsplit_once("](")?;
    let (source, functions) = rest.split_once(')')?;
    (source.ends_with(".rs") && !functions.contains('|')).then(|| (source, quoted_words(functions)))
}

fn has_function(code: &str, name: &str) -> bool {
    let ends = |rest: &str| rest.starts_with(['(', '<']);
    code.split("fn ").any(|rest| rest.strip_prefix(name).is_some_and(ends))
}

fn read(page: &str) -> Result<String> {
    std::fs::read_to_string(root().join(page)).with_context(|| page.to_string())
}

/// Names that exist but are not listed, and listed ones that do not exist.
fn compare(
    there: &BTreeSet<String>,
    named: &BTreeSet<String>,
    kind: &str,
    page: &str,
    tally: &mut Tally,
) -> Vec<String> {
    let missing = there.difference(named).map(|name| format!("{name} is {kind} that {page} does not name"));
    let stale = named.difference(there).map(|name| format!("{page} names {name}, which is not {kind}"));
    let problems: Vec<String> = missing.chain(stale).collect();
    tally.add(Tally::counts(there.intersection(named).count(), problems.len()));
    problems
}

/// Every foreign crate that a package of this repository depends on.
fn dependencies() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let line = Line::cargo("metadata --format-version 1 --no-deps --manifest-path").arg(manifest);
        let output = line.capture()?;
        if !output.success {
            bail!("{line}: {}", output.stderr);
        }
        let json: serde_json::Value = serde_json::from_str(&output.stdout)?;
        for package in json["packages"].as_array().into_iter().flatten() {
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                // The repository's own have a path, the others a registry.
                if dependency["path"].is_null() {
                    names.extend(dependency["name"].as_str().map(String::from));
                }
            }
        }
    }
    Ok(names)
}

/// The names between back quotes in the first cell of each row of a page's tables.
fn first_column(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    cells.flat_map(quoted_words).collect()
}

fn quoted_words(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// The folders of `crates` in whose sources a block, function or implementation is unsafe.
fn crates_with_unsafe(crates: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(crates)? {
        let folder = entry?.path();
        if has_unsafe(&folder.join("src"))? {
            found.extend(folder.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(found)
}

fn has_unsafe(folder: &Path) -> Result<bool> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(false) };
    for entry in entries {
        let path = entry?.path();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if path.is_dir() && has_unsafe(&path)?
            || is_source && std::fs::read_to_string(&path)?.lines().any(is_unsafe)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "#[unsafe("]
        .iter()
        .any(|word| code.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn what_is_missing_and_what_is_stale_are_both_problems() {
        let mut tally = Tally::default();
        let problems = compare(&set(&["a", "b"]), &set(&["b", "c"]), "a thing", "PAGE", &mut tally);
        assert_eq!(problems, ["a is a thing that PAGE does not name", "PAGE names c, which is not a thing"]);
    }

    #[test]
    fn a_row_may_name_two_crates() {
        let page = "| crate | why |\n|---|---|\n| `serde`, `serde_json` | as `toml` |\n";
        assert_eq!(first_column(page), set(&["serde", "serde_json"]));
    }

    #[test]
    fn a_merge_that_was_left_unfinished_shows() {
        let text = "a\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n";
        assert_eq!(merge_marks(text).collect::<Vec<_>>(), [2, 6]);
        assert_eq!(merge_marks("Heading\n=======\n").count(), 0);
    }

    #[test]
    fn a_page_is_short_and_pages_that_commands_write_may_be_long() {
        let page = "word ".repeat(prose::WORDS_MAX + 1);
        assert_eq!(wrong_style("docs/a.md", &page, &[]).len(), 1);
        assert_eq!(wrong_style("docs/measurements/a.md", &page, &[]).len(), 0);
        assert_eq!(wrong_style("docs/a.md", &page[5..], &[]).len(), 0);
    }

    #[test]
    fn a_row_names_functions_of_the_file_that_it_links_to() {
        let row = "| 1 | what `it` does | [b.rs](crates/a/src/b.rs): `post`, `poll` |";
        let named = functions_named(row);
        assert_eq!(named, Some(("crates/a/src/b.rs", vec!["post".to_string(), "poll".to_string()])));
        assert_eq!(functions_named("| `x` | [page](a.md) | `y` |"), None);
        assert_eq!(functions_named("see [b.rs](b.rs): `post`"), None);
        let code = "pub(crate) fn post<P: Payload>(p: P) {}\nfn polled() {}";
        assert!(has_function(code, "post") && !has_function(code, "poll") && !has_function(code, "P"));
    }

    #[test]
    fn a_comment_is_not_unsafe_code() {
        assert!(is_unsafe("    unsafe { read(p) }") && is_unsafe("#[unsafe(no_mangle)]"));
        assert!(!is_unsafe("// unsafe { read(p) }") && !is_unsafe("#![forbid(unsafe_code)]"));
    }
}
