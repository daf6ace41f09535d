//! Values as people write them: `1%`, `64K`, `10us`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A probability between 0 and 1, written `1%` or `0.01`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Probability(f64);

impl Probability {
    pub(crate) fn as_f64(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (text, 1.0),
        };
        let value = number.parse::<f64>().map_err(|_| "write it as 1% or 0.01".to_string())? / scale;
        if !(0.0..=1.0).contains(&value) {
            return Err("must lie between 0% and 100%".into());
        }
        Ok(Self(value))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0 * 100.0)
    }
}

/// Bytes, written `32`, `64K`, `1M` or `1G`; K is 1024.
pub(crate) fn size_bytes(text: &str) -> Result<u32, String> {
    let (number, scale) = split_unit(text)?;
    let scale: u64 = match scale.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" | "kb" => 1 << 10,
        "m" | "mib" | "mb" => 1 << 20,
        "g" | "gib" | "gb" => 1 << 30,
        _ => return Err("write it as 32, 64K or 1M".into()),
    };
    let number: u64 = number.parse().map_err(|_| "write it as 32, 64K or 1M".to_string())?;
    match number.checked_mul(scale) {
        Some(bytes) if bytes <= 1 << 31 => Ok(bytes as u32),
        _ => Err("a message has at most 2 GiB".into()),
    }
}

/// A span of time, written `500ns`, `10us`, `5ms` or `2s`; seconds without a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        _ => return Err("write it as 500ns, 10us, 5ms or 2s".into()),
    };
    let number: f64 = number.parse().map_err(|_| "write it as 500ns, 10us, 5ms or 2s".to_string())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "not a span of time".into())
}

fn split_unit(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    if end == 0 {
        return Err("must begin with a number".into());
    }
    Ok((&text[..end], text[end..].trim_start()))
}

/// Nanoseconds as a person reads them: `417 ns`, `5.32 us`, `1.20 ms`.
pub(crate) fn show_ns(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1_000.0 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.2} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// A count as a person reads it: `950`, `2.41 k`, `5.10 M`.
pub(crate) fn show_count(count: f64) -> String {
    match count {
        n if n < 1e3 => format!("{n:.0}"),
        n if n < 1e6 => format!("{:.2} k", n / 1e3),
        n => format!("{:.2} M", n / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities() {
        let check = |text: &str, expected: Option<f64>| {
            assert_eq!(text.parse::<Probability>().ok().map(Probability::as_f64), expected, "{text}");
        };
        check("1%", Some(0.01));
        check("0.1 %", Some(0.001));
        check("0.5", Some(0.5));
        check("101%", None);
        check("-1%", None);
        check("nan", None);
        check("often", None);
    }

    #[test]
    fn sizes() {
        let check = |text: &str, expected: Option<u32>| assert_eq!(size_bytes(text).ok(), expected, "{text}");
        check("0", Some(0));
        check("32", Some(32));
        check("64K", Some(65_536));
        check("64 KiB", Some(65_536));
        check("2G", Some(1 << 31));
        check("3G", None);
        check("K", None);
        check("1.5K", None);
        check("99999999999999999999", None);
    }

    #[test]
    fn durations() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(duration(text).ok().map(|d| d.as_nanos() as u64), expected, "{text}");
        };
        check("10us", Some(10_000));
        check("1.5 ms", Some(1_500_000));
        check("2", Some(2_000_000_000));
        check("10 years", None);
        check("-1s", None);
    }

    #[test]
    fn readable_numbers() {
        assert_eq!(show_ns(417.4), "417 ns");
        assert_eq!(show_ns(5_320.0), "5.32 us");
        assert_eq!(show_count(2_410_000.0), "2.41 M");
    }
}
