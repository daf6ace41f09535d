//! Patterns of `KEYS` and `SCAN … MATCH`: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that stands
//! for itself.

/// The longest pattern: a key has at most 512 bytes, and matching takes time in proportion to both.
pub(super) const PATTERN_BYTES_MAX: usize = 4096;

/// Whether the whole of `text` matches `pattern`. Takes time in proportion to the product of their lengths,
/// with any pattern.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        // Redis compares nothing with nothing, and knows `*` for itself.
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut p, mut t) = (0, 0);
    // The place behind the last star, and the length of the text that the star takes so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
        } else if let Some(length) = one(&pattern[p..], text[t]) {
            (p, t) = (p + length, t + 1);
        } else if let Some((behind, taken)) = star {
            star = Some((behind, taken + 1));
            (p, t) = (behind, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// The length of the pattern's element that matches this byte, if it does.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', set @ ..] => {
            let (set, is_not) = match set {
                [b'^', set @ ..] => (set, true),
                set => (set, false),
            };
            let (is_in, behind) = search(set, byte);
            (is_in != is_not).then_some(pattern.len() - behind.len())
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Whether a set has this byte, and what is behind the set. A set that is not closed ends with the pattern; a range may be written
/// from its end, and takes any character as its end, a closing bracket too.
fn search(mut set: &[u8], byte: u8) -> (bool, &[u8]) {
    let mut is_in = false;
    loop {
        set = match set {
            [] => return (is_in, set),
            [b'\\', literal, rest @ ..] => {
                is_in |= *literal == byte;
                rest
            }
            [b']', rest @ ..] => return (is_in, rest),
            [low, b'-', high, rest @ ..] => {
                is_in |= (*low.min(high)..=*low.max(high)).contains(&byte);
                rest
            }
            [single, rest @ ..] => {
                is_in |= *single == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns_mean_what_redis_says() {
        let check = |pattern: &str, text: &str, expected: bool| {
            let found = super::matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern} {text}");
        };
        check("*", "", true);
        check("h?llo", "hello", true);
        check("h?llo", "hllo", false);
        check("h*llo", "heeeello", true);
        check("h[ae]llo", "hallo", true);
        check("h[^e]llo", "hello", false);
        check("h[a-b]llo", "hcllo", false);
        check("a\\*b", "a*b", true);
        check("a\\*b", "axb", false);
        check("*a*b*c", "xaybzc", true);
        check("*a*b*c", "xaybz", false);
        check("abc", "abcd", false);
        check("", "a", false);
        check("**", "", false);
        check("[a-", "-", true);
        check("[a-", "b", false);
        check("[\\]a]", "]", true);
        check("[\\]a]", "a", true);
        check("[\\]a]", "\\", false);
        check("[c-a]x", "bx", true);
        check("[a-]x", "^", true);
        check("[a-]x", "x", true);
        check("[a-]x", "^x", false);
        check("[^]x", "ax", true);
        check("[^", "a", true);
        check("[", "a", false);
        check("a\\", "a\\", true);
        check(&"*a".repeat(40), &"a".repeat(2000), true);
        check(&format!("{}b", "*a".repeat(40)), &"a".repeat(2000), false);
    }
}
