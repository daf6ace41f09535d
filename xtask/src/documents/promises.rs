//! The table *promise → test* of `docs/testing.md`: every promise names tests, and each of them exists.

use std::path::Path;

pub(super) const PAGE: &str = "docs/testing.md";
const SECTION: &str = "## Promises and their tests";

/// How many promises have a test, and what is wrong with the table.
pub(super) fn check(page: &str, folder: &Path) -> (usize, Vec<String>) {
    let mut kept = 0;
    let mut problems = Vec::new();
    let section = page.split_once(SECTION).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    for row in section.lines().filter(|line| line.starts_with('|')).skip(2) {
        let wrong = wrong_with(row, folder);
        kept += usize::from(wrong.is_empty());
        problems.extend(wrong.into_iter().map(|what| format!("{PAGE}: {what}")));
    }
    if kept + problems.len() == 0 {
        problems.push(format!("{PAGE} has no table below “{SECTION}”"));
    }
    (kept, problems)
}

fn wrong_with(row: &str, folder: &Path) -> Vec<String> {
    let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
    let [promise, tests] = cells[..] else {
        return vec![format!("a row of {} cells: {row}", cells.len())];
    };
    let mut problems = Vec::new();
    let named = named_tests(tests);
    if named.is_empty() {
        problems.push(format!("“{promise}” names no test"));
    }
    for (source, names) in named {
        let Ok(code) = std::fs::read_to_string(folder.join(source)) else {
            problems.push(format!("“{promise}” names {source}, which is not there"));
            continue;
        };
        // A program in C is one test, and has its file's name.
        if names.is_empty() && !source.ends_with(".c") {
            problems.push(format!("“{promise}” names no test in {source}"));
        }
        let missing = names.iter().filter(|name| !has_test(source, &code, name));
        problems.extend(missing.map(|name| format!("“{promise}”: {source} has no test `{name}`")));
    }
    problems
}

/// The source files that a cell links to, each with the names between back quotes behind it.
fn named_tests(cell: &str) -> Vec<(&str, Vec<String>)> {
    let parts = cell.split("](").skip(1).filter_map(|part| part.split_once(')'));
    parts
        .map(|(source, rest)| (source, super::quoted_words(rest.split('[').next().unwrap_or(rest))))
        .collect()
}

/// Is there a function of that name, and does the test harness call it, or the file's own `main`?
fn has_test(source: &str, code: &str, name: &str) -> bool {
    // In Python a method of that name is a test by its name alone.
    if source.ends_with(".py") {
        return name.starts_with("test_") && code.contains(&format!("\n    def {name}(self)"));
    }
    if code.contains("\nfn main()") && code.contains(&format!("\nfn {name}()")) {
        return code.matches(&format!("{name}()")).count() + code.matches(&format!("\"{name}\"")).count() > 1;
    }
    let (head, attribute) = if source.ends_with(".java") { ("void ", "Test") } else { ("fn ", "test]") };
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(index, line)| {
        let after = line.split_once(head).and_then(|(_, rest)| rest.strip_prefix(name));
        let is_it = after.is_some_and(|rest| rest.starts_with('('));
        let mut above = lines[..index].iter().rev().take_while(|line| line.starts_with(['#', '@', '/']));
        is_it && above.any(|line| line.starts_with(['#', '@']) && line.contains(attribute))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "#[test]\nfn it_holds() {}\n\nfn helper() {}\n// #[test]\nfn not_run() {}\n";

    #[test]
    fn a_test_is_a_function_that_the_harness_calls() {
        let has = |name| has_test("a.rs", CODE, name);
        assert!(has("it_holds"));
        assert!(!has("helper") && !has("not_run") && !has("it_hold") && !has("gone"));
        let own = "\nfn main() {\n    listed();\n}\n\nfn listed() {}\n\nfn left_out() {}\n";
        assert!(has_test("a.rs", own, "listed") && !has_test("a.rs", own, "left_out"));
        assert!(has_test("A.java", "@Test\nvoid itHolds() {", "itHolds"));
        assert!(!has_test("A.java", "void helper() {", "helper"));
        let python = "class A(TestCase):\n    def test_it(self):\n        pass\n    def helper(self):\n";
        assert!(has_test("a.py", python, "test_it"));
        assert!(!has_test("a.py", python, "helper") && !has_test("a.py", python, "test_i"));
    }

    #[test]
    fn a_wrong_name_a_wrong_file_and_no_name_are_problems() {
        let folder = crate::shell::root().join("docs");
        let here = "../xtask/src/documents/promises.rs";
        let table =
            |tests: &str| format!("{SECTION}\n\n| promise | test |\n|---|---|\n| it holds | {tests} |\n");
        let problems = |tests: &str| check(&table(tests), &folder).1.len();
        let right = format!("[promises.rs]({here}): `a_test_is_a_function_that_the_harness_calls`");
        assert_eq!(check(&table(&right), &folder), (1, vec![]));
        assert_eq!(problems(&format!("[promises.rs]({here}): `a_test_that_was_renamed`")), 1);
        assert_eq!(problems("[gone.rs](../xtask/src/gone.rs): `a`"), 1);
        assert_eq!(problems(&format!("[promises.rs]({here})")), 1);
        assert_eq!(problems("by hand"), 1);
        assert_eq!(check("# Testing\n", &folder).1.len(), 1);
    }
}
