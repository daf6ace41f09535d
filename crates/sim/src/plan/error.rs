//! What is wrong with a plan: file, line, key, and what would be right.

use std::fmt;
use std::ops::Range;

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The plan's file, or its name.
    pub file: String,
    /// The line, counted from 1; 0 if it is the plan as a whole.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
    /// The key, as in `network.buffer`; empty where there is none.
    pub key: String,
    /// What is wrong, and what would be right.
    pub problem: String,
    /// The line's text, and the number of characters that the error is about.
    excerpt: Option<(String, usize)>,
}

impl PlanError {
    pub(super) fn new(
        file: &str,
        text: &str,
        span: Option<Range<usize>>,
        key: &str,
        problem: impl Into<String>,
    ) -> PlanError {
        let mut error = PlanError {
            file: file.into(),
            line: 0,
            column: 0,
            key: key.into(),
            problem: problem.into(),
            excerpt: None,
        };
        if let Some(span) = span.filter(|span| text.is_char_boundary(span.start.min(text.len()))) {
            let before = &text[..span.start.min(text.len())];
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            let line_text = text[line_start..].lines().next().unwrap_or_default();
            error.line = before.matches('\n').count() + 1;
            error.column = before[line_start..].chars().count() + 1;
            let rest = line_text.chars().count().saturating_sub(error.column - 1).max(1);
            error.excerpt = Some((line_text.into(), span.len().clamp(1, rest)));
        }
        error
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": `{}`", self.key)?;
        }
        write!(f, ": {}", self.problem)?;
        if let Some((line, width)) = &self.excerpt {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            let lead = " ".repeat(self.column - 1);
            write!(f, "\n {margin} |\n {number} | {line}\n {margin} | {lead}{}", "^".repeat(*width))?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanError {}

/// The word of `words` that is most like `wrong`, if one is.
pub(super) fn nearest<'a>(wrong: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let closest =
        words.into_iter().map(|word| (strsim::levenshtein(wrong, word), word)).min_by_key(|(d, _)| *d)?;
    (closest.0 <= 1 + wrong.chars().count().max(closest.1.chars().count()) / 3).then_some(closest.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_place() {
        let text = "figure = \"1\"\n[network]\n  bufer = 3\n";
        let error = PlanError::new("a.toml", text, Some(25..30), "network.bufer", "no such key");
        assert_eq!(
            error.to_string(),
            "a.toml:3:3: `network.bufer`: no such key\n   |\n 3 |   bufer = 3\n   |   ^^^^^"
        );
    }

    #[test]
    fn near_words_are_near() {
        assert_eq!(nearest("bufer", ["rate", "buffer"]), Some("buffer"));
        assert_eq!(nearest("irm", ["roce", "irn"]), Some("irn"));
        assert_eq!(nearest("elephant", ["roce", "irn"]), None);
    }
}
