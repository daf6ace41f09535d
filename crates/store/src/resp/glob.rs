//! Patterns of `KEYS` and `SCAN … MATCH`: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that stands
//! for itself.

/// Whether the whole of `text` matches `pattern`. Takes time in proportion to the product of their lengths,
/// with any pattern.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
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
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|&b| b == b']')?;
            let (set, is_not) = match &rest[..end] {
                [b'^', set @ ..] => (set, true),
                set => (set, false),
            };
            (is_in(set, byte) != is_not).then_some(end + 2)
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

fn is_in(mut set: &[u8], byte: u8) -> bool {
    loop {
        match set {
            [] => return false,
            [low, b'-', high, rest @ ..] => {
                if (*low.min(high)..=*low.max(high)).contains(&byte) {
                    return true;
                }
                set = rest;
            }
            [single, rest @ ..] => {
                if *single == byte {
                    return true;
                }
                set = rest;
            }
        }
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
        check(&"*a".repeat(40), &"a".repeat(2000), true);
        check(&format!("{}b", "*a".repeat(40)), &"a".repeat(2000), false);
    }
}
