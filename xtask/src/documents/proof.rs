//! README.md gives figures about programs of others: each must stand on the page that a command has written.

pub(super) const PAGE: &str = "docs/measurements/compatibility.md";

/// Figures of the page that the README does not have.
pub(super) fn problems(readme: &str, page: &str) -> Vec<String> {
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let figures = figures(page);
    let mut problems: Vec<String> = figures
        .iter()
        .filter(|figure| !readme.contains(figure.as_str()))
        .map(|figure| format!("README.md does not say “{figure}”, which {PAGE} does"))
        .collect();
    if figures.is_empty() {
        problems.push(format!("{PAGE} has no sum"));
    }
    problems
}

/// `445 cases: **443 work, …` and `170 generic tests: **160 pass, …` as words of a sentence.
fn figures(page: &str) -> Vec<String> {
    let mut figures = Vec::new();
    for line in page.lines() {
        for (what, verb) in [("cases: **", "work"), ("generic tests: **", "pass")] {
            let Some((all, rest)) = line.split_once(what) else { continue };
            let count = rest.split(' ').next().unwrap_or_default();
            figures.push(format!("{all}{}", what.trim_end_matches(": **")));
            figures.push(format!("{count} {verb}"));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_figure_in_the_readme_is_a_problem() {
        let page = "7 cases: **5 work, 1 fail, 1 skipped**, on a machine.\n\n3 generic tests: **2 pass, 1 skipped**.\n";
        assert_eq!(figures(page), ["7 cases", "5 work", "3 generic tests", "2 pass"]);
        assert_eq!(problems("7 cases: 5\nwork. Of 3 generic tests 2 pass.", page), Vec::<String>::new());
        assert_eq!(problems("7 cases: 6 work. Of 3 generic tests 2 pass.", page).len(), 1);
        assert_eq!(problems("7 cases", "# Nothing\n").len(), 1);
    }
}
