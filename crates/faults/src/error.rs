//! What is wrong with a scenario: file, line, key, and what would be right.

use std::fmt;
use std::ops::Range;

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file, as the caller names it.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The key; empty where there is none.
    pub key: String,
    /// What is wrong, and what would be right.
    pub problem: String,
    /// The line's text.
    pub excerpt: String,
}

impl ScenarioError {
    pub(crate) fn new(
        (file, text): (&str, &str),
        span: Option<Range<usize>>,
        key: &str,
        problem: impl Into<String>,
    ) -> ScenarioError {
        let start = span.map_or(0, |span| span.start).min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count();
        ScenarioError {
            file: file.into(),
            line: line + 1,
            key: key.into(),
            problem: problem.into(),
            excerpt: text.lines().nth(line).unwrap_or_default().into(),
        }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        write!(f, "{}", self.problem)?;
        if self.excerpt.is_empty() { Ok(()) } else { write!(f, "\n  {} | {}", self.line, self.excerpt) }
    }
}

impl std::error::Error for ScenarioError {}

/// What to say of a word that is not known.
pub(crate) fn unknown<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone, what: &str) -> String {
    let distance = |candidate: &&str| strsim::damerau_levenshtein(word, candidate);
    let nearest = known.clone().min_by_key(distance).filter(|near| distance(near) <= 1 + word.len() / 3);
    match nearest {
        Some(near) => format!("`{word}` is no {what}; is it `{near}`?"),
        None => format!("`{word}` is no {what}; there are {}", known.collect::<Vec<_>>().join(", ")),
    }
}
