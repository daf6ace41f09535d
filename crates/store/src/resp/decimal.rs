//! Numbers with fractions, as Redis adds them: with 64 bits of precision (a `long double` of x86), and printed with at most 17 places.
//!
//! A number is `mantissa * 2^exponent`. Each step is exact in integers of any length, and is then rounded once, to even.

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
        let mut number = Natural::default();
        whole.iter().chain(fraction).for_each(|digit| number.times_plus(10, u32::from(digit - b'0')));
        if number.is_zero() {
            return Some(Number::Finite(Decimal { is_negative, ..Decimal::default() }));
        }
        let power = power.saturating_sub(fraction.len() as i64);
        if power.abs() > POWER_MAX + TEXT_BYTES_MAX as i64 {
            return None;
        }
        let mut divisor = Natural::from(1);
        let scaled = if power < 0 { &mut divisor } else { &mut number };
        (0..power.unsigned_abs()).for_each(|_| scaled.times_plus(10, 0));
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
    let mut number = Natural::default();
    for &digit in whole.iter().chain(fraction) {
        number.times_plus(16, char::from(digit).to_digit(16)?);
    }
    if number.is_zero() {
        return Some(Number::Finite(Decimal { is_negative, ..Decimal::default() }));
    }
    let found = Decimal::of(is_negative, &number, &Natural::from(1), power - 4 * fraction.len() as i64);
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
    fn of(is_negative: bool, number: &Natural, divisor: &Natural, shift: i64) -> Decimal {
        let mut exponent = number.bits() - divisor.bits() - MANTISSA_BITS;
        loop {
            let (mut over, mut under) = (number.clone(), divisor.clone());
            let scaled = if exponent < 0 { &mut over } else { &mut under };
            scaled.shift_left(exponent.unsigned_abs());
            // The quotient has 64 or 65 bits.
            let (quotient, rest) = over.divided(&under);
            if quotient >> MANTISSA_BITS != 0 {
                exponent += 1;
                continue;
            }
            let mut twice = rest;
            twice.shift_left(1);
            let is_up = match twice.cmp(&under) {
                Ordering::Less => false,
                Ordering::Equal => quotient & 1 == 1,
                Ordering::Greater => true,
            };
            let rounded = quotient + u128::from(is_up);
            let (mantissa, exponent) = match u64::try_from(rounded) {
                Ok(mantissa) => (mantissa, exponent),
                Err(_) => (1 << 63, exponent + 1),
            };
            return Decimal { is_negative, mantissa, exponent: exponent + shift };
        }
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
        let whole = |number: Decimal| {
            let mut whole = Natural::from(number.mantissa);
            whole.shift_left((number.exponent - least).unsigned_abs());
            whole
        };
        let (mut one, mut two) = (whole(self), whole(other));
        let is_negative = match one.cmp(&two) {
            _ if self.is_negative == other.is_negative => {
                one.add(&two);
                self.is_negative
            }
            Ordering::Equal => return Decimal::default(),
            Ordering::Greater => {
                one.subtract(&two);
                self.is_negative
            }
            Ordering::Less => {
                two.subtract(&one);
                one = two;
                other.is_negative
            }
        };
        Decimal::of(is_negative, &one, &Natural::from(1), least)
    }

    /// Its text, without zeros that it could do without.
    pub(super) fn text(self) -> String {
        let mut number = Natural::from(self.mantissa);
        (0..PLACES).for_each(|_| number.times_plus(10, 0));
        match self.exponent {
            0.. => number.shift_left(self.exponent.unsigned_abs()),
            _ => number.shift_right_rounded(self.exponent.unsigned_abs()),
        }
        let digits = number.digits();
        let digits = format!("{digits:0>width$}", width = PLACES as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - PLACES as usize);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        let text = format!("{whole}{point}{fraction}");
        if self.is_negative && text != "0" { format!("-{text}") } else { text }
    }
}

/// A whole number of any length, its lowest part first, without zeros at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Natural(Vec<u32>);

impl From<u64> for Natural {
    fn from(number: u64) -> Natural {
        let mut natural = Natural(vec![number as u32, (number >> 32) as u32]);
        natural.trim();
        natural
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Natural) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Natural) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl Natural {
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> i64 {
        self.0.last().map_or(0, |last| self.0.len() as i64 * 32 - i64::from(last.leading_zeros()))
    }

    fn times_plus(&mut self, factor: u32, carry: u32) {
        let mut carry = u64::from(carry);
        for part in &mut self.0 {
            let product = u64::from(*part) * u64::from(factor) + carry;
            (*part, carry) = (product as u32, product >> 32);
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: u64) {
        if self.is_zero() {
            return;
        }
        let (parts, bits) = ((bits / 32) as usize, bits % 32);
        self.times_plus(1 << bits, 0);
        self.0.splice(0..0, std::iter::repeat_n(0, parts));
    }

    /// Rounds to the nearest, to even if there are two.
    fn shift_right_rounded(&mut self, bits: u64) {
        let bit = |number: &Natural, at: u64| {
            number.0.get((at / 32) as usize).is_some_and(|part| part >> (at % 32) & 1 == 1)
        };
        let (half, is_odd) = (bit(self, bits - 1), bit(self, bits));
        let has_more = (0..bits - 1).any(|at| bit(self, at));
        let parts = ((bits / 32) as usize).min(self.0.len());
        self.0.drain(..parts);
        let mut carry = 0;
        for part in self.0.iter_mut().rev() {
            let both = u64::from(carry) << 32 | u64::from(*part);
            carry = *part & ((1u64 << (bits % 32)) - 1) as u32;
            *part = (both >> (bits % 32)) as u32;
        }
        self.trim();
        if half && (has_more || is_odd) {
            self.add(&Natural::from(1));
        }
    }

    fn add(&mut self, other: &Natural) {
        let length = self.0.len().max(other.0.len()) + 1;
        self.0.resize(length, 0);
        let mut carry = 0;
        for (at, part) in self.0.iter_mut().enumerate() {
            let sum = u64::from(*part) + u64::from(other.0.get(at).copied().unwrap_or(0)) + carry;
            (*part, carry) = (sum as u32, sum >> 32);
        }
        self.trim();
    }

    /// Takes a number away that is not greater.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = 0;
        for (at, part) in self.0.iter_mut().enumerate() {
            let taken = i64::from(other.0.get(at).copied().unwrap_or(0)) + borrow;
            let left = i64::from(*part) - taken;
            borrow = i64::from(left < 0);
            *part = left as u32;
        }
        self.trim();
    }

    /// The quotient, which has few bits, and the rest.
    fn divided(mut self, by: &Natural) -> (u128, Natural) {
        let mut quotient = 0;
        for bit in (0..=(self.bits() - by.bits()).max(0) as u64).rev() {
            let mut part = by.clone();
            part.shift_left(bit);
            if self >= part {
                self.subtract(&part);
                quotient |= 1 << bit;
            }
        }
        (quotient, self)
    }

    fn digits(mut self) -> String {
        const BASE: u64 = 1_000_000_000;
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0;
            for part in self.0.iter_mut().rev() {
                let both = rest << 32 | u64::from(*part);
                (*part, rest) = ((both / BASE) as u32, both % BASE);
            }
            self.trim();
            groups.push(rest);
        }
        let Some(first) = groups.pop() else { return "0".into() };
        let rest = groups.iter().rev().map(|group| format!("{group:09}"));
        std::iter::once(first.to_string()).chain(rest).collect()
    }
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
