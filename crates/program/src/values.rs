//! Values as people write them, `64K`, `10s`, and as they read them. Rates and faults are
//! [`highwire_link`]'s.

use std::time::Duration;

use highwire_link::parse_duration;

/// Bytes, written `32`, `64K`, `1M` or `1G`; K is 1024.
pub fn size_bytes(text: &str) -> Result<u32, String> {
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

/// A span of time, written `500ms` or `10s`; a bare number is seconds, as in perftest.
pub fn seconds_or_span(text: &str) -> Result<Duration, String> {
    let is_bare = text.chars().all(|c| c.is_ascii_digit());
    let span = if is_bare { parse_duration(&format!("{text}s")) } else { parse_duration(text) };
    span.map(Duration::from).map_err(|error| error.to_string())
}

fn split_unit(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    if end == 0 {
        return Err("must begin with a number".into());
    }
    Ok((&text[..end], text[end..].trim_start()))
}

/// Nanoseconds as a person reads them: `417 ns`, `5.32 us`, `1.20 ms`.
pub fn show_ns(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1_000.0 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.2} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// A count as a person reads it: `950`, `2.41 k`, `5.10 M`.
pub fn show_count(count: f64) -> String {
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
    fn spans() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(seconds_or_span(text).ok(), millis.map(Duration::from_millis), "{text}");
        };
        check("10", Some(10_000));
        check("2s", Some(2_000));
        check("500ms", Some(500));
        check("10 years", None);
        check("", None);
    }

    #[test]
    fn readable_numbers() {
        assert_eq!(show_ns(417.4), "417 ns");
        assert_eq!(show_ns(5_320.0), "5.32 us");
        assert_eq!(show_count(2_410_000.0), "2.41 M");
    }
}
