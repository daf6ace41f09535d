//! Counts in sentences.

/// A count with separators, as in `4,096`.
pub fn show_number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A count and what is counted, of which the singular is given: `1 process`, `4,096 entries`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {}", show_number(count), named(count, noun))
}

/// What is counted, without the count.
pub fn named(count: u64, noun: &str) -> String {
    let hisses = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        _ if count == 1 => noun.to_string(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o']) => format!("{stem}ies"),
        _ if hisses => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// The verb that goes with a count.
pub fn verb<'a>(count: u64, of_one: &'a str, of_more: &'a str) -> &'a str {
    if count == 1 { of_one } else { of_more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_people_read_them() {
        let shown = [0, 999, 1_000, 4_096, 1_234_567].map(show_number);
        assert_eq!(shown, ["0", "999", "1,000", "4,096", "1,234,567"]);
    }

    #[test]
    fn one_is_no_plural() {
        for (noun, more) in [
            ("process", "processes"),
            ("queue pair", "queue pairs"),
            ("entry", "entries"),
            ("way", "ways"),
            ("packet", "packets"),
            ("batch", "batches"),
        ] {
            assert_eq!(counted(1, noun), format!("1 {noun}"));
            assert_eq!(counted(0, noun), format!("0 {more}"));
            assert_eq!(counted(2_000, noun), format!("2,000 {more}"));
        }
        assert_eq!((verb(1, "is", "are"), verb(0, "is", "are"), verb(2, "is", "are")), ("is", "are", "are"));
    }
}
