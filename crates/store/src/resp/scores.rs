//! Scores of sorted sets: numbers read as C's `strtod` reads them, and printed as Redis 7 prints them, with `%.17g`.

use super::reply::Reply;

/// What stands at the begin of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number {
    value: f64,
    /// Its bytes, leading blanks included; 0: there is no number.
    length: usize,
    /// It is too large or too small for a double.
    is_out_of_range: bool,
}

/// The number at the begin of `text`, as `strtod` finds it.
fn leading(text: &[u8]) -> Number {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | 0x0B | 0x0C | b'\r');
    let blanks = text.iter().take_while(is_blank).count();
    let signed = &text[blanks..];
    let sign_bytes = usize::from(matches!(signed.first(), Some(b'+' | b'-')));
    let is_negative = signed.first() == Some(&b'-');
    let digits = &signed[sign_bytes..];
    let (value, length, is_out_of_range) = match magnitude(digits) {
        Some(found) => found,
        None => return Number { value: 0.0, length: 0, is_out_of_range: false },
    };
    let value = if is_negative { -value } else { value };
    Number { value, length: blanks + sign_bytes + length, is_out_of_range }
}

/// A number without its sign: its value, its bytes, and whether it is out of range.
fn magnitude(text: &[u8]) -> Option<(f64, usize, bool)> {
    let starts =
        |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
    for (word, value) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if starts(word) {
            return Some((value, word.len(), false));
        }
    }
    if starts("0x")
        && let Some(found) = hexadecimal(&text[2..])
    {
        return Some((found.0, found.1 + 2, found.2));
    }
    let length = extent(text, u8::is_ascii_digit, b'e')?;
    let decimal = std::str::from_utf8(&text[..length]).ok()?;
    let value: f64 = decimal.parse().ok()?;
    let mantissa = decimal.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    Some((value, length, value.is_infinite() || value == 0.0 && !is_zero))
}

/// The bytes of digits with at most one point among them, and an exponent if there is a whole one.
fn extent(text: &[u8], is_digit: fn(&u8) -> bool, mark: u8) -> Option<usize> {
    let (mut at, mut digits, mut has_point) = (0, 0, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'.' if !has_point => has_point = true,
            digit if is_digit(digit) => digits += 1,
            _ => break,
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    if text.get(at).is_some_and(|byte| byte.eq_ignore_ascii_case(&mark)) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let exponent = text[at + 1 + sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if exponent > 0 {
            at += 1 + sign + exponent;
        }
    }
    Some(at)
}

/// What stands behind `0x`, with an exponent of two behind `p`.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize, bool)> {
    let length = extent(text, u8::is_ascii_hexdigit, b'p')?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let (mantissa, exponent) = text.split_once(['p', 'P']).unwrap_or((text, "0"));
    // An exponent that no integer of this size holds is as good as the largest.
    let most = if exponent.starts_with('-') { i64::MIN / 8 } else { i64::MAX / 8 };
    let mut exponent: i64 = exponent.parse().unwrap_or(most).clamp(i64::MIN / 8, i64::MAX / 8);
    let (mut bits, mut is_behind_point, mut sticky) = (0u64, false, false);
    for byte in mantissa.bytes() {
        let Some(digit) = char::from(byte).to_digit(16) else {
            is_behind_point = true;
            continue;
        };
        if bits >> 58 == 0 {
            bits = bits << 4 | u64::from(digit);
            exponent -= if is_behind_point { 4 } else { 0 };
        } else {
            sticky |= digit != 0;
            exponent += if is_behind_point { 0 } else { 4 };
        }
    }
    // What was dropped decides which way a half is rounded.
    let value = scale((bits | u64::from(sticky)) as f64, exponent);
    Some((value, length, value.is_infinite() || value == 0.0 && bits != 0))
}

/// `value` times two to the power of `exponent`.
fn scale(mut value: f64, mut exponent: i64) -> f64 {
    while exponent != 0 && value != 0.0 && value.is_finite() {
        let step = exponent.clamp(-1000, 1000);
        value *= 2f64.powi(step as i32);
        exponent -= step;
    }
    value
}

/// A number, with nothing before it or behind it.
pub(super) fn parse(text: &[u8]) -> Option<f64> {
    let found = leading(text);
    let is_all =
        found.length == text.len() && !text.is_empty() && !text[0].is_ascii_whitespace() && text[0] != 0x0B;
    (is_all && !found.is_out_of_range && !found.value.is_nan()).then_some(found.value)
}

/// The same, or the error that says so.
pub(super) fn parse_or(text: &[u8], why: &str) -> Result<f64, Reply> {
    parse(text).ok_or_else(|| Reply::error(format!("ERR {why}")))
}

/// An end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) score: f64,
    pub(super) is_exclusive: bool,
}

impl Bound {
    /// As Redis reads it: `(` excludes the score itself, blanks may stand before a number, and nothing at all is zero.
    fn parse(text: &[u8]) -> Option<Bound> {
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        let (text, is_exclusive) = match &text[..end] {
            [b'(', rest @ ..] => (rest, true),
            all => (all, false),
        };
        let found = leading(text);
        (found.length == text.len() && !found.value.is_nan())
            .then_some(Bound { score: found.value, is_exclusive })
    }
}

/// A range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoreRange {
    pub(super) least: Bound,
    pub(super) most: Bound,
}

impl ScoreRange {
    pub(super) fn parse(least: &[u8], most: &[u8]) -> Result<ScoreRange, Reply> {
        match (Bound::parse(least), Bound::parse(most)) {
            (Some(least), Some(most)) => Ok(ScoreRange { least, most }),
            _ => Err(Reply::error("ERR min or max is not a float")),
        }
    }

    pub(super) fn is_below(&self, score: f64) -> bool {
        if self.least.is_exclusive { score <= self.least.score } else { score < self.least.score }
    }

    pub(super) fn is_above(&self, score: f64) -> bool {
        if self.most.is_exclusive { score >= self.most.score } else { score > self.most.score }
    }
}

/// The digits that C's `%.17g` prints.
const DIGITS: i32 = 17;

/// A score as text.
pub(super) fn print(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.into();
    }
    if score == score.trunc() && score.abs() < 1e15 {
        // The usual case. Zero keeps its sign.
        return format!("{score:.0}");
    }
    let scientific = format!("{score:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if !(-4..DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or_default();
    trimmed(&format!("{score:.decimals$}"))
}

/// A score as `ZSCAN` prints it: whole numbers have all their digits.
pub(super) fn print_in_scan(score: f64) -> String {
    const MOST: f64 = (i64::MAX / 2) as f64;
    match score == score.trunc() && score.abs() <= MOST {
        true => (score as i64).to_string(),
        false => print(score),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    #[test]
    fn numbers_are_read_as_strtod_reads_them() {
        let check = |text: &str, expected: Option<f64>| {
            let found = parse(text.as_bytes());
            assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits), "{text:?}: {found:?}");
        };
        for (text, value) in [
            ("1", 1.0),
            ("-0", -0.0),
            ("+5", 5.0),
            ("007", 7.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E-3", 0.001),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("+INF", f64::INFINITY),
            ("0x10", 16.0),
            ("0x1.8p1", 3.0),
            ("-0X.8P-1", -0.25),
            ("0x10000000000000001", 18446744073709551616.0),
            ("9223372036854775807", 9223372036854775807.0),
            ("5e-324", 5e-324),
            ("0e999999999999", 0.0),
        ] {
            check(text, Some(value));
        }
        for text in [
            "",
            " 1",
            "1 ",
            "1x",
            "nan",
            "-nan",
            "e5",
            ".",
            "-",
            "0x",
            "1e",
            "1e400",
            "-1e400",
            "1e-400",
            "0x1p99999",
            "inf1",
            "1\0",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn an_end_of_a_range_may_have_blanks_or_be_empty() {
        let check = |text: &[u8], expected: Option<(f64, bool)>| {
            let found = Bound::parse(text).map(|bound| (bound.score, bound.is_exclusive));
            assert_eq!(found, expected, "{text:?}");
        };
        check(b"5", Some((5.0, false)));
        check(b"(5", Some((5.0, true)));
        check(b"( 5", Some((5.0, true)));
        check(b" 5", Some((5.0, false)));
        check(b"", Some((0.0, false)));
        check(b"(", Some((0.0, true)));
        check(b"1e400", Some((f64::INFINITY, false)));
        check(b"-inf", Some((f64::NEG_INFINITY, false)));
        check(b"5 ", None);
        check(b"((5", None);
        check(b"nan", None);
        check(b"x", None);
        check(b"5\0x", Some((5.0, false)));
        let range = ScoreRange::parse(b"(1", b"2").expect("a range");
        assert!(range.is_below(1.0) && !range.is_below(1.5) && !range.is_above(2.0) && range.is_above(2.5));
    }

    #[test]
    fn scores_are_printed_with_seventeen_digits_as_c_prints_them() {
        for (score, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (0.1, "0.10000000000000001"),
            (3.5, "3.5"),
            (3.15, "3.1499999999999999"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e-4, "0.0001"),
            (1e-5, "1.0000000000000001e-05"),
            (1e100, "1e+100"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (9007199254740993.0, "9007199254740992"),
        ] {
            assert_eq!(print(score), text);
        }
    }

    #[test]
    fn a_scan_prints_whole_numbers_with_all_their_digits() {
        for (score, text) in [
            (1e17, "100000000000000000"),
            (-0.0, "0"),
            (0.1, "0.10000000000000001"),
            (1e19, "1e+19"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(print_in_scan(score), text);
        }
    }

    #[test]
    fn what_is_printed_is_read_as_the_same_score() {
        let mut rng = Rng::new(11);
        for _ in 0..20_000 {
            let score = f64::from_bits(rng.next_u64());
            // What is smallest is refused when it is read, as in Redis, only if nothing is left of it.
            if !score.is_nan() {
                assert_eq!(
                    parse(print(score).as_bytes()).map(f64::to_bits),
                    Some(score.to_bits()),
                    "{score:e}"
                );
            }
        }
    }

    #[test]
    fn no_text_panics() {
        let mut rng = Rng::new(12);
        for _ in 0..50_000 {
            let text: Vec<u8> =
                (0..rng.below(12)).map(|_| *rng.pick(b"0123456789.+-eExXpPabfinty( \0\n")).collect();
            let found = leading(&text);
            assert!(found.length <= text.len());
            let _ = (parse(&text), Bound::parse(&text));
        }
    }
}
