//! What of a page people read as sentences: no code, no addresses behind links, no comments.

/// The most words of a page, tables that are folded left out.
pub(super) const WORDS_MAX: usize = 2_500;
/// Sentences above this are counted. They are no mistake.
const SENTENCE_WORDS_MAX: usize = 25;

/// The words of a page outside `<details>`. Code counts: it is read, too.
pub(super) fn words(page: &str) -> usize {
    let mut depth = 0_usize;
    let mut words = 0;
    for line in page.lines() {
        if line.trim_start().starts_with("<details") {
            depth += 1;
        }
        if depth == 0 {
            words += line.split_whitespace().count();
        }
        if line.trim_end().ends_with("</details>") {
            depth = depth.saturating_sub(1);
        }
    }
    words
}

/// The lines of a page as prose, with their numbers. Lines of code blocks are left out.
pub(super) fn lines(page: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.trim_start().starts_with("<!--") {
            lines.push((index + 1, without_code_and_targets(line)));
        }
    }
    lines
}

/// `code` becomes nothing, and `[text](target)` becomes its text.
fn without_code_and_targets(line: &str) -> String {
    let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut prose = String::new();
    for (index, part) in text.split("](").enumerate() {
        let rest = if index == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) };
        prose.push_str(rest);
        prose.push(' ');
    }
    prose
}

/// How many sentences of a page are longer than is easy to read. Rows of tables and headings are none.
pub(super) fn long_sentences(page: &str) -> usize {
    let mut paragraphs = vec![String::new()];
    for (_, line) in lines(page) {
        let text = line.trim();
        let is_apart = text.is_empty() || text.starts_with(['|', '#', '-', '<']);
        if is_apart {
            paragraphs.push(String::new());
        }
        if !text.starts_with(['|', '#', '<']) {
            let paragraph = paragraphs.last_mut().expect("never empty");
            paragraph.push_str(text.trim_start_matches("- "));
            paragraph.push(' ');
        }
    }
    let ends = [". ", "? ", "! ", ": "];
    let sentences = paragraphs.iter().flat_map(|paragraph| {
        ends.iter().fold(vec![paragraph.as_str()], |parts, end| {
            parts.into_iter().flat_map(|part| part.split(end)).collect()
        })
    });
    sentences.filter(|sentence| sentence.split_whitespace().count() > SENTENCE_WORDS_MAX).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folded_table_does_not_count_and_code_does() {
        let page =
            "one two\n<details><summary>three</summary>\n\n| four |\n\n</details>\n```text\nfive\n```\n";
        assert_eq!(words(page), 5, "one, two, five and both fences");
    }

    #[test]
    fn code_and_targets_are_no_prose() {
        let page = "a `door` [b](door.md#door) c\n```text\ndoor\n```\n<!-- begin: door -->\nd\n";
        let text: Vec<_> =
            lines(page).into_iter().map(|(number, text)| (number, text.trim().to_string())).collect();
        assert_eq!(text.len(), 2);
        assert!(text.iter().all(|(_, text)| !text.contains("door")), "{text:?}");
        assert_eq!(text[1], (6, "d".to_string()));
    }

    #[test]
    fn a_sentence_ends_with_its_point_and_not_with_its_line() {
        let long = format!("{}end. Short one.\n", "word ".repeat(SENTENCE_WORDS_MAX));
        assert_eq!(long_sentences(&long), 1);
        assert_eq!(long_sentences(&long.replace("word word", "word.\nword")), 0);
        assert_eq!(long_sentences(&format!("| {long} |")), 0);
    }
}
