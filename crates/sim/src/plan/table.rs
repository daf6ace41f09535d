//! TOML tables that remember where each entry stands and which entries were read.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{PlanError, nearest};
use super::params::Raw;

/// The text that is being read, for errors.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn error(self, span: Range<usize>, key: &str, problem: impl Into<String>) -> PlanError {
        PlanError::new(self.file, self.text, Some(span), key, problem)
    }

    pub(super) fn whole(self, problem: impl Into<String>) -> PlanError {
        PlanError::new(self.file, self.text, None, "", problem)
    }
}

/// A table, and where it stands.
#[derive(Clone)]
pub(super) struct Table<'a> {
    pub(super) source: Source<'a>,
    pub(super) inner: &'a DeTable<'a>,
    pub(super) span: Range<usize>,
}

type Found<'a, T> = Result<Option<(T, Range<usize>)>, PlanError>;

impl<'a> Table<'a> {
    /// Its keys with their places, and their values.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Range<usize>, &'a Spanned<DeValue<'a>>)> {
        self.inner.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries().find(|(name, ..)| *name == key).map(|(.., value)| value)
    }

    /// Refuses keys other than `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), PlanError> {
        match self.entries().find(|(name, ..)| !known.contains(name)) {
            None => Ok(()),
            Some((name, span, _)) => {
                Err(self.source.error(span, name, unknown(name, known.iter().copied(), "key")))
            }
        }
    }

    pub(super) fn text(&self, key: &str) -> Found<'a, &'a str> {
        self.get(key, "text in quotation marks", |value| match value {
            DeValue::String(text) => Some(text.as_ref()),
            _ => None,
        })
    }

    /// A text that must be there.
    pub(super) fn required(&self, key: &str) -> Result<(&'a str, Range<usize>), PlanError> {
        self.text(key)?.ok_or_else(|| {
            self.source.error(self.span.clone(), key, format!("is missing: add `{key} = \"…\"` here"))
        })
    }

    pub(super) fn whole(&self, key: &str) -> Found<'a, u32> {
        self.get(key, "a whole number, like 3", |value| match raw(value)? {
            Raw::Whole(whole) => u32::try_from(whole).ok(),
            _ => None,
        })
    }

    pub(super) fn number(&self, key: &str) -> Found<'a, f64> {
        self.get(key, "a number, like 2.5", number)
    }

    /// A text, or several.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<(&'a str, Range<usize>)>, PlanError> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let text = |value: &'a Spanned<DeValue<'a>>| match value.get_ref() {
            DeValue::String(text) => Ok((text.as_ref(), value.span())),
            _ => Err(self.source.error(value.span(), key, "expected text in quotation marks")),
        };
        match value.get_ref() {
            DeValue::Array(items) => items.iter().map(text).collect(),
            _ => Ok(vec![text(value)?]),
        }
    }

    /// Two numbers.
    pub(super) fn pair(&self, key: &str) -> Found<'a, (f64, f64)> {
        self.get(key, "two numbers, the smaller first, like [1.5, 3]", |value| {
            let DeValue::Array(items) = value else { return None };
            match items.iter().map(|item| number(item.get_ref())).collect::<Option<Vec<_>>>()?.as_slice() {
                &[low, high] if low <= high => Some((low, high)),
                _ => None,
            }
        })
    }

    /// The values of an array.
    pub(super) fn array(&self, key: &str) -> Found<'a, Vec<&'a Spanned<DeValue<'a>>>> {
        self.get(key, "several values in brackets", |value| match value {
            DeValue::Array(items) => Some(items.iter().collect()),
            _ => None,
        })
    }

    /// The table of that name.
    pub(super) fn table(&self, key: &str) -> Result<Option<Table<'a>>, PlanError> {
        self.value(key).map(|value| self.as_table(key, value)).transpose()
    }

    /// The tables written as `[[key]]`.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<Table<'a>>, PlanError> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| self.as_table(key, item)).collect(),
            _ => Err(self.source.error(value.span(), key, format!("expected tables, written `[[{key}]]`"))),
        }
    }

    pub(super) fn as_table(
        &self,
        key: &str,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Result<Table<'a>, PlanError> {
        match value.get_ref() {
            DeValue::Table(inner) => Ok(Table { source: self.source, inner, span: value.span() }),
            _ => Err(self.source.error(value.span(), key, format!("expected a table, written `[{key}]`"))),
        }
    }

    fn get<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Found<'a, T> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match read(value.get_ref()) {
            Some(found) => Ok(Some((found, value.span()))),
            None => Err(self.source.error(value.span(), key, format!("expected {expected}"))),
        }
    }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match raw(value)? {
        Raw::Whole(whole) => Some(whole as f64),
        Raw::Number(number) if !number.is_nan() => Some(number),
        _ => None,
    }
}

/// A simple value as a plan's parameters know it.
pub(super) fn raw(value: &DeValue<'_>) -> Option<Raw> {
    match value {
        DeValue::Boolean(flag) => Some(Raw::Flag(*flag)),
        DeValue::String(text) => Some(Raw::Text(text.to_string())),
        DeValue::Integer(whole) => i64::from_str_radix(whole.as_str(), whole.radix()).ok().map(Raw::Whole),
        DeValue::Float(number) => number.as_str().parse().ok().map(Raw::Number),
        _ => None,
    }
}

/// What to say about a word that is not known.
pub(super) fn unknown<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone, what: &str) -> String {
    match nearest(word, known.clone()) {
        Some(near) => format!("there is no such {what}; is it `{near}`?"),
        None => {
            let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
            format!("there is no such {what}; there are {}", known.join(", "))
        }
    }
}
