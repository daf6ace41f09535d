//! A parameter's value, and how people write it.

use std::fmt;

use highwire_fabric::{Rate, Span, parse_rate, parse_span};
use highwire_rnic::CongestionChoice;
use highwire_transport::irn::RecoveryChoice;

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Count(u64),
    /// Any number.
    Number(f64),
    /// `240KB`.
    Bytes(u64),
    /// `2us`.
    Span(Span),
    /// `40Gbps`.
    Rate(Rate),
    /// One of a few words, or a file's name.
    Word(String),
}

/// The form of a parameter's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Only the words that the parameter knows.
    Words,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count,
    /// Any number.
    Number,
    /// `240KB`; K is 1000, Ki is 1024.
    Bytes,
    /// `2us`.
    Span,
    /// `40Gbps`.
    Rate,
    /// A file beside the plan.
    File,
    /// A congestion control.
    Congestion,
    /// A rule of loss recovery.
    Recovery,
}

impl Unit {
    /// How it is written, by an example.
    pub fn example(self) -> &'static str {
        match self {
            Unit::Words => "",
            Unit::Flag => "true or false",
            Unit::Count => "a whole number, like 3",
            Unit::Number => "a number, like 0.7",
            Unit::Bytes => "bytes, like \"240KB\" (K is 1000, Ki is 1024)",
            Unit::Span => "a time, like \"2us\" or \"1.5ms\"",
            Unit::Rate => "a rate, like \"40Gbps\"",
            Unit::File => "the name of a file beside the plan",
            Unit::Congestion | Unit::Recovery => "",
        }
    }

    /// Reads what stands between quotation marks.
    pub(super) fn read(self, text: &str) -> Option<Value> {
        match self {
            Unit::Bytes => parse_bytes(text).map(Value::Bytes),
            Unit::Span => parse_span(text).map(Value::Span),
            Unit::Rate => parse_rate(text).map(Value::Rate),
            Unit::File => Some(Value::Word(text.into())),
            Unit::Congestion => CongestionChoice::named(text).map(|choice| Value::Word(choice.name().into())),
            Unit::Recovery => RecoveryChoice::named(text).map(|choice| Value::Word(choice.name().into())),
            Unit::Words | Unit::Flag | Unit::Count | Unit::Number => None,
        }
    }
}

/// Reads `240KB`, `150MB`, `64KiB`, `1000B`.
fn parse_bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let (number, unit) = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    let number = number.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) || number.ends_with('.') {
        return None;
    }
    let scale = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let part = digits.checked_mul(unit)?;
    if !part.is_multiple_of(scale) {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part / scale)
}

impl fmt::Display for Value {
    /// As a plan would write it, without quotation marks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Count(count) => write!(f, "{count}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Bytes(bytes) => f.write_str(&scaled(*bytes, 1000, &["B", "KB", "MB", "GB"])),
            Value::Span(Span::ZERO) => f.write_str("0us"),
            Value::Span(span) => f.write_str(&scaled(span.as_ps(), 1000, &["ps", "ns", "us", "ms", "s"])),
            Value::Rate(rate) => f.write_str(&scaled(rate.as_bps(), 1000, &["bps", "Kbps", "Mbps", "Gbps"])),
            Value::Word(word) => f.write_str(word),
        }
    }
}

/// In the largest unit that needs at most three decimals.
fn scaled(value: u64, step: u64, units: &[&str]) -> String {
    let (mut unit, mut scale) = (0, 1u64);
    while unit + 1 < units.len() && value >= scale * step && value.is_multiple_of(scale) {
        unit += 1;
        scale *= step;
    }
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return format!("{whole}{}", units[unit]);
    }
    let digits = format!("{:0width$}", rest, width = (scale.ilog10()) as usize);
    format!("{whole}.{}{}", digits.trim_end_matches('0'), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_and_show() {
        let check = |text: &str, bytes: Option<u64>| assert_eq!(parse_bytes(text), bytes, "{text}");
        check("240KB", Some(240_000));
        check("1.5KB", Some(1_500));
        check("64KiB", Some(65_536));
        check("7B", Some(7));
        check("1.0005KB", None);
        check("KB", None);
        check("240", None);
        check("99999999999GB", None);
    }

    #[test]
    fn values_show_as_they_are_written() {
        let check = |unit: Unit, text: &str| {
            assert_eq!(unit.read(text).expect(text).to_string(), text);
        };
        check(Unit::Bytes, "240KB");
        check(Unit::Bytes, "1.5KB");
        check(Unit::Bytes, "150MB");
        check(Unit::Span, "2us");
        check(Unit::Span, "100.5us");
        check(Unit::Span, "10ms");
        check(Unit::Rate, "40Gbps");
        assert_eq!(Value::Bytes(0).to_string(), "0B");
        assert_eq!(Value::Bytes(1_024).to_string(), "1.024KB");
    }
}
