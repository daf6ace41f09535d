//! The parameters of one run: a value for each row of the schema.

use std::ops::Range;

use highwire_fabric::{Rate, Span};
use highwire_rnic::CongestionChoice;

use super::Setting;
use super::error::nearest;
use super::schema::{PARAMETERS, Parameter, index_of};
use super::value::{Unit, Value};

/// A value for every parameter, in the order of [`PARAMETERS`], and where the plan sets it.
#[derive(Clone, PartialEq, Debug)]
pub struct Params {
    values: Vec<Value>,
    /// Where in the plan's text; `None` for a default.
    places: Vec<Option<Range<usize>>>,
}

/// A value as a file has it, before it is known for which parameter.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Raw {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl Default for Params {
    fn default() -> Params {
        let read = |parameter: &Parameter| {
            let text = parameter.default;
            let raw = match parameter.unit {
                Unit::Flag => Raw::Flag(text == "true"),
                Unit::Count | Unit::Number => {
                    text.parse().map_or_else(|_| Raw::Text(text.into()), Raw::Number)
                }
                _ => Raw::Text(text.into()),
            };
            check(parameter, &raw).expect("defaults are values")
        };
        Params { values: PARAMETERS.iter().map(read).collect(), places: vec![None; PARAMETERS.len()] }
    }
}

impl Params {
    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    pub(super) fn set(&mut self, setting: &Setting) {
        self.values[setting.parameter] = setting.value.clone();
        self.places[setting.parameter] = Some(setting.place.clone());
    }

    /// Where the plan sets a parameter; `None` if it does not.
    pub(super) fn place(&self, name: &str) -> Option<Range<usize>> {
        self.places[index_of(name)?].clone()
    }

    /// Every place at which a parameter is set, by the parameter.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, &Range<usize>)> {
        self.places.iter().enumerate().filter_map(|(parameter, place)| Some((parameter, place.as_ref()?)))
    }

    /// The value of a parameter.
    ///
    /// # Panics
    /// If there is no parameter of that name.
    pub fn value(&self, name: &str) -> &Value {
        &self.values[index_of(name).unwrap_or_else(|| panic!("no parameter {name}"))]
    }

    /// Its word; a value that is no word has none.
    pub(super) fn word(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Value::Flag(true))
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Value::Count(count) => Some(*count),
            _ => None,
        }
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn bytes(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Value::Bytes(bytes) => Some(*bytes),
            _ => None,
        }
    }

    pub(super) fn span(&self, name: &str) -> Option<Span> {
        match self.value(name) {
            Value::Span(span) => Some(*span),
            _ => None,
        }
    }

    /// The congestion control.
    pub(super) fn congestion(&self) -> CongestionChoice {
        let name = self.word("transport.congestion").unwrap_or_default();
        CongestionChoice::named(name).unwrap_or_default()
    }

    pub(super) fn rate(&self, name: &str) -> Option<Rate> {
        match self.value(name) {
            Value::Rate(rate) => Some(*rate),
            _ => None,
        }
    }
}

/// The value of a parameter, or what would be right.
pub(super) fn check(parameter: &Parameter, raw: &Raw) -> Result<Value, String> {
    let value = match (parameter.unit, raw) {
        (_, Raw::Text(text)) if parameter.words.contains(&text.as_str()) => Some(Value::Word(text.clone())),
        (Unit::Flag, Raw::Flag(flag)) => Some(Value::Flag(*flag)),
        (Unit::Count, Raw::Whole(whole)) => u64::try_from(*whole).ok().map(Value::Count),
        (Unit::Count, Raw::Number(number)) if *number >= 0.0 && number.fract() == 0.0 => {
            Some(Value::Count(*number as u64))
        }
        (Unit::Number, Raw::Number(number)) if number.is_finite() && *number >= 0.0 => {
            Some(Value::Number(*number))
        }
        (Unit::Number, Raw::Whole(whole)) => u32::try_from(*whole).ok().map(|n| Value::Number(f64::from(n))),
        (unit, Raw::Text(text)) => unit.read(text),
        _ => None,
    };
    value.ok_or_else(|| expected(parameter, raw))
}

fn expected(parameter: &Parameter, raw: &Raw) -> String {
    let found = match raw {
        Raw::Flag(flag) => flag.to_string(),
        Raw::Whole(whole) => whole.to_string(),
        Raw::Number(number) => number.to_string(),
        Raw::Text(text) => format!("\"{text}\""),
    };
    let known = parameter.known_words();
    let words: Vec<String> = known.iter().map(|word| format!("\"{word}\"")).collect();
    let choices = match (parameter.unit.example(), words.join(", ")) {
        ("", words) => format!("one of {words}"),
        (example, words) if words.is_empty() => example.to_string(),
        (example, words) => format!("{example}; or {words}"),
    };
    let near = match raw {
        Raw::Text(text) => nearest(text, known.iter().copied()),
        _ => None,
    };
    match near {
        Some(near) => format!("{found} is no value of it; is it \"{near}\"? ({choices})"),
        None => format!("{found} is no value of it; expected {choices}"),
    }
}
