//! Links between pages: the file exists, and the heading that an anchor names is on it.

use std::collections::BTreeMap;
use std::path::Path;

/// A link of a page: its file, empty for the page itself, and the anchor behind `#`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link<'a> {
    pub(super) file: &'a str,
    pub(super) anchor: Option<&'a str>,
}

/// The links of a page to files of the repository, or to its own headings.
pub(super) fn of(page: &str) -> Vec<Link<'_>> {
    let ends = page.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let links = ends.filter(|target| !target.contains(':') && !target.is_empty());
    links
        .map(|target| match target.split_once('#') {
            Some((file, anchor)) => Link { file, anchor: Some(anchor) },
            None => Link { file: target, anchor: None },
        })
        .collect()
}

/// What is wrong with the links of the page at `path`.
pub(super) fn problems(path: &Path, page: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(path);
    let mut problems = Vec::new();
    for link in of(page) {
        let target = if link.file.is_empty() { path.to_path_buf() } else { folder.join(link.file) };
        if !target.exists() {
            problems.push(format!("links to {}, which is not there", link.file));
        } else if let Some(anchor) = link.anchor
            && target.extension().is_some_and(|extension| extension == "md")
            && !std::fs::read_to_string(&target)
                .is_ok_and(|text| anchors(&text).iter().any(|it| it == anchor))
        {
            problems.push(format!("links to {}#{anchor}, and no heading has that anchor", link.file));
        }
    }
    problems
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && let Some(heading) = heading(line) {
            let anchor = anchor_of(heading);
            let count = seen.entry(anchor.clone()).or_default();
            anchors.push(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
            *count += 1;
        }
    }
    anchors
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len()).then(|| text.strip_prefix(' '))?
}

fn anchor_of(heading: &str) -> String {
    // The text of a link counts, its target does not.
    let text: String = heading.split("](").enumerate().fold(String::new(), |mut text, (index, part)| {
        text.push_str(if index == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) });
        text
    });
    let kept = text.trim().chars().filter(|it| it.is_alphanumeric() || [' ', '-', '_'].contains(it));
    kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_other_places_are_none() {
        let page = "[a](a.md), [b](../b.md#part), [c](#here), [d](https://example.org/d.md)";
        let link = |file, anchor| Link { file, anchor };
        assert_eq!(of(page), [link("a.md", None), link("../b.md", Some("part")), link("", Some("here"))]);
    }

    #[test]
    fn an_anchor_is_made_of_its_heading() {
        let page =
            "# A page\n```text\n# no heading\n```\n## `ib_x` on RC, over UDP\n## Twice\n## Twice\n#none\n";
        assert_eq!(anchors(page), ["a-page", "ib_x-on-rc-over-udp", "twice", "twice-1"]);
    }

    #[test]
    fn a_heading_that_is_not_there_is_a_problem() {
        let path = crate::shell::root().join("docs/README.md");
        assert_eq!(problems(&path, "[x](testing.md#skips) [y](README.md)"), Vec::<String>::new());
        assert_eq!(problems(&path, "[x](testing.md#no-such-part)").len(), 1);
        assert_eq!(problems(&path, "[x](#no-such-part)").len(), 1);
        assert_eq!(problems(&path, "[x](no-such-page.md)").len(), 1);
    }
}
