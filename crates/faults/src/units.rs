//! Values with units: `5ms`, `1%`, `64MiB`, `10Gbps`. A number without a unit is refused where several would do.

use highwire_stdx::Duration;

/// The longest time: a day.
const NANOS_MAX: f64 = 86_400e9;

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

/// A span of time.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return None,
    } * number;
    (nanos <= NANOS_MAX).then(|| Duration::from_nanos(nanos.round() as u64))
}

/// A share from 0 to 1, as a percentage or a fraction.
pub(crate) fn share(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return None,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// A number of bytes.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    let bytes = number * scale;
    (bytes <= 1e15).then_some(bytes as u64)
}

/// Bits per second; at least one kilobit.
pub(crate) fn bandwidth(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "kbps" => 1e3,
        "Mbps" => 1e6,
        "Gbps" => 1e9,
        _ => return None,
    };
    let bits = number * scale;
    (1e3..=1e13).contains(&bits).then_some(bits as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_never_guessed() {
        assert_eq!(duration("1.5ms"), Some(Duration::from_micros(1500)));
        assert_eq!(
            (duration("5"), duration("5 parsecs"), duration("-1s"), duration("2000000s")),
            (None, None, None, None)
        );
        assert_eq!(
            (share("1%"), share("0.5"), share("101%"), share("1ms")),
            (Some(0.01), Some(0.5), None, None)
        );
        assert_eq!(
            (bytes("2KiB"), bytes("7B"), bytes("7"), bytes("7GB")),
            (Some(2048), Some(7), None, Some(7_000_000_000))
        );
        assert_eq!(
            (bandwidth("10Gbps"), bandwidth("10"), bandwidth("0Gbps")),
            (Some(10_000_000_000), None, None)
        );
    }
}
