//! Numbers with fractions, as Redis adds them: with 64 bits of precision (a `long double` of x86), and printed with at most 17 places.
//!
//! A number is `mantissa * 2^exponent`. Each step is exact in integers of any length, and is then rounded once, to even.

use num_bigint::BigUint;
use std::cmp::Ordering;

/// The longest text of a number.
const TEXT_BYTES_MAX: usize = 255;
/// Powers of ten beyond are no numbers of this precision.
const POWER_MAX: i64 = 4950;
const MANTISSA_BITS: i64 = 64;
const EXPONENT_MAX: i64 = 16383;
const PLACES: u32 = 17;

/// What a text stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Finite(Decimal),
    Infinite,
}

/// A finite number. The mantissa has its highest bit set, or is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    mantissa: u64,
    exponent: i64,
}

impl Number {
    /// The number of a text; `None`: it is none.
    pub(super) fn parse(text: &[u8]) -> Option<Number> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Number::Infinite);
        }
        if let [b'0', b'x' | b'X', digits @ ..] = text {
            return hexadecimal(is_negative, digits);
        }
        let (digits, power) = match text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e')) {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let point = digits.iter().position(|&byte| byte == b'.');
        let (whole, fraction) = point.map_or((digits, &b""[..]), |at| (&digits[..at], &digits[at + 1..]));
        let is_number = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
        if whole.len() + fraction.len() == 0 || !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let number = BigUint::parse_bytes(&[whole, fraction].concat(), 10)?;
        if number == BigUint::ZERO {
            return Some(Number::Finite(Decimal { is_negative, ..Decimal::default() }));
        }
        let power = power.saturating_sub(fraction.len() as i64);
        if power.abs() > POWER_MAX + TEXT_BYTES_MAX as i64 {
            return None;
        }
        let scale = BigUint::from(10u8).pow(power.unsigned_abs() as u32);
        let (number, divisor) = if power < 0 { (number, scale) } else { (number * scale, 1u8.into()) };
        let found = Decimal::of(is_negative, &number, &divisor, 0);
        found.is_normal().then_some(Number::Finite(found))
    }

    /// The sum; `None`: it is not finite.
    pub(super) fn plus(self, other: Number) -> Option<Decimal> {
        let (Number::Finite(one), Number::Finite(other)) = (self, other) else { return None };
        let sum = one.plus(other);
        (sum.mantissa == 0 || sum.exponent < EXPONENT_MAX + 1 - (MANTISSA_BITS - 1)).then_some(sum)
    }
}

/// A number in base 16, perhaps with a point, and with a power of two behind a `p`.
fn hexadecimal(is_negative: bool, text: &[u8]) -> Option<Number> {
    let (digits, power) = match text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'p')) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let point = digits.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = point.map_or((digits, &b""[..]), |at| (&digits[..at], &digits[at + 1..]));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let digits = [whole, fraction].concat();
    // The library takes `_` between digits.
    let number = BigUint::parse_bytes(&digits, 16).filter(|_| digits.iter().all(u8::is_ascii_hexdigit))?;
    if number == BigUint::ZERO {
        return Some(Number::Finite(Decimal { is_negative, ..Decimal::default() }));
    }
    let found = Decimal::of(is_negative, &number, &1u8.into(), power - 4 * fraction.len() as i64);
    found.is_normal().then_some(Number::Finite(found))
}

/// The digits behind the `e`. What has many of them is as far away as the farthest.
fn exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let power = digits.iter().fold(0i64, |power, digit| (power * 10 + i64::from(digit - b'0')).min(1 << 32));
    Some(if is_negative { -power } else { power })
}

impl Decimal {
    /// `number / divisor * 2^shift`, rounded. Neither is 0.
    fn of(is_negative: bool, number: &BigUint, divisor: &BigUint, shift: i64) -> Decimal {
        // The quotient has 64 or 65 bits.
        let exponent = number.bits() as i64 - divisor.bits() as i64 - MANTISSA_BITS;
        let quotient_and_rest = |exponent: i64| {
            let scale = exponent.unsigned_abs();
            let (over, under) = if exponent < 0 {
                (number << scale, divisor.clone())
            } else {
                (number.clone(), divisor << scale)
            };
            (&over / &under, (&over % &under) << 1u8, under)
        };
        let first = quotient_and_rest(exponent);
        let (exponent, (quotient, twice_the_rest, under)) = match first.0.bits() as i64 > MANTISSA_BITS {
            true => (exponent + 1, quotient_and_rest(exponent + 1)),
            false => (exponent, first),
        };
        let is_up = match twice_the_rest.cmp(&under) {
            Ordering::Less => false,
            Ordering::Equal => quotient.bit(0),
            Ordering::Greater => true,
        };
        let rounded = quotient + u8::from(is_up);
        let (mantissa, exponent) = match u64::try_from(rounded) {
            Ok(mantissa) => (mantissa, exponent),
            Err(_) => (1 << 63, exponent + 1),
        };
        Decimal { is_negative, mantissa, exponent: exponent + shift }
    }

    /// Whether it is neither too large nor too small for its precision.
    fn is_normal(self) -> bool {
        (-EXPONENT_MAX..=EXPONENT_MAX).contains(&(self.exponent + MANTISSA_BITS - 1))
    }

    fn plus(self, other: Decimal) -> Decimal {
        if self.mantissa == 0 || other.mantissa == 0 {
            return if self.mantissa == 0 { other } else { self };
        }
        let least = self.exponent.min(other.exponent);
        let whole =
            |number: Decimal| BigUint::from(number.mantissa) << (number.exponent - least).unsigned_abs();
        let (one, two) = (whole(self), whole(other));
        let (is_negative, sum) = match one.cmp(&two) {
            _ if self.is_negative == other.is_negative => (self.is_negative, one + two),
            Ordering::Equal => return Decimal::default(),
            Ordering::Greater => (self.is_negative, one - two),
            Ordering::Less => (other.is_negative, two - one),
        };
        Decimal::of(is_negative, &sum, &1u8.into(), least)
    }

    /// Its text, without zeros that it could do without.
    pub(super) fn text(self) -> String {
        let number = BigUint::from(self.mantissa) * BigUint::from(10u8).pow(PLACES);
        let number = match self.exponent {
            0.. => number << self.exponent.unsigned_abs(),
            _ => rounded(number, self.exponent.unsigned_abs()),
        };
        let digits = format!("{number:0>width$}", width = PLACES as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - PLACES as usize);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        let text = format!("{whole}{point}{fraction}");
        if self.is_negative && text != "0" { format!("-{text}") } else { text }
    }
}

/// `number / 2^bits`, rounded to the nearest, to even if there are two.
fn rounded(number: BigUint, bits: u64) -> BigUint {
    let (half, is_odd) = (number.bit(bits - 1), number.bit(bits));
    let has_more = number.trailing_zeros().is_some_and(|zeros| zeros < bits - 1);
    (number >> bits) + u8::from(half && (has_more || is_odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_64_bits_of_precision() {
        let check = |one: &str, other: &str, expected: &str| {
            let number = |text: &str| Number::parse(text.as_bytes()).expect("a number");
            let sum = number(one).plus(number(other)).expect("finite").text();
            assert_eq!(sum, expected, "{one} + {other}");
        };
        check("3.0", "1.1", "4.1");
        check("10.5", "0.1", "10.6");
        check("5.0e3", "2.0e2", "5200");
        check("0", "-0", "0");
        check("1", "-1", "0");
        check("1", "-1.5", "-0.5");
        check("-1", "1.5", "0.5");
        check(".5", "5.", "5.5");
        check("17179869184", "1.5", "17179869185.5");
        check("9007199254740993", "0", "9007199254740993");
        check("1e-17", "0", "0.00000000000000001");
        check("1e-19", "0", "0");
        check("1e27", "1", "1000000000000000000000000000");
        // 2^64 + 1 needs 65 bits, and lies between two numbers.
        check("18446744073709551616", "1", "18446744073709551616");
        check("18446744073709551616", "3", "18446744073709551620");
        check("0.1", "0.2", "0.3");
        check("0x1F.8", "-0X1p-1", "31");
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "",
            " 1",
            "1 ",
            "1.2.3",
            "e5",
            "1e",
            "1e+",
            "--1",
            "x",
            ".",
            "nan",
            "1\0",
            "1e5000",
            "1e99999999999999",
            "1e-6000",
        ] {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Number::parse(&[b'1'; 256]), None);
        assert_eq!(Number::parse(b"-Infinity"), Some(Number::Infinite));
        let most = Number::parse(b"1.18e4932").expect("a number");
        assert_eq!(most.plus(most), None);
        assert_eq!(most.plus(Number::Infinite), None);
    }
}
