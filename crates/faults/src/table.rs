//! Tables of a file that remember where each entry stands and which keys are known.

use crate::error::{ScenarioError, unknown};
use crate::units;
use highwire_stdx::Duration;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table, and where it stands.
#[derive(Clone)]
pub(crate) struct Table<'a> {
    pub(crate) source: (&'a str, &'a str),
    pub(crate) inner: &'a DeTable<'a>,
    pub(crate) span: Range<usize>,
}

type Found<T> = Result<Option<T>, ScenarioError>;

impl<'a> Table<'a> {
    /// An error about a key, at its value if it is there.
    pub(crate) fn error(&self, key: &str, problem: impl Into<String>) -> ScenarioError {
        let span = self.value(key).map_or(self.span.clone(), Spanned::span);
        ScenarioError::new(self.source, Some(span), key, problem)
    }

    /// Refuses keys other than `known`.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), ScenarioError> {
        let strange = self.inner.iter().find(|(key, _)| !known.contains(&key.get_ref().as_ref()));
        strange.map_or(Ok(()), |(key, _)| {
            let problem = unknown(key.get_ref(), known.iter().copied(), "key here");
            Err(ScenarioError::new(self.source, Some(key.span()), key.get_ref(), problem))
        })
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.inner.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    pub(crate) fn text(&self, key: &str) -> Found<&'a str> {
        match self.value(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text.as_ref())),
            Some(_) => Err(self.error(key, "it is text in quotation marks")),
        }
    }

    /// A text that must be there.
    pub(crate) fn required(&self, key: &str) -> Result<&'a str, ScenarioError> {
        self.text(key)?.ok_or_else(|| self.error(key, format!("is missing: add `{key} = \"…\"`")))
    }

    /// A whole number between two.
    pub(crate) fn whole(&self, key: &str, range: std::ops::RangeInclusive<u64>) -> Found<u64> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = match value.get_ref() {
            DeValue::Integer(whole) => u64::from_str_radix(whole.as_str(), whole.radix()).ok(),
            _ => None,
        };
        let fits = number.filter(|number| range.contains(number));
        let (low, high) = range.into_inner();
        let problem = || match high {
            u64::MAX => format!("it is a whole number, at least {low}"),
            _ => format!("it is a whole number from {low} to {high}"),
        };
        fits.map(Some).ok_or_else(|| self.error(key, problem()))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, ScenarioError> {
        match self.value(key).map(Spanned::get_ref) {
            None => Ok(false),
            Some(DeValue::Boolean(flag)) => Ok(*flag),
            Some(_) => Err(self.error(key, "it is true or false")),
        }
    }

    /// One of several words, by its meaning.
    pub(crate) fn word<T: Copy>(
        &self,
        key: &str,
        words: &[(&'static str, T)],
        what: &str,
    ) -> Found<(&'static str, T)> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text).copied();
        found
            .map(Some)
            .ok_or_else(|| self.error(key, unknown(text, words.iter().map(|(word, _)| *word), what)))
    }

    /// One or several of some words, by their meaning.
    pub(crate) fn words<T: Copy>(&self, key: &str, words: &[(&'static str, T)], what: &str) -> Found<Vec<T>> {
        match self.value(key).map(Spanned::get_ref) {
            Some(DeValue::Array(_)) => {}
            _ => return Ok(self.word(key, words, what)?.map(|(_, meaning)| vec![meaning])),
        }
        let meaning = |text: &&str| {
            let found = words.iter().find(|(word, _)| word == text).map(|(_, meaning)| *meaning);
            found.ok_or_else(|| self.error(key, unknown(text, words.iter().map(|(word, _)| *word), what)))
        };
        self.texts(key)?.iter().map(meaning).collect::<Result<_, _>>().map(Some)
    }

    fn unit<T>(&self, key: &str, read: impl Fn(&str) -> Option<T>, form: &str) -> Found<T> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        read(text).map(Some).ok_or_else(|| self.error(key, format!("`{text}` is no {form}")))
    }

    pub(crate) fn duration(&self, key: &str) -> Found<Duration> {
        self.unit(
            key,
            units::duration,
            "time: write a number with ns, us, ms, s or min, up to a day, like \"5ms\"",
        )
    }

    pub(crate) fn share(&self, key: &str) -> Found<f64> {
        self.unit(key, units::share, "share: write \"1%\", or a fraction from 0 to 1 like \"0.01\"")
    }

    pub(crate) fn bytes(&self, key: &str) -> Found<u64> {
        self.unit(key, units::bytes, "number of bytes: write it with B, KiB, MiB or GiB, like \"64MiB\"")
    }

    pub(crate) fn bandwidth(&self, key: &str) -> Found<u64> {
        self.unit(key, units::bandwidth, "bandwidth: write it with kbps, Mbps or Gbps, like \"10Gbps\"")
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Vec<&'a str>, ScenarioError> {
        let wrong = || self.error(key, "it is a list of texts, like [\"one\", \"two\"]");
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = value.get_ref() else { return Err(wrong()) };
        let text = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::String(text) => Ok(text.as_ref()),
            _ => Err(wrong()),
        };
        items.iter().map(text).collect()
    }

    /// The tables written as `[[key]]`.
    pub(crate) fn tables(&self, key: &str) -> Result<Vec<Table<'a>>, ScenarioError> {
        let wrong = || self.error(key, format!("these are tables, each written `[[{key}]]`"));
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = value.get_ref() else { return Err(wrong()) };
        let table = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(inner) => Ok(Table { source: self.source, inner, span: item.span() }),
            _ => Err(wrong()),
        };
        items.iter().map(table).collect()
    }
}
