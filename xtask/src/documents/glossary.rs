//! The glossary holds: pages use the field's word, and not the one that it replaces.

use std::path::Path;

use super::prose;

pub(super) const PAGE: &str = "docs/glossary.md";
const SECTION: &str = "## Words in code";

/// The words that prose leaves to code.
#[derive(Debug)]
pub(super) struct Replaced {
    /// In lower case; may be several words.
    word: String,
    instead: String,
}

/// The rows of the glossary's table, and what is wrong with it.
pub(super) fn read(glossary: &str, root: &Path) -> (Vec<Replaced>, Vec<String>) {
    let (mut replaced, mut problems) = (Vec::new(), Vec::new());
    let section = glossary.split_once(SECTION).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    for row in section.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [words, instead, code] = cells[..] else {
            problems.push(format!("{PAGE}: a row of {} cells: {row}", cells.len()));
            continue;
        };
        replaced.extend(
            words
                .split(',')
                .map(|word| Replaced { word: word.trim().to_lowercase(), instead: instead.into() }),
        );
        for path in super::quoted_words(code).iter().filter(|word| word.contains('/')) {
            if !root.join(path).exists() {
                problems.push(format!("{PAGE}: {path} is not there any more: `{words}` may go, too"));
            }
        }
    }
    if replaced.is_empty() {
        problems.push(format!("{PAGE} has no table below “{SECTION}”"));
    }
    (replaced, problems)
}

/// Where a page uses a word that is replaced.
pub(super) fn problems(page: &str, replaced: &[Replaced]) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in prose::lines(page) {
        let words: Vec<String> = line
            .split(|it: char| !it.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        for Replaced { word, instead } in replaced {
            let parts: Vec<&str> = word.split(' ').collect();
            let is_there = words.windows(parts.len()).any(|window| {
                let (last, before) = window.split_last().expect("no word is empty");
                let (last_part, before_parts) = parts.split_last().expect("no word is empty");
                before.iter().eq(before_parts.iter())
                    && (last == last_part || last.strip_suffix('s') == Some(last_part))
            });
            if is_there {
                problems.push(format!("line {number}: “{word}”, for which the glossary has “{instead}”"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# Glossary\n\n## Words in code\n\n| word | in prose | where |\n|---|---|---|\n\
        | door | device server | `crates/host/src/door.rs` |\n| last will, will file | last message | `crates/no/such.rs` |\n\n## More\n\n| bell | x | y |\n";

    #[test]
    fn the_fields_word_stands_in_prose() {
        let (replaced, problems) = read(GLOSSARY, crate::shell::root());
        assert_eq!(replaced.len(), 3);
        assert_eq!(problems.len(), 1, "a path that is not there: {problems:?}");
        let found = |page: &str| super::problems(page, &replaced).len();
        assert_eq!(found("The doors of a device.\nIts last wills."), 2);
        assert_eq!(found("A doorbell, `door`, [x](door.md), a will, and what will last."), 0);
    }

    #[test]
    fn a_glossary_without_its_table_is_a_problem() {
        assert_eq!(read("# Glossary\n", crate::shell::root()).1.len(), 1);
    }
}
